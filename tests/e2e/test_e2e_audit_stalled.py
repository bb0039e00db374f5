"""couponctl audit: receives in flight without progress are no PASS, and it prints what they wait
for."""

import itertools
import json
import re
import time

import psycopg
import pytest

from audit_ground import (
    FAILED, GRACE_S, STALLED, accept, audit, dead_letter, outbox_lose, purge, user,
)  # fmt: skip
from history import DEAD_QUEUE
from stack import wait_until

PASSED = 0
LIMIT_S = 1


@pytest.fixture
def ground(rough, ground_make):
    return ground_make(1, on=rough)


def audit_stalled(ground, limit_s=LIMIT_S):
    """The exit status, the figures of the coupon, and what it waits for: each a word."""
    code, told = audit(ground.stack, ground.coupon, "--stalled-after-s", limit_s)
    assert told["passed"] == (code == PASSED)
    assert told["verdict"] == {0: "PASS", 1: "FAIL", 5: "STALLED", 10: "UNKNOWN"}[code]
    (figures,) = told["coupons"]
    return code, figures, {reason["what"] for reason in figures["waits_for"]}


def wait_stalled(ground, n):
    """What the receives wait for, once `n` of them are stalled."""
    found = []

    def is_stalled():
        found[:] = audit_stalled(ground)
        return found[0] == STALLED and found[1]["stalled"] == n

    wait_until(is_stalled)
    return found[2]


def text_stalled(ground):
    result = ground.stack.ctl_run("audit", ground.coupon, "--stalled-after-s", LIMIT_S)
    assert result.returncode == STALLED
    return result.stdout


def wait_settled(ground):
    wait_until(lambda: audit_stalled(ground)[1]["settled"])
    assert audit_stalled(ground)[0] == PASSED


def test_receives_in_a_purged_queue(ground):
    """Without a worker, nobody publishes them again."""
    ground.stack.stop("worker-1")
    accept(ground, [user(100), user(101), user(102)])
    purge(ground.stack)
    code, figures, _ = audit_stalled(ground, limit_s=60)
    assert (code, figures["stalled"]) == (PASSED, 0), "younger than the limit"
    assert wait_stalled(ground, 3) == {"outbox"}
    assert "waits for a keeper, and none is elected: 3 receives" in text_stalled(ground)
    ground.stack.start("worker-1")
    wait_settled(ground)


def test_a_keeper_that_has_not_published_again_yet(ground, worker_make):
    ground.stack.stop("worker-1")
    accept(ground, [user(100), user(101)])
    purge(ground.stack)
    worker_make(ground.stack, COUPON_RESEND_AFTER_MS=3600000)
    wait_until(lambda: wait_stalled(ground, 2) == {"outbox", "unacked"})
    told = text_stalled(ground)
    assert "waits for the keeper, which publishes it again: 2 receives" in told
    assert "waits for a worker that may hold their messages unacked (unacked)" in told


def test_receives_in_a_purged_queue_that_redis_lost_as_well(ground):
    ground.stack.stop("worker-1")
    accept(ground, [user(100), user(101), user(102)])
    purge(ground.stack)
    outbox_lose(ground.stack, ground.coupon)
    assert wait_stalled(ground, 3) == {"lost"}
    assert "waits for nothing: 3 receives have no message" in text_stalled(ground)
    code, told = audit(ground.stack, ground.coupon, "--grace", GRACE_S, "--stalled-after-s", 1)
    assert (code, told["coupons"][0]["stalled"]) == (FAILED, 0), "a finding each"
    ground.stack.start("worker-1")
    ground.stack.ctl("rebuild", ground.coupon, "--give-up-lost", "--older-than-s", 1)
    wait_settled(ground)


@pytest.mark.long
def test_no_worker_runs(ground):
    rough = ground.stack
    rough.stop("worker-1")
    first, *_ = accept(ground, [user(100), user(101)])
    assert wait_stalled(ground, 2) == {"queue"}
    rough.restart("redis")
    assert wait_stalled(ground, 2) == {"queue"}, "Redis has run for less than the limit"
    result = rough.ctl_run("audit", "--all", "--stalled-after-s", LIMIT_S)
    lines = result.stdout.splitlines()
    wrong = [line for line in lines if line.startswith("WRONG")]  # left by tests before
    assert not any(f"coupon {ground.coupon}" in line for line in wrong), wrong
    assert result.returncode == (FAILED if wrong else STALLED), result.stdout
    assert lines[-1].startswith("FAIL: " if wrong else "STALLED: ")
    assert re.search(r"[1-9]\d* with receives in flight", lines[-1])
    (line,) = [line for line in lines[:-1] if line.startswith("STALLED")]
    assert f"STALLED coupon {ground.coupon}: 2 receives" in line and f"oldest: {first}, " in line
    assert f"coupon {ground.coupon}: waits for a worker: 2 messages in the queues" in result.stdout
    rough.start("worker-1")
    wait_settled(ground)


def test_a_locked_coupon(ground):
    with psycopg.connect(ground.stack.env["DATABASE_ADMIN_URL"]) as session:
        session.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (ground.coupon,))
        accept(ground, [user(100)])
        assert "lock" in wait_stalled(ground, 1)
    wait_settled(ground)


@pytest.mark.long
def test_rabbitmq_is_away(ground):
    rough = ground.stack
    rough.kill9("rabbitmq")
    with rough.client() as client:
        assert client.issue(ground.coupon, user(100))["code"] == 0
    assert wait_stalled(ground, 1) == {"rabbitmq"}
    rough.start("rabbitmq")
    wait_settled(ground)


@pytest.mark.long
def test_one_receive_is_stuck_while_others_pass_it(ground):
    """As a dead letter. The others are settled at once, so the coupon as a whole makes progress."""
    rough = ground.stack
    rough.stop("worker-1")
    (stuck,) = accept(ground, [user(100)])
    dead_letter(rough)
    stuck_at = time.time()
    rough.start("worker-1")
    others = map(user, itertools.count(101))
    with rough.client() as client:
        while time.time() < stuck_at + LIMIT_S + 1:
            assert client.issue(ground.coupon, next(others), ack="issued")["status"] == "issued"
    code, figures, waits_for = audit_stalled(ground)
    assert (code, figures["stalled"], waits_for) == (STALLED, 1, {"dead"})
    told = text_stalled(ground)
    shown = json.loads(rough.ctl("show", ground.coupon, "--json"))["redis"]
    assert (shown["outbox"], shown["dead"]) == (1, 1)
    assert stuck in told and "the messages of 1 receives are dead letters" in told
    rough.ctl("dead", "requeue", "--all")
    wait_settled(ground)


@pytest.mark.long
def test_dead_letters_that_were_purged(ground):
    """Their marks keep the keeper from publishing them again."""
    rough = ground.stack
    rough.stop("worker-1")
    accept(ground, [user(100)])
    dead_letter(rough)
    purge(rough, DEAD_QUEUE)
    rough.start("worker-1")
    assert wait_stalled(ground, 1) == {"dead"}
    assert f"delete {ground.key}:dead in Redis" in text_stalled(ground)
    ground.redis.delete(ground.key + ":dead")
    wait_settled(ground)


@pytest.mark.long
def test_a_backlog_that_is_worked_off_is_not_stalled(ground, worker_make):
    """Its receives are older than the limit, and one after the other gets its outcome."""
    rough = ground.stack
    rough.stop("worker-1")
    accept(ground, map(user, range(100, 160)))
    accepted_at = time.time()
    wait_until(lambda: time.time() > accepted_at + 3)
    ground.pg.execute(
        "CREATE FUNCTION slow_insert() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$"
    )
    ground.pg.execute(
        "CREATE TRIGGER slow BEFORE INSERT ON user_coupon FOR EACH ROW EXECUTE FUNCTION"
        " slow_insert()"
    )
    try:
        worker_make(rough, COUPON_PREFETCH=1)
        count = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
        before = ground.pg.execute(count, (ground.coupon,)).fetchone()[0]
        wait_until(lambda: ground.pg.execute(count, (ground.coupon,)).fetchone()[0] > before)
        code, figures, _ = audit_stalled(ground, limit_s=3)
        assert (code, figures["stalled"]) == (PASSED, 0) and figures["in_flight"] > 0, figures
    finally:
        ground.pg.execute("DROP FUNCTION slow_insert CASCADE")
    wait_settled(ground)


@pytest.mark.long
def test_receives_of_an_older_generation_that_are_only_numbers(ground):
    """How old they are is unknown: what counts is the last outcome of their generation."""
    ground.stack.stop("worker-1")
    accept(ground, [user(100)])  # as long as it is in the queue, none can be called lost
    generation = "INSERT INTO coupon_generation VALUES (%s, 7, 2, 0, now())"
    ground.pg.execute(generation, (ground.coupon,))
    assert audit_stalled(ground, limit_s=60)[0] == PASSED
    ground.pg.execute(
        "UPDATE coupon_generation SET outcome_at = now() - interval '2 minutes'"
        " WHERE coupon_id = %s",
        (ground.coupon,),
    )
    code, figures, waits_for = audit_stalled(ground, limit_s=60)
    assert (code, figures["stalled"], waits_for) == (STALLED, 2, {"queue"})
    ground.pg.execute("DELETE FROM coupon_generation WHERE coupon_id = %s", (ground.coupon,))
    ground.stack.start("worker-1")
    wait_settled(ground)
