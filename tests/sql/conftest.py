"""A database for these tests: a fresh one where the owner may create databases, else the given one.

In the given one a keeper may be at work. So coupons have random ids of 19 digits, stay drafts (settling does not look at
the status), and what concerns the keeper's row is rolled back.
"""

import os
import random
import threading
import uuid

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sql_db import MIGRATIONS, Db


def url_get(request, name):
    return os.environ.get(name) or request.getfixturevalue("env")[name]


@pytest.fixture(scope="session")
def database(request):
    """(the programs' conninfo, the owner's)"""
    app_url, owner_url = url_get(request, "DATABASE_URL"), url_get(request, "DATABASE_ADMIN_URL")
    with psycopg.connect(owner_url, autocommit=True) as owner:
        may_create = owner.execute(
            "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()[0]
        if not may_create:
            yield app_url, owner_url
            return
        name = f"couponmq_test_{uuid.uuid4().hex}"
        owner.execute(f"CREATE DATABASE {name}")
        try:
            app = make_conninfo(app_url, dbname=name)
            with psycopg.connect(make_conninfo(owner_url, dbname=name), autocommit=True) as fresh:
                for path in MIGRATIONS:
                    with fresh.transaction():
                        fresh.execute(path.read_text())
                login = psycopg.conninfo.conninfo_to_dict(app)["user"]
                if not fresh.execute("SELECT pg_has_role(%s, 'couponmq_app', 'member')", (login,)).fetchone()[0]:
                    fresh.execute(psycopg.sql.SQL("GRANT couponmq_app TO {}").format(psycopg.sql.Identifier(login)))
            yield app, make_conninfo(owner_url, dbname=name)
        finally:
            owner.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def db_new(database):
    """db_new(): one more connection of the programs' role."""
    opened = []

    def make():
        opened.append(Db(database[0]))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def db(db_new):
    return db_new()


@pytest.fixture
def owner(database):
    one = Db(database[1])
    yield one
    one.close()


@pytest.fixture
def coupon_id(database):
    """coupon_id(): an id of 19 digits that is nowhere yet; what is stored with it goes when the test ends."""
    given = []

    def make():
        given.append(random.SystemRandom().randrange(9 * 10**18, 2**63 - 1))
        return given[-1]

    yield make
    if given:
        with psycopg.connect(database[1], autocommit=True) as owner:
            owner.execute("DELETE FROM coupon WHERE id = ANY (%s)", (given,))
            for table in ("user_coupon", "receive_rejected", "coupon_generation"):
                owner.execute(f"DELETE FROM {table} WHERE coupon_id = ANY (%s)", (given,))


@pytest.fixture
def coupon_new(db, coupon_id):
    """coupon_new(total, limit): the id of a draft."""

    def make(total=100, limit=1, begin=None, end=None, days=None, valid_from=None, valid_to=None):
        wanted = coupon_id()
        made = db.query("coupon_create", wanted, "test", total, limit, begin, end, days, valid_from, valid_to)
        assert made == [{"id": str(wanted)}]
        return wanted

    return make


class Running:
    """A call in a thread of its own; result() gives what it returned or raises what it raised."""

    def __init__(self, call, *args):
        self.value = self.error = None
        self.thread = threading.Thread(target=self.run, args=(call, args), daemon=True)
        self.thread.start()

    def run(self, call, args):
        try:
            self.value = call(*args)
        except BaseException as error:
            self.error = error

    def result(self, timeout=60):
        self.thread.join(timeout)
        assert not self.thread.is_alive(), f"still running after {timeout} s"
        if self.error:
            raise self.error
        return self.value


@pytest.fixture
def background():
    return Running
