"""couponctl audit under load: finds every planted error exactly; receives in flight are no
errors."""

import time

import pytest

from audit_ground import GRACE_S, STEADY_S, audit, check_told, wrong, wrong_decided
from audit_plants import ANYWHERE, OF_ANY_LIMIT
from history import History
from selection import of_turn
from stack import wait_until


def keeper_was_first(stack, coupon):
    """It has noticed in its round what was planted, or has verified anew, and put that right."""
    lines = [f"event=coupon_{done} coupon={coupon} " for done in ("repaired", "rebuilt")]
    logs = [stack.log(name) for name in ("worker-1", "worker-2")]
    return any(line in log for line in lines for log in logs)


REJECTED_S = 0.1  # each rejection leaves a row that the audit reads


def old_enough(ground):
    """Waits until its receives are older than the grace."""
    wait_until(lambda: time.time() > ground.made_at + GRACE_S)


UNDER_LOAD = [(2, plant) for plant in ANYWHERE] + [(1, plant) for plant in OF_ANY_LIMIT]
UNDER_LOAD = of_turn(UNDER_LOAD, 4)  # some seconds each


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
    assert any(found_under_load(stack, ground_make(limit), plant) for _ in range(20))


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
