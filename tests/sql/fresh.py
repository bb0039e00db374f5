"""Databases that a test creates for itself, where the test's stack has a superuser."""

import os
import subprocess
import uuid
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sql_db import FUNCTIONS, MIGRATIONS, QUERIES, ROLES, SCHEMA


def superuser_connect(stack):
    password = stack.kept()["STACK_PG_PASSWORD"]
    url = make_conninfo(stack.env["DATABASE_ADMIN_URL"], user="postgres", password=password)
    return psycopg.connect(url, autocommit=True)


@contextmanager
def database_empty(stack, options=""):
    """The name of a database of the owner, which is dropped at the end."""
    owner = conninfo_to_dict(stack.env["DATABASE_ADMIN_URL"])["user"]
    name = f"couponmq_test_{uuid.uuid4().hex}"
    with superuser_connect(stack) as superuser:
        superuser.execute(f"CREATE DATABASE {name} OWNER {owner} {options}")
        try:
            yield name
        finally:
            superuser.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def database_migrated(stack, options=""):
    """(the programs' conninfo, the owner's) of such a database with the tables and functions."""
    with database_empty(stack, options) as name:
        app, owner = (
            make_conninfo(stack.env[url], dbname=name)
            for url in ("DATABASE_URL", "DATABASE_ADMIN_URL")
        )
        with psycopg.connect(owner, autocommit=True) as connection:
            for table in ("migration_init", "function_init"):
                connection.execute(QUERIES[table])
            connection.execute("SET check_function_bodies = off")
            for path in (*FUNCTIONS, *SCHEMA, *MIGRATIONS, ROLES):
                with connection.transaction():
                    connection.execute(path.read_text())
        with superuser_connect(stack) as superuser:
            superuser.execute(f"GRANT couponmq_app TO {conninfo_to_dict(app)['user']}")
        yield app, owner


class Fresh:
    """An empty database of the owner, in which a test runs `couponctl migrate` itself."""

    def __init__(self, stack, url):
        self.build_dir, self.env, self.url = stack.build_dir, stack.env, url
        self.connection = psycopg.connect(url, autocommit=True)

    def start(self, *options):
        return subprocess.Popen(
            [str(self.build_dir / "couponctl"), "migrate", *options],
            env={**os.environ, **self.env, "DATABASE_ADMIN_URL": self.url},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self):
        """(exit status, what it printed about functions, what it logged)"""
        process = self.start()
        out, err = process.communicate(timeout=120)
        return (
            process.returncode,
            [line for line in out.splitlines() if line.startswith("function ")],
            err,
        )

    def told(self, *options):
        """What `couponctl migrate` printed, which has to succeed."""
        process = self.start(*options)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    def functions_printed(self):
        status, lines, err = self.run()
        assert status == 0, err
        return lines

    def execute(self, text, *params):
        cursor = self.connection.execute(text, params or None)
        return cursor.fetchall() if cursor.description else []

    def recorded(self):
        return dict(self.execute("SELECT name, version FROM schema_function WHERE name <> 'roles'"))

    def body(self, name):
        return self.execute("SELECT prosrc FROM pg_proc WHERE proname = %s", name)[0][0]

    def may_execute(self, role, signature):
        return self.execute("SELECT has_function_privilege(%s, %s, 'EXECUTE')", role, signature)[0][
            0
        ]
