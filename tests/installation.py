"""Another database in the same PostgreSQL as that of a stack: of another installation."""

import os
import subprocess
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg

NAME = "another_installation"
BUSY = 1_000_000
TABLES = (
    "coupon", "user_coupon", "receive_rejected", "change_count", "keeper", "event_log",
    "webhook_delivery",
)  # fmt: skip
# What a keeper would open, a relay publish, and a sender of webhooks take.
WORK = """
INSERT INTO coupon (id, name, total_num, user_limit, valid_days, events_on)
VALUES (1, 'of another installation', 10, 1, 1, true);
UPDATE coupon SET status = 'published', version = version + 1 WHERE id = 1;
INSERT INTO webhook (url, types, batch_max, queue_max, state_by, created_by)
VALUES ('http://127.0.0.1:9/', '{}', 1, 10, 'test', 'test');
INSERT INTO webhook_delivery (webhook_id, coupon_id, type, events_num, body)
SELECT id, 1, 'coupon.issued', 1, '{}' FROM webhook;
UPDATE change_count SET num = 1000000;
"""


class Another:
    """Busier than that of the stack. Its `env` has the URLs."""

    def __init__(self, stack):
        self.stack = stack
        self.env = {
            setting: urlsplit(stack.env[setting])._replace(path="/" + NAME).geturl()
            for setting in ("DATABASE_URL", "DATABASE_ADMIN_URL")
        }
        migrated = self.ctl("migrate")
        assert migrated.returncode == 0, migrated.stderr
        with self.owner() as pg:
            pg.execute(WORK)

    def owner(self):
        return psycopg.connect(self.env["DATABASE_ADMIN_URL"], autocommit=True)

    def ctl(self, *arguments):
        return subprocess.run(
            [str(self.stack.build_dir / "couponctl"), *map(str, arguments)],
            env={**os.environ, **self.stack.env, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def installation(self):
        with self.owner() as pg:
            return str(pg.execute("SELECT id FROM installation").fetchone()[0])

    def rows(self):
        """Everything that a worker would change."""
        with self.owner() as pg:
            rows = "SELECT one::text FROM {} AS one ORDER BY 1"
            return [pg.execute(rows.format(table)).fetchall() for table in TABLES]


def superuser_run(stack, *statements):
    admin = urlsplit(stack.env["DATABASE_ADMIN_URL"])
    login = f"postgres:{stack.kept()['STACK_PG_PASSWORD']}@{admin.netloc.rpartition('@')[2]}"
    with psycopg.connect(admin._replace(netloc=login).geturl(), autocommit=True) as superuser:
        for statement in statements:
            superuser.execute(statement)


@contextmanager
def another_installation(stack):
    drop = f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)"
    owner = urlsplit(stack.env["DATABASE_ADMIN_URL"]).username
    superuser_run(stack, drop, f'CREATE DATABASE {NAME} OWNER "{owner}"')
    yield Another(stack)
    superuser_run(stack, drop)
