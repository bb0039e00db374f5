"""What an operator or a tool does to PostgreSQL under load: time-outs and levels of isolation for
all, locks of DDL, VACUUM FULL, and too many transactions without VACUUM."""

import contextlib
import itertools
import json
import os
import subprocess
from pathlib import Path

from scenario_postgresql import ROLES, reconnect_all, workers_told
from services import pg_superuser, say

from scenario import POSTGRESQL_AWAY, scenario

ALL_ROLES = (*ROLES, "couponmq_operator")
TABLES = ("coupon", "user_coupon", "receive_rejected")
# So many transactions after the oldest one PostgreSQL gives out no more numbers.
NUMBERS, RESERVED = 1 << 31, 3_000_000
STATES = 1 << 20  # transactions whose states one file has


@contextlib.contextmanager
def roles_set(rig, **settings):
    """Applies to sessions of the programs that begin until the end."""
    with pg_superuser(rig.stack) as pg:
        try:
            for role, (name, value) in itertools.product(ALL_ROLES, settings.items()):
                pg.execute(f"ALTER ROLE {role} SET {name} = '{value}'")
            reconnect_all(pg)
            yield
        finally:
            for role, name in itertools.product(ALL_ROLES, settings):
                pg.execute(f"ALTER ROLE {role} RESET {name}")
            reconnect_all(pg)


@scenario(**POSTGRESQL_AWAY)
def postgresql_short_timeouts(rig, chance):
    """statement_timeout and idle_in_transaction_session_timeout of 1 ms for the programs: they have
    their own, and leave no transaction open."""
    rig.wait_answers(chance.randint(1, 300))
    say("statement_timeout = 1ms, idle_in_transaction_session_timeout = 1ms")
    with roles_set(rig, statement_timeout="1ms", idle_in_transaction_session_timeout="1ms"):
        rig.wait_answers(200)
        rig.check_served()
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_time_zone(rig, chance):
    """The server's time zone, which has summer time, changes: a day of validity has 24 hours, and
    windows stay what they were."""
    days = 200
    coupon = rig.stack.coupon_make(
        100, begin="2026-01-01T00:00:00Z", end="2099-07-01T00:00:00Z", valid_days=days
    )
    before = rig.stack.ctl("show", coupon, "--json")
    rig.wait_answers(chance.randint(1, 300))
    zone = chance.choice(("America/New_York", "Europe/Berlin", "Australia/Lord_Howe"))
    say(f"timezone = {zone}")
    with roles_set(rig, timezone=zone):
        with rig.gateways[0].process.client() as client:
            rig.wait(lambda: client.issue(coupon, 1, ack="issued")["code"] == 0)
        now = rig.stack.ctl("show", coupon, "--json")
        told = [json.loads(text) for text in (before, now)]
        assert all(told[0][name] == told[1][name] for name in ("begin", "end")), told
        rig.wait_answers(200)
    with rig.pg() as pg:
        (lasts,) = pg.execute(
            "SELECT extract(epoch FROM valid_to - received_at) FROM user_coupon"
            " WHERE coupon_id = %s",
            (int(coupon),),
        ).fetchone()
    assert lasts == days * 86400, lasts
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_serializable(rig, chance):
    """default_transaction_isolation = serializable for all: settling is READ COMMITTED all the
    same."""
    rig.wait_answers(chance.randint(1, 300))
    level = chance.choice(("serializable", "repeatable read"))
    say(f"default_transaction_isolation = {level}")
    with roles_set(rig, default_transaction_isolation=level):
        rig.wait_answers(200)
        rig.check_served()
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_serialization_fails(rig, chance):
    """Every second transaction that settles fails with 40001, as on a system that is distributed:
    it is tried again."""
    rig.wait_answers(chance.randint(1, 300))
    refused = workers_told(rig, "torture refuses")
    with pg_superuser(rig.stack) as pg:
        try:
            pg.execute(
                "CREATE FUNCTION torture_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " IF random() < 0.5 THEN RAISE 'torture refuses' USING ERRCODE = '40001'; END IF;"
                " RETURN NULL; END $$"
            )
            pg.execute(
                "CREATE TRIGGER torture_refuse AFTER UPDATE ON coupon FOR EACH STATEMENT"
                " EXECUTE FUNCTION torture_refuse()"
            )
            refused()
            rig.pause(chance, 1.0, 4.0)
        finally:
            pg.execute("DROP FUNCTION torture_refuse CASCADE")
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_tables_locked(rig, chance):
    """Locks of DDL, ACCESS EXCLUSIVE, on a table for longer than workers wait for one."""
    rig.wait_answers(chance.randint(1, 300))
    for table in chance.sample(TABLES, 2):
        refused = workers_told(rig, "lock timeout")
        with pg_superuser(rig.stack) as pg, pg.transaction():
            say(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            pg.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            if table != "receive_rejected":  # that one is not always read
                refused()
            rig.pause(chance, 0.5, 2.0)
        rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_vacuum_full(rig, chance):
    """VACUUM FULL of each table while coupons are issued."""
    rig.wait_answers(chance.randint(1, 300))
    with pg_superuser(rig.stack) as pg:
        for table in chance.sample(TABLES, len(TABLES)):
            say(f"VACUUM FULL {table}")
            pg.execute(f"VACUUM FULL {table}")
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_wraparound(rig, chance):
    """So many transactions without VACUUM that PostgreSQL gives out no more numbers: nothing is
    dead-lettered, and all goes on after VACUUM FREEZE in single-user mode."""
    rig.wait_answers(chance.randint(1, 300))
    with pg_superuser(rig.stack) as pg:
        (oldest,) = pg.execute("SELECT max(age(datfrozenxid)) FROM pg_database").fetchone()
        (now,) = pg.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        names = [name for (name,) in pg.execute("SELECT datname FROM pg_database")]
    following = ((now - oldest + NUMBERS - RESERVED) // STATES + 1) * STATES
    refused = workers_told(rig, "not accepting commands")
    server = Server(rig)
    say(f"transaction {now} is followed by {following}")
    rig.stack.stop("postgres")
    server.run("dd", "if=/dev/zero", f"of={server.data}/pg_xact/{following // STATES:04X}",
               "bs=262144", "count=1", "status=none")  # fmt: skip
    server.run(server.programs / "pg_resetwal", "-x", following, "-D", server.data)
    rig.stack.start("postgres")
    refused()
    rig.pause(chance, 0.5, 2.0)
    rig.stack.stop("postgres")
    for name in names:
        server.run(server.programs / "postgres", "--single", "-D", server.data, name,
                   input=b"VACUUM FREEZE")  # fmt: skip
    rig.stack.start("postgres")
    rig.wait_answers(200)


class Server:
    """Programs of PostgreSQL on its data, while it is stopped."""

    def __init__(self, rig):
        self.data = (rig.stack.run_dir / "postgres").resolve() / "data"
        self.programs = Path(f"/proc/{rig.stack.pid('postgres')}/exe").resolve().parent
        owner = self.data.stat()
        ids = (f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups", "--")
        self.prefix = ("setpriv", *ids) if os.geteuid() == 0 else ()

    def run(self, *command, **options):
        subprocess.run(
            [*self.prefix, *map(str, command)], check=True, cwd="/", stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT, **options,
        )  # fmt: skip
