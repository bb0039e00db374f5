"""couponctl audit: finds every planted error exactly, at rest and under load; receives in flight
are no errors; it changes nothing."""

import os
import random
import time

import psycopg
import pytest

from audit_ground import (
    GRACE_S, SETTLED_USERS, STEADY_S, Ground, audit, check_told, user, wrong, wrong_decided,
)  # fmt: skip
from audit_plants import (
    ANYWHERE, AT_REST, OF_ORDERS, row_deleted, slot_added, slot_removed, stock_less, stock_more,
)  # fmt: skip
from history import History
from seed import SEED
from stack import wait_until


@pytest.fixture(scope="module")
def resting(stack, request):
    """A coupon without load, of this limit."""
    ground = Ground(stack, request.param)
    assert wrong(stack, ground.coupon) == []
    yield ground
    stack.ctl("close", ground.coupon)
    ground.close()


# Not slot_removed: of a limit of 1 the keeper counts the users, and brings a lost one back.
OF_ANY_LIMIT = (row_deleted, slot_added, stock_more, stock_less)


def keeper_was_first(stack, coupon):
    """It has noticed in its round what was planted, or has verified anew, and put that right."""
    lines = [f"event=coupon_{done} coupon={coupon} " for done in ("repaired", "rebuilt")]
    logs = [stack.log(name) for name in ("worker-1", "worker-2")]
    return any(line in log for line in lines for log in logs)


def finds(stack, ground, ground_make, plant):
    for _ in range(5):
        if keeper_was_first(stack, ground.coupon):
            ground = ground_make(ground.limit)
        expected, undo = plant(ground)
        told = wrong(stack, ground.coupon)
        if not keeper_was_first(stack, ground.coupon):
            break
    undo()
    check_told(told, expected, ground.coupon)
    assert wrong(stack, ground.coupon) == [], "it is as it was"


@pytest.mark.long
@pytest.mark.parametrize(
    "resting, plant",
    [(1, plant) for plant in OF_ANY_LIMIT] + [(2, plant) for plant in ANYWHERE + AT_REST],
    indirect=["resting"],
)
def test_finds_at_rest(stack, resting, ground_make, plant):
    finds(stack, resting, ground_make, plant)


@pytest.mark.long
@pytest.mark.parametrize(
    "resting, plant", [(2, plant) for plant in OF_ORDERS], indirect=["resting"]
)
def test_finds_what_orders_did(stack, resting, ground_make, plant):
    finds(stack, resting, ground_make, plant)


# Under load


REJECTED_S = 0.1  # each rejection leaves a row that the audit reads


def old_enough(ground):
    """Waits until its receives are older than the grace."""
    wait_until(lambda: time.time() > ground.made_at + GRACE_S)


UNDER_LOAD = [(2, plant) for plant in ANYWHERE] + [(1, plant) for plant in OF_ANY_LIMIT]
if not os.environ.get("AUDIT_ALL"):  # some seconds each: a few of them, others by SEED=n
    UNDER_LOAD = random.Random(SEED).sample(UNDER_LOAD, 4)


def found_under_load(stack, ground, plant):
    """False: the keeper was first."""
    with History(
        stack, ground.coupon, ground.total, limit=ground.limit, keys=0.1, every_s=STEADY_S
    ).start(connections=2) as history:
        history.wait_accepted(100)
        old_enough(ground)
        expected, undo = plant(ground)
        told = wrong_decided(stack, ground.coupon)
        if keeper_was_first(stack, ground.coupon):
            return False
        undo()
        check_told(told, expected, ground.coupon)
        history.wait_accepted(100)
        told = wrong(stack, ground.coupon)
        assert told == [] or keeper_was_first(stack, ground.coupon), "it is as it was"
    return told == []


@pytest.mark.parametrize("limit, plant", UNDER_LOAD)
def test_finds_under_load(stack, ground_make, limit, plant):
    assert any(found_under_load(stack, ground_make(limit), plant) for _ in range(5))


@pytest.mark.long
def test_no_false_alarm_while_workers_come_and_go(rough, ground_make):
    """Many receives are in flight, older than the grace, and settled all at once."""
    ground = ground_make(2, on=rough)
    with History(rough, ground.coupon, ground.total, limit=2, every_s=STEADY_S).start(
        connections=2
    ) as history:
        for breaks in (rough.kill9, rough.stop):
            history.wait_accepted(300)
            breaks("worker-1")
            stopped_at = time.time()
            wait_until(lambda: time.time() > stopped_at + GRACE_S + 1)
            code, told = audit(rough, ground.coupon, "--grace", GRACE_S)
            (figures,) = told["coupons"]
            assert (code, told["wrong"], figures["overdue"]) == (0, [], 0)
            assert figures["in_flight"] > 0, "nobody settles"
            rough.start("worker-1")
            for _ in range(2):
                assert wrong(rough, ground.coupon) == []
        history.stop()
        history.settle()
    assert wrong(rough, ground.coupon) == []


@pytest.mark.long
def test_no_false_alarm_while_a_worker_hangs(rough, ground_make):
    """It holds messages that RabbitMQ does not count."""
    ground = ground_make(2, on=rough)
    with History(rough, ground.coupon, ground.total, limit=2, every_s=STEADY_S).start(
        connections=2
    ) as history:
        for _ in range(2):
            history.wait_accepted(300)
            rough.sigstop("worker-1")
            history.wait_accepted(1500)
            assert wrong(rough, ground.coupon, grace=30) == []
            rough.thaw()
            for _ in range(2):
                assert wrong(rough, ground.coupon, grace=30) == []
        history.stop()
        history.settle()


@pytest.mark.long
def test_no_false_alarm_while_rejections_are_given_back(stack, ground_make):
    """Redis has a higher limit than PostgreSQL, so that every second receive of a user is
    rejected."""
    ground = ground_make(1)
    ground.redis.hset(ground.key, "limit", 3)
    with History(stack, ground.coupon, ground.total, limit=3, users=3000, every_s=REJECTED_S).start(
        connections=2
    ) as history:
        rejected = "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s"
        wait_until(lambda: ground.pg.execute(rejected, (ground.coupon,)).fetchone()[0] > 100)
        for _ in range(6):
            assert {finding["kind"] for finding in wrong(stack, ground.coupon)} == {
                "terms"
            }, "only the limit differs"
        history.stop()
    ground.redis.hset(ground.key, "limit", 1)
    wait_until(lambda: wrong(stack, ground.coupon) == [])


@pytest.mark.parametrize("resting", [2], indirect=True)
def test_a_line_names_the_place(stack, resting):
    expected, undo = slot_removed(resting)
    try:
        result = stack.ctl_run("audit", resting.coupon)
    finally:
        undo()
    line = result.stdout.splitlines()[0]
    assert line.startswith(
        f"WRONG P4: coupon {resting.coupon}, user {user(8)}, slot 1, receive"
        f" {expected['receive']}: "
    )
    assert (
        line.endswith("(slot_missing)")
        and result.stdout.splitlines()[-1] == "FAIL: 1 coupon audited, 1 wrong"
    )


# It changes nothing


def rows_read(coupon, pg):
    """Every row of the coupon with its version, which each write and each row lock changes."""
    tables = ("coupon", "coupon_generation", "coupon_late", "user_coupon", "receive_rejected")
    return {
        table: sorted(
            pg.execute(
                f"SELECT t.tableoid::text, t.ctid::text, t.xmin::text, t.xmax::text, t::text"
                f" FROM {table} AS t WHERE {'id' if table == 'coupon' else 'coupon_id'} = %s",
                (coupon,),
            ).fetchall()
        )
        for table in tables
    }


@pytest.mark.parametrize("resting", [2], indirect=True)
def test_changes_nothing(stack, resting, pg_owner):
    """Neither Redis nor PostgreSQL is changed by an audit; it takes no row locks either."""

    def state():
        keys = (resting.key + suffix for suffix in ("", ":users", ":outbox"))
        return [resting.redis.dump(key) for key in keys], rows_read(resting.coupon, pg_owner)

    def is_same_after_an_audit():
        before = state()
        assert len(before[1]["user_coupon"]) >= SETTLED_USERS
        commands = resting.redis.info("commandstats")
        wrong(stack, resting.coupon)
        used = {
            name
            for name, told in resting.redis.info("commandstats").items()
            if told["calls"] > commands.get(name, {"calls": 0})["calls"]
        }
        assert {"cmdstat_hscan", "cmdstat_hmget"} <= used
        return state() == before

    # On a busy machine a message may be delivered once more meanwhile, and lock the coupon.
    wait_until(is_same_after_an_audit)
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (resting.coupon,))
        holder.execute("SELECT FROM user_coupon WHERE coupon_id = %s FOR UPDATE", (resting.coupon,))
        assert wrong(stack, resting.coupon) == [], "it does not wait for another session's lock"
