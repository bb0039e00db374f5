"""Rows that another session keeps locked: the work that needs them is put off, and all other work
continues."""

import contextlib
import uuid

import psycopg
import pytest

from script_coupon import run_id_of
from stack import wait_until


@contextlib.contextmanager
def locked(stack, sql, *arguments):
    """A transaction that locks the rows of the query until the end of the block."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as session:
        assert session.execute(sql + " FOR UPDATE", arguments).rowcount > 0
        yield
        session.rollback()


def coupon_locked(stack, coupon):
    return locked(stack, "SELECT FROM coupon WHERE id = %s", coupon)


@pytest.fixture
def told(rough):
    """told(EVENT): how many times the worker has logged it since the test began."""
    path = rough.run_dir / "worker-1.log"
    begin = path.stat().st_size

    def count(event):
        return path.read_bytes()[begin:].decode(errors="replace").count(f"event={event} ")

    yield count
    assert count("keeper_database_lost") == 0, "a lock is no reason to drop the connection"


@pytest.fixture
def put_off(told):
    return lambda coupon: wait_until(lambda: told(f"coupon_put_off coupon={coupon}"))


def is_open(redis, coupon):
    return redis.hget(f"coupon:{{{coupon}}}", "status") == "open"


def column(pg, coupon, name):
    return pg.execute(f"SELECT {name} FROM coupon WHERE id = %s", (coupon,)).fetchone()[0]


def coupon_open(stack, redis, **terms):
    coupon = stack.coupon_make(10, **terms)
    wait_until(lambda: is_open(redis, coupon))
    return coupon


def assert_issues(stack, pg, coupon):
    """A receive of this coupon is accepted and settled."""
    with stack.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        assert client.issue(coupon, "1")["status"] == "accepted"
    wait_until(lambda: column(pg, coupon, "issued_num") == 1)


def assert_others_work(stack, redis, pg, other):
    """A new coupon is loaded and issues; new terms and the end of another coupon are applied."""
    assert_issues(stack, pg, coupon_open(stack, redis))
    stack.ctl("pause", other)
    wait_until(lambda: redis.hget(f"coupon:{{{other}}}", "status") == "paused")
    stack.ctl("close", other)
    wait_until(lambda: column(pg, other, "expires_at"))


@pytest.mark.long
def test_not_loaded_yet(rough, rough_redis, rough_pg, put_off):
    other = coupon_open(rough, rough_redis)
    rough.sigstop("worker-1")
    coupon = rough.coupon_make(10)
    with coupon_locked(rough, coupon):
        rough.sigcont("worker-1")
        put_off(coupon)
        assert_others_work(rough, rough_redis, rough_pg, other)
        assert not is_open(rough_redis, coupon)
    wait_until(lambda: is_open(rough_redis, coupon))
    assert_issues(rough, rough_pg, coupon)


def test_over(rough, rough_redis, rough_pg, put_off):
    coupon, other, third = (coupon_open(rough, rough_redis) for _ in range(3))
    rough.sigstop("worker-1")
    ended = "UPDATE coupon SET end_at = now() WHERE id = ANY (%s::bigint[])"
    rough_pg.execute(ended, ([coupon, other],))
    with coupon_locked(rough, coupon):
        rough.sigcont("worker-1")
        wait_until(lambda: column(rough_pg, other, "status") == "closed")
        put_off(coupon)
        assert_others_work(rough, rough_redis, rough_pg, third)
        assert column(rough_pg, coupon, "status") == "published"
    wait_until(lambda: column(rough_pg, coupon, "expires_at"))


def test_closed_and_settled(rough, rough_redis, rough_pg, put_off):
    coupon, other = (coupon_open(rough, rough_redis) for _ in range(2))
    rough.sigstop("worker-1")
    rough.ctl("close", coupon)
    with coupon_locked(rough, coupon):
        rough.sigcont("worker-1")
        put_off(coupon)
        assert_others_work(rough, rough_redis, rough_pg, other)
        assert column(rough_pg, coupon, "settled_at") is None
    wait_until(lambda: column(rough_pg, coupon, "expires_at"))


@pytest.mark.long
def test_lost_by_redis(rough, rough_redis, rough_pg, put_off):
    """Its rebuild needs a new generation; so does that of another one."""
    coupon, other, third = (coupon_open(rough, rough_redis) for _ in range(3))
    with coupon_locked(rough, coupon):
        rough_redis.delete(f"coupon:{{{coupon}}}", f"coupon:{{{other}}}")
        put_off(coupon)
        wait_until(lambda: is_open(rough_redis, other))
        assert_issues(rough, rough_pg, other)
        assert_others_work(rough, rough_redis, rough_pg, third)
        assert not is_open(rough_redis, coupon)
    wait_until(lambda: is_open(rough_redis, coupon))
    assert_issues(rough, rough_pg, coupon)


@pytest.mark.long
def test_late_outcome(rough, rough_redis, rough_pg, put_off):
    """A late outcome's row is locked, after Redis has counted it."""
    coupon, other = (coupon_open(rough, rough_redis) for _ in range(2))
    rough.sigstop("worker-1")
    rough_pg.execute(
        "INSERT INTO coupon_late (coupon_id, num, generation, seq, user_id, slot, batch, idx, key)"
        " VALUES (%s, 1, 0, 0, 1, 0, %s, 0, '')",
        (coupon, uuid.uuid4()),
    )
    rough_pg.execute("UPDATE coupon SET late_num = 1 WHERE id = %s", (coupon,))
    with locked(rough, "SELECT FROM coupon_late WHERE coupon_id = %s", coupon):
        rough.sigcont("worker-1")
        put_off(coupon)
        assert_others_work(rough, rough_redis, rough_pg, other)
    late = "SELECT count(*) FROM coupon_late WHERE coupon_id = %s"
    wait_until(lambda: rough_pg.execute(late, (coupon,)).fetchone()[0] == 0)
    assert rough_redis.hget(f"coupon:{{{coupon}}}", "late") == "1"


@pytest.mark.long
def test_rejected_receive(rough, rough_redis, rough_pg, put_off):
    """After a restart of Redis, the releases of a coupon are repeated before it is verified."""
    coupon, other = (coupon_open(rough, rough_redis) for _ in range(2))
    rough_pg.execute(
        "INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,"
        " received_at, freed_at)"
        " VALUES (%s, %s, 0, 1, 1, 'out_of_stock', now(), now())",
        (coupon, uuid.uuid4()),
    )
    with locked(rough, "SELECT FROM receive_rejected WHERE coupon_id = %s", coupon):
        rough.restart("redis")
        run_id = run_id_of(rough_redis)

        def verified(one):
            return rough_redis.hget(f"coupon:{{{one}}}", "run_id") == run_id

        wait_until(lambda: verified(other))
        put_off(coupon)
        assert_others_work(rough, rough_redis, rough_pg, other)
        assert not verified(coupon)
    wait_until(lambda: verified(coupon))
    assert_issues(rough, rough_pg, coupon)


def test_the_row_of_the_keeper(rough, rough_redis, rough_pg, told):
    """No fenced operation can be done then; afterwards all are done."""
    rough.sigstop("worker-1")
    coupon = rough.coupon_make(10)
    with locked(rough, "SELECT FROM keeper"):
        rough.sigcont("worker-1")
        wait_until(lambda: told("keeper_database_refused"))
    wait_until(lambda: is_open(rough_redis, coupon))
    assert_issues(rough, rough_pg, coupon)


MANY = 60


@pytest.fixture
def many_over(rough, rough_redis, rough_pg):
    """Coupons whose end has passed while the worker was frozen."""
    first = rough_pg.execute("SELECT greatest(max(id), 6000000000) FROM coupon").fetchone()[0]
    made = "SELECT %s + i, 'many', 1, 'published' FROM generate_series(1, %s) AS i"
    rough_pg.execute(f"INSERT INTO coupon (id, name, total_num, status) {made}", (first, MANY))
    wait_until(lambda: all(is_open(rough_redis, first + i) for i in range(1, MANY + 1)))
    rough.sigstop("worker-1")
    rough_pg.execute(
        "UPDATE coupon SET end_at = now() - interval '1 minute' WHERE id > %s", (first,)
    )
    return first


def test_many_at_once(rough, rough_redis, rough_pg, told, many_over):
    """Each attempt waits for its lock; all of them together do not delay the others."""
    with locked(rough, "SELECT FROM coupon WHERE id > %s", many_over):
        rough.sigcont("worker-1")
        wait_until(lambda: told("coupon_put_off") > 0)
        coupon = rough.ctl("create", "--name", "other", "--total", 5, "--id", 12345).strip()
        rough.ctl("publish", coupon, "--wait-s", 0)
        wait_until(lambda: is_open(rough_redis, coupon))
    wait_until(lambda: column(rough_pg, many_over + MANY, "status") == "closed")
