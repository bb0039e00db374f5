"""Migration 0010 gets its lock although autovacuum is at work on one of the tables."""

import pytest
from fresh import superuser_connect
from stack import wait_until

SLOW = (
    "autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0,"
    " autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
)
WORKERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'autovacuum worker'"
    " AND query ~ 'VACUUM.*receive_rejected'"
)


@pytest.fixture
def superuser(stack):
    """Meanwhile autovacuum looks for work each second."""
    with superuser_connect(stack) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        connection.execute("SELECT pg_reload_conf()")
        yield connection
        connection.execute("ALTER SYSTEM RESET autovacuum_naptime")
        connection.execute("SELECT pg_reload_conf()")


def test_autovacuum_gives_way(empty, superuser):
    """PostgreSQL cancels it when a lock is waited for longer than deadlock_timeout."""
    empty.migrate_to(9)
    empty.execute(f"ALTER TABLE receive_rejected SET ({SLOW})")
    empty.execute(
        "INSERT INTO receive_rejected SELECT 1001, gen_random_uuid(), 0, n, 1, 'slot_taken', now()"
        " FROM generate_series(1, 20000) AS n"
    )
    empty.execute("DELETE FROM receive_rejected")
    empty.execute("SELECT pg_stat_force_next_flush()")

    def workers():
        return superuser.execute(WORKERS, (empty.connection.info.dbname,)).fetchall()

    wait_until(workers)
    empty.functions_printed()
