"""PostgreSQL killed, frozen, locked, full, read-only, without connections, and away for longer than
RabbitMQ waits for an ack."""

import contextlib
import os
import shutil
import signal
import subprocess

import psycopg
from faults import FAULTS
from relay import Relay
from services import SmallDisk, ask, pg_superuser, rabbitmq_eval, say, size_of

from scenario import POSTGRESQL_AWAY, scenario
from stack import process_tree, wait_until

ROLE = "couponmq_worker"
ROLES = [ROLE, "couponmq_gateway"]
SETTLING = (
    "SELECT pid FROM pg_stat_activity WHERE usename = %s AND state = 'active' AND query ILIKE"
    " '%%settle(%%'"
)
BLOCKED = (
    "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND wait_event_type = 'Lock' AND"
    " query ILIKE '%%settle(%%'"
)
AWAY_S = (6.0, 8.0)
CONSUMER_TIMEOUT_MS = 2000
MB = 1 << 20


def workers_log(rig, text):
    return sum(part.log().count(text) for part in rig.workers)


def workers_told(rig, text):
    """Waits until a worker has logged it once more."""
    before = workers_log(rig, text)
    return lambda timeout=120: rig.wait(lambda: workers_log(rig, text) > before, timeout)


def reconnect_all(pg):
    pg.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY (%s)", (ROLES,)
    )


def server_wait(rig):
    """PostgreSQL's own health check."""

    def answers():
        try:
            with pg_superuser(rig.stack) as pg:
                return pg.execute("SELECT 1").fetchone()
        except psycopg.OperationalError:
            return None

    rig.wait(answers, 30)


# Killed


@scenario(**POSTGRESQL_AWAY)
def postgresql_killed(rig, chance):
    """The whole server killed with kill -9, each process of it, in the middle of a transaction."""
    rig.wait_answers(chance.randint(1, 300))
    say("kill -9 of all of PostgreSQL")
    pid = rig.stack.pid("postgres")
    for one in process_tree(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    rig.wait(lambda: not rig.stack.runs("postgres"))
    rig.wait_accepted(chance.randint(20, 150))
    rig.stack.start("postgres")
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_backends_killed(rig, chance):
    """A worker's backend is killed in the middle of a batch: PostgreSQL ends all others too, and
    recovers."""
    for _ in range(2):
        rig.wait_answers(chance.randint(1, 300))
        with pg_superuser(rig.stack) as pg, pg_superuser(rig.stack) as lock:
            with row_lock(lock, chance.choice(rig.load.campaigns[:2]).coupon):
                rig.wait(lambda: pg.execute(BLOCKED, (ROLE,)).fetchone()[0])
                pid = chance.choice(pg.execute(SETTLING, (ROLE,)).fetchall())[0]
                say(f"kill -9 of backend {pid}, which settles")
                os.kill(pid, signal.SIGKILL)
        server_wait(rig)
        rig.wait_answers(200)


@contextlib.contextmanager
def row_lock(pg, coupon):
    """Another session locks the coupon's row. It may be ended meanwhile."""
    try:
        pg.execute("BEGIN")
        pg.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupon,))
        yield
        pg.execute("ROLLBACK")
    except psycopg.OperationalError:
        pass


@scenario(**POSTGRESQL_AWAY)
def postgresql_frozen(rig, chance):
    """PostgreSQL hangs, for longer than a transaction may take."""
    rig.wait_answers(chance.randint(1, 300))
    say("SIGSTOP of all of PostgreSQL")
    rig.stack.sigstop("postgres")
    rig.pause(chance, *AWAY_S)
    rig.stack.sigcont("postgres")
    rig.wait_answers(200)


def relay_to_postgresql(rig, _chance):
    """Between workers and PostgreSQL."""
    rig.relay = Relay(pg_port(rig), rig.seed)
    rig.on_end(rig.relay.close)
    for part in rig.workers:
        part.restart(DATABASE_URL=rig.relay.url(rig.stack.env_of("worker")["DATABASE_URL"]))
    rig.wait(lambda: all(part.ready() for part in rig.workers))


def pg_port(rig):
    with pg_superuser(rig.stack) as pg:
        return pg.info.port


def connections_lost(rig):
    """Also those that were lost while the worker was still connecting."""
    return workers_log(rig, "event=database_lost") + workers_log(rig, "event=database_unreachable")


@scenario(prepare=relay_to_postgresql, **POSTGRESQL_AWAY)
def postgresql_answer_to_commit_lost(rig, chance):
    """PostgreSQL's answers are discarded, then the connection is cut: for the workers, the outcome
    of the commit is unknown."""
    for _ in range(4):
        rig.wait_answers(chance.randint(1, 200))
        before = connections_lost(rig)
        say("PostgreSQL's answers discarded, then every connection reset")
        rig.relay.mode("lose", "down")
        rig.pause(chance, 0.1, 0.6)
        rig.relay.heal()
        rig.wait(lambda before=before: connections_lost(rig) > before)
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_commits_wait(rig, chance):
    """COMMIT waits for a standby: until it ends, no client may be told `issued`."""
    rig.wait_answers(chance.randint(1, 300))
    with FAULTS["postgresql_commits_wait"].lasting(rig, chance):
        rig.pause(chance, 0.5, 4.0)  # also longer than a transaction may take
    rig.wait_answers(200)


# Locks


@scenario(**POSTGRESQL_AWAY)
def postgresql_lock_held(rig, chance):
    """Another session locks a coupon's row for longer than the workers' lock_timeout."""
    rig.wait_answers(chance.randint(1, 300))
    refused = workers_told(rig, "lock timeout")
    with pg_superuser(rig.stack) as lock:
        campaign = chance.choice(rig.load.campaigns[:2])
        say(f"the row of coupon {campaign.coupon} locked")
        with row_lock(lock, campaign.coupon):
            refused()
            rig.pause(chance, 0.0, 1.5)
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_deadlock(rig, chance):
    """A session that takes the workers' locks in the opposite order, with longer time-outs:
    settling is the deadlock victim."""
    before = workers_log(rig, "deadlock detected")
    with pg_superuser(rig.stack) as pg:  # less than workers wait for a lock
        pg.execute(f"ALTER ROLE {ROLE} SET deadlock_timeout = '300ms'")
        reconnect_all(pg)
    rig.on_heal(lambda: deadlock_timeout_reset(rig))
    for _ in range(5):  # the user's receive may not be in the transaction that waits
        rig.wait_answers(chance.randint(1, 300))
        campaign = chance.choice(rig.load.campaigns[:2])
        with pg_superuser(rig.stack) as lock:
            deadlock_try(rig, chance, lock, campaign)
        if workers_log(rig, "deadlock detected") > before:
            break
    else:
        raise AssertionError("there was no deadlock")
    rig.wait_answers(100)


def deadlock_timeout_reset(rig):
    with pg_superuser(rig.stack) as pg:
        pg.execute(f"ALTER ROLE {ROLE} RESET deadlock_timeout")


def deadlock_try(rig, chance, lock, campaign):
    user = campaign.user(chance.randint(10**12, 10**13))
    row = psycopg.types.json.Jsonb({"user_id": user, "coupon_id": int(campaign.coupon), "slot": 1})
    lock.execute("SET deadlock_timeout = '20s'")
    for part in rig.workers:
        part.stop()
    with pg_superuser(rig.stack) as pg:
        rig.wait(lambda: not pg.execute(SETTLING, (ROLE,)).fetchall())
    with row_lock(lock, campaign.coupon):
        assert ask(rig, campaign, user, ack="queued")["code"] == 0
        for part in rig.workers:
            part.cont()
        with pg_superuser(rig.stack) as pg:
            rig.wait(lambda: pg.execute(BLOCKED, (ROLE,)).fetchone()[0])
        say(f"coupon {campaign.coupon} locked, then the slot of user {user}")
        lock.execute(
            "INSERT INTO user_coupon SELECT (jsonb_populate_record(c, %s)).* FROM user_coupon"
            " c LIMIT 1",
            (row,),
        )


# Refusing


@scenario(**POSTGRESQL_AWAY)
def postgresql_without_connections(rig, chance):
    """The workers' and gateways' connections are ended, and new ones are refused: max_connections,
    then the role's limit."""
    with pg_superuser(rig.stack) as pg, contextlib.ExitStack() as after:
        rig.wait_answers(chance.randint(1, 300))
        say("every connection taken by another program")
        before = workers_log(rig, "event=database_unreachable")

        def taken():
            reconnect_all_but(pg, "torture")
            while (other := connection_take(rig)) is not None:
                after.callback(other.close)
            return workers_log(rig, "event=database_unreachable") > before

        rig.wait(taken)
        rig.pause(chance, 0.5, 2.0)
    with pg_superuser(rig.stack) as pg:
        rig.wait_answers(chance.randint(1, 300))
        say("ALTER ROLE … CONNECTION LIMIT 1")
        unreachable = workers_told(rig, "event=database_unreachable")
        try:
            for role in ROLES:
                pg.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1")
            reconnect_all(pg)
            unreachable()
            rig.pause(chance, 0.5, 2.0)
        finally:
            for role in ROLES:
                pg.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
    rig.wait_answers(200)


def connection_take(rig):
    try:
        return psycopg.connect(
            rig.stack.env["DATABASE_URL"], application_name="torture", connect_timeout=5
        )
    except psycopg.OperationalError:
        return None


def reconnect_all_but(pg, application):
    pg.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'couponmq%%' AND"
        " usename <> 'couponmq_owner' AND application_name <> %s",
        (application,),
    )


@scenario(**POSTGRESQL_AWAY)
def postgresql_read_only(rig, chance):
    """default_transaction_read_only on, as on a standby; and off."""
    with pg_superuser(rig.stack) as pg:
        try:
            rig.wait_answers(chance.randint(1, 300))
            refused = workers_told(rig, "read-only transaction")
            say("default_transaction_read_only on")
            pg.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            pg.execute("SELECT pg_reload_conf()")
            refused()
            rig.pause(chance, 0.5, 2.0)
        finally:
            pg.execute("ALTER SYSTEM RESET default_transaction_read_only")
            pg.execute("SELECT pg_reload_conf()")
    rig.wait_answers(200)


@scenario(**POSTGRESQL_AWAY)
def postgresql_away_beyond_consumer_timeout(rig, chance):
    """PostgreSQL is away for longer than RabbitMQ waits for acks: the broker closes the workers'
    channels, again and again."""
    consumer_timeout_set(rig, CONSUMER_TIMEOUT_MS, 500)
    rig.on_heal(lambda: consumer_timeout_set(rig, 1800000, 60000))
    rig.wait_answers(chance.randint(100, 300))
    closed = workers_told(rig, "event=amqp_lost")
    say(f"PostgreSQL stopped; consumer_timeout is {CONSUMER_TIMEOUT_MS} ms")
    rig.stack.stop("postgres")
    closed()
    rig.pause(chance, *AWAY_S)
    rig.stack.start("postgres")
    rig.wait_answers(200)


def consumer_timeout_set(rig, timeout_ms, look_ms):
    """Channels read it when they are opened."""
    rabbitmq_eval(
        rig.stack,
        f"application:set_env(rabbit, consumer_timeout, {timeout_ms}),"
        f" application:set_env(rabbit, channel_tick_interval, {look_ms}),"
        ' [rabbit_networking:close_connection(Pid, "torture") || Pid <-'
        " rabbit_networking:connections()], ok",
    )


# Full


def postgres_home(rig):
    return (rig.stack.run_dir / "postgres").resolve()


def tables_move(pg, space):
    for (name,) in pg.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'user_coupon'::regclass"
    ):
        pg.execute(f"ALTER TABLE {name} SET TABLESPACE {space}")


def small_tablespace(rig, _chance):
    """All rows of user coupons on a disk with about 20 MB left."""
    with pg_superuser(rig.stack) as pg:
        (used,) = pg.execute(
            "SELECT sum(pg_table_size(inhrelid)) FROM pg_inherits WHERE inhparent ="
            " 'user_coupon'::regclass"
        ).fetchone()
        rig.disk = SmallDisk(postgres_home(rig) / "small", int(used) + 20 * MB)
        rig.on_end(lambda: tablespace_remove(rig))
        pg.execute(f"CREATE TABLESPACE small LOCATION '{rig.disk.path}'")
        tables_move(pg, "small")


def tablespace_remove(rig):
    rig.disk.free()
    with pg_superuser(rig.stack) as pg:
        tables_move(pg, "pg_default")
        pg.execute("DROP TABLESPACE IF EXISTS small")
    rig.disk.remove()


def wal_on_small_disk(rig, _chance):
    """The write-ahead log on a disk with about 20 MB left."""
    SmallDisk(postgres_home(rig) / "small", MB).remove()  # whether it can be made
    wal = postgres_home(rig) / "data" / "pg_wal"
    rig.stack.stop("postgres")
    rig.disk = SmallDisk(postgres_home(rig) / "small", size_of(wal) + 20 * MB)
    rig.on_end(lambda: wal_move_back(rig, wal))
    owner = wal.stat()
    subprocess.run(["cp", "-a", wal, rig.disk.path / "pg_wal"], check=True)
    wal.rename(wal.with_name("pg_wal.before"))
    wal.symlink_to(rig.disk.path / "pg_wal")
    os.chown(wal, owner.st_uid, owner.st_gid, follow_symlinks=False)
    rig.stack.start("postgres")


def wal_move_back(rig, wal):
    rig.disk.free()
    if not rig.stack.runs("postgres"):
        rig.stack.start("postgres")
    rig.stack.stop("postgres")
    if wal.is_symlink():
        wal.unlink()
        shutil.rmtree(wal.with_name("pg_wal.before"))
        subprocess.run(["cp", "-a", rig.disk.path / "pg_wal", wal], check=True)
    rig.disk.remove()
    rig.stack.start("postgres")


@scenario(prepare=small_tablespace, crowd=False, **POSTGRESQL_AWAY)  # it would fill the disk
def postgresql_disk_full(rig, chance):
    """The disk with the tables is full: every transaction is refused until there is room.
    Nothing is dead-lettered."""
    rig.on_heal(rig.disk.free)
    rig.wait_answers(chance.randint(1, 300))
    refused = workers_told(rig, "No space left")
    say("the disk of the tables filled")
    rig.disk.fill()
    refused(30)
    rig.pause(chance, 1.0, 3.0)
    rig.disk.free()
    rig.wait_answers(200)


@scenario(prepare=wal_on_small_disk, crowd=False, **POSTGRESQL_AWAY)  # it would fill the disk
def postgresql_wal_disk_full(rig, chance):
    """The disk with the log is full: PostgreSQL panics, and does not start before there is
    room."""
    rig.on_heal(rig.disk.free)
    rig.wait_answers(chance.randint(1, 300))
    say("the disk of the write-ahead log filled, and the log switched until PostgreSQL panics")
    rig.disk.fill()
    log_exhaust(rig)
    rig.pause(chance, 1.0, 3.0)
    rig.disk.free()
    if not rig.stack.runs("postgres"):
        rig.stack.start("postgres")
    server_wait(rig)
    rig.wait_answers(200)


def log_exhaust(rig):
    """Uses up the recycled files of the log."""

    def panics():
        try:
            with pg_superuser(rig.stack) as pg:
                pg.execute("SELECT pg_switch_wal()")
        except psycopg.OperationalError:
            return True
        return False

    wait_until(panics)
