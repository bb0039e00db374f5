"""A keeper that was frozen writes nothing after another has been elected, and PostgreSQL ends its
statements."""

import pytest

from coupon_seen import KEEPER_LOCK, elections_ended, keeper_fence, keeper_usurp
from sent import query_sent, script_sent
from stack import wait_until
from ulid import ulid_make, ulid_uuid


def succeed(rough, worker, coupon, hold=None):
    """Freezes the worker; another keeper is elected and has checked the coupon. With hold, the
    other one does nothing more."""
    worker.signal(19)
    if hold:
        hold()
    before = int(coupon.field("fence"))
    rough.start("worker-1")
    wait_until(lambda: int(coupon.field("fence")) > before)
    if hold:
        rough.sigstop("worker-1")


def wake(worker):
    """It finds that another is the keeper."""
    worker.signal(18)
    wait_until(lambda: elections_ended(worker.log()))


def test_asleep_before_it_closes(rough, rough_coupon, keeper_behind):
    coupon = rough_coupon()
    worker, gate = keeper_behind("DATABASE_URL")
    gate.trap(query_sent("coupon_ended_set"))
    coupon.pg.execute(
        "UPDATE coupon SET end_at = now() - interval '1 minute' WHERE id = %s", (coupon.coupon,)
    )
    wait_until(gate.trapped_num)
    coupon.pg.execute("UPDATE coupon SET end_at = NULL WHERE id = %s", (coupon.coupon,))
    succeed(rough, worker, coupon)
    before = coupon.all()
    gate.let_go()
    wait_until(lambda: b"is_elected" in gate.said())
    assert coupon.all() == before
    wake(worker)
    assert coupon.all() == before


def test_asleep_before_new_terms(rough, rough_coupon, keeper_behind):
    coupon = rough_coupon()
    worker, gate = keeper_behind("REDIS_URL")
    gate.trap(script_sent("terms"))
    coupon.pg.execute(
        "UPDATE coupon SET status = 'paused', version = version + 1 WHERE id = %s", (coupon.coupon,)
    )
    wait_until(gate.trapped_num)
    coupon.pg.execute("UPDATE coupon SET status = 'published' WHERE id = %s", (coupon.coupon,))
    succeed(rough, worker, coupon)
    wait_until(lambda: coupon.field("version") == "3")
    coupon.redis.hset(coupon.key, "version", 2)
    rough.sigstop("worker-1")
    coupon.redis.hset(coupon.key, "version", 2)
    before = coupon.all()
    gate.let_go()
    wait_until(lambda: b"fenced" in gate.said() or b"applied" in gate.said())
    assert coupon.all() == before and b"fenced" in gate.said()
    rough.sigcont("worker-1")
    wake(worker)
    assert coupon.field("status") == "open"


def test_asleep_before_it_raises_fences(rough, rough_coupon, keeper_behind):
    """Two elections: the first of the two keepers continues with the lower fence."""
    coupon = rough_coupon()
    worker, gate = keeper_behind("REDIS_URL")
    wait_until(lambda: coupon.field("fence") == str(keeper_fence(coupon.pg)))
    gate.trap(script_sent("fence"))
    coupon.redis.hset(coupon.key, "fence", 0)
    wait_until(gate.trapped_num)
    succeed(rough, worker, coupon)
    before = coupon.all()
    gate.let_go()
    wait_until(lambda: gate.said())
    assert coupon.all() == before
    wake(worker)
    assert coupon.field("fence") == str(keeper_fence(coupon.pg))


LATE = """WITH counted AS (UPDATE coupon SET late_num = 1 WHERE id = %s RETURNING id)
    INSERT INTO coupon_late (coupon_id, num, generation, seq, user_id, slot, batch, idx, key)
    SELECT id, 1, 1, 1, 7, 1, %s, 0, '' FROM counted"""
PAUSE = "UPDATE coupon SET status = 'paused', version = version + 1 WHERE id = %s"
CAUSES = {
    "terms": lambda c: c.pg.execute(PAUSE, (c.coupon,)),
    "fence": lambda c: c.redis.hset(c.key, "fence", 0),
    "verify": lambda c: c.redis.hset(c.key, "run_id", "1" * 40),
    "hold": lambda c: c.redis.hset(c.key, "rebuild", 1),
    "fill": lambda c: c.redis.hset(c.key, "rebuild", 1),
    "place": lambda c: c.redis.hset(c.key, "rebuild", 1),
    "late": lambda c: c.pg.execute(LATE, (c.coupon, ulid_uuid(ulid_make()))),
    "expire": lambda c: c.pg.execute(PAUSE.replace("paused", "closed"), (c.coupon,)),
}


@pytest.fixture
def usurp(rough_redis, rough_pg):
    """Another keeper is elected, which then does nothing."""

    def elect():
        keeper_usurp(rough_redis)
        rough_pg.execute("UPDATE keeper SET fence = fence + 1")

    yield elect
    rough_redis.delete(KEEPER_LOCK)


@pytest.fixture
def alone(rough_coupon, rough_redis, rough_pg):
    """A coupon whose counts the test makes wrong."""
    coupon = rough_coupon()
    yield coupon
    rough_pg.execute(
        "UPDATE coupon SET status = 'closed', version = version + 1, settled_at = now(),"
        " expires_at = now() WHERE id = %s",
        (coupon.coupon,),
    )
    rough_redis.delete(*coupon.keys())


@pytest.mark.long
@pytest.mark.parametrize("script", CAUSES)
def test_asleep_until_another_is_elected(rough, alone, keeper_behind, usurp, script):
    """The other keeper has not raised the fence of the coupon yet."""
    coupon = alone
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
    if script == "late":  # an outcome of generation 1
        coupon.redis.hset(coupon.key, "rebuild", 1)
        wait_until(lambda: coupon.field("generation") == "2" and coupon.row("late_num") == (0,))
    worker, gate = keeper_behind("REDIS_URL")
    wait_until(lambda: coupon.field("fence") == str(keeper_fence(coupon.pg)))
    gate.trap(script_sent(script))
    CAUSES[script](coupon)
    wait_until(gate.trapped_num)
    worker.signal(19)
    usurp()
    before = coupon.all()
    gate.let_go()
    wait_until(gate.said)
    assert coupon.all() == before
    wake(worker)
    assert coupon.all() == before


@pytest.mark.parametrize(
    "name, sent",
    [
        ("DATABASE_URL", query_sent("coupon_settled_set")),
        ("REDIS_URL", script_sent("expire")),
        ("DATABASE_URL", query_sent("coupon_expires_set")),
    ],
    ids=["settled", "expire", "expires"],
)
def test_asleep_before_it_lets_keys_expire(rough, rough_coupon, keeper_behind, name, sent):
    coupon = rough_coupon()
    worker, gate = keeper_behind(name)
    gate.trap(sent)
    rough.ctl("close", coupon.coupon)
    wait_until(gate.trapped_num)
    succeed(
        rough,
        worker,
        coupon,
        hold=lambda: coupon.redis.hset(coupon.key + ":outbox", "0" * 26, "in flight again"),
    )
    coupon.redis.delete(coupon.key + ":outbox")
    before = coupon.all()
    gate.let_go()
    wait_until(
        lambda: b"is_elected" in gate.said()
        or b"fenced" in gate.said()
        or b"expires" in gate.said()
    )
    assert coupon.all() == before and b"expires" not in gate.said()
    worker.signal(18)
    rough.sigcont("worker-1")
    wait_until(coupon.is_settled)


def is_running(pg, application, query):
    return pg.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = %s AND state = 'active' AND strpos(query, %s) > 0",
        (application, query),
    ).fetchone() == (1,)


def test_postgresql_ends_a_slow_statement_of_a_frozen_keeper(rough, rough_coupon, rough_owner):
    coupon = rough_coupon()
    rough.sigstop("worker-1")
    coupon.pg.execute(
        "UPDATE coupon SET end_at = now() - interval '1 minute' WHERE id = %s", (coupon.coupon,)
    )
    rough_owner.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';"
        "CREATE TRIGGER slow BEFORE UPDATE ON coupon FOR EACH ROW"
        f" WHEN (NEW.id = {coupon.coupon}) EXECUTE FUNCTION slow()",
    )
    sent = query_sent("coupon_ended_set")
    try:
        rough.sigcont("worker-1")
        wait_until(lambda: is_running(coupon.pg, "coupon-keeper", sent))
        rough.sigstop("worker-1")
        wait_until(lambda: not is_running(coupon.pg, "coupon-keeper", sent))
    finally:
        rough_owner.execute("DROP TRIGGER slow ON coupon; DROP FUNCTION slow()")
    rough.sigcont("worker-1")
    wait_until(lambda: coupon.row("status") == ("closed",))
