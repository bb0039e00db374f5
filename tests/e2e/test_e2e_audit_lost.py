"""couponctl audit: receives whose message is lost, dead or not published, and stores that cannot be
compared."""

import json
import time

import pytest

from audit_ground import (
    FAILED, GRACE_S, NO_VERDICT, STEADY_S, accept, audit, check_told, dead_letter, outbox_lose,
    purge, user, wrong, wrong_decided,
)  # fmt: skip
from history import History
from message import message_text
from stack import wait_until
from ulid import ulid_make
from user_ids import receive_parts


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.long
def test_names_each_receive_of_a_purged_queue(rough, ground_make, limit):
    ground = ground_make(limit, on=rough)
    rough.stop("worker-1")
    lost = accept(ground, [user(100), user(101), user(102)])
    accepted_at = time.time()
    code, told = audit(rough, ground.coupon, "--grace", 0)
    assert (code, told["wrong"], told["coupons"][0]["overdue"]) == (0, [], 0), "in the outbox"
    outbox_lose(rough, ground.coupon)
    code, told = audit(rough, ground.coupon, "--grace", 0)
    assert (code, told["wrong"]) == (0, []), "they wait in the queue"
    assert (told["coupons"][0]["overdue"], told["coupons"][0]["queued"]) == (3, 3)
    purge(rough)
    code, told = audit(rough, ground.coupon)
    assert (code, told["wrong"]) == (0, []), "younger than the grace"
    wait_until(lambda: time.time() > accepted_at + GRACE_S)
    found = wrong(rough, ground.coupon)
    assert {finding["kind"] for finding in found} == {"receive_lost"} and {
        finding["promise"] for finding in found
    } == {"P3"}
    assert sorted(finding["receive"] for finding in found) == sorted(lost)
    rough.start("worker-1")
    with History(rough, ground.coupon, ground.total, limit=limit, every_s=STEADY_S).start(
        connections=2
    ) as history:
        history.wait_accepted(300)
        found = wrong_decided(rough, ground.coupon)
    assert {finding["kind"] for finding in found} == {"receive_lost"}
    assert sorted(finding["receive"] for finding in found) == sorted(lost), "under load too"
    wait_until(lambda: audit(rough, ground.coupon)[1]["coupons"][0]["in_flight"] == len(lost))
    rough.ctl("rebuild", ground.coupon, "--give-up-lost", "--older-than-s", 1)
    assert wrong(rough, ground.coupon) == [], "given up, each is rejected"


def test_receives_of_a_purged_queue_are_not_lost(rough, ground_make):
    """Their messages are in the outbox, and the keeper publishes them again."""
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    accept(ground, [user(100), user(101)])
    purge(rough)
    assert wrong(rough, ground.coupon, grace=0) == []
    rough.start("worker-1")
    wait_until(lambda: audit(rough, ground.coupon)[1]["coupons"][0]["settled"])


def test_a_dead_letter_is_owed_and_not_lost(rough, ground_make):
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    accept(ground, [user(100)])
    dead_letter(rough)
    outbox_lose(rough, ground.coupon)
    code, told = audit(rough, ground.coupon, "--grace", 0)
    assert (code, told["wrong"]) == (0, [])
    assert (told["coupons"][0]["overdue"], told["coupons"][0]["dead"]) == (1, 1)
    rough.start("worker-1")
    rough.ctl("dead", "requeue", "--all")
    wait_until(lambda: audit(rough, ground.coupon)[1]["coupons"][0]["settled"])


@pytest.mark.long
def test_what_is_overdue_cannot_be_told_without_rabbitmq(rough, ground_make):
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    accept(ground, [user(100)])
    rough.kill9("rabbitmq")
    assert wrong(rough, ground.coupon, grace=0) == [], "its message is in the outbox"
    outbox_lose(rough, ground.coupon)
    result = rough.ctl_run("audit", ground.coupon, "--grace", 0)
    assert (
        result.returncode == NO_VERDICT and "RabbitMQ cannot be queried" in result.stdout
    ), result.stdout
    assert wrong(rough, ground.coupon, grace=60) == [], "nothing is overdue"
    rough.start("rabbitmq", "worker-1")
    wait_until(lambda: audit(rough, ground.coupon)[1]["coupons"][0]["settled"])


# The outbox


def outbox_body(ground, owner, batch, coupon=None):
    receives = [[owner, 1, "key of 3"]]
    return message_text(coupon or ground.coupon, batch=batch, receives=receives)


def test_finds_what_is_wrong_in_the_outbox(rough, ground_make):
    """Without a worker, because the keeper would send the outbox."""
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    outbox = ground.key + ":outbox"
    _, owner, batch, _ = receive_parts(ground.receives[user(3)])
    other = ulid_make()
    for field, body, expected in (
        (other, outbox_body(ground, owner, batch), {"kind": "outbox_malformed"}),
        (other, outbox_body(ground, owner, other, coupon="7"), {"kind": "outbox_malformed"}),
        (other, "no message", {"kind": "outbox_malformed"}),
    ):
        ground.redis.hset(outbox, field, body)
        (finding,) = wrong(rough, ground.coupon)
        assert expected.items() <= finding.items() and finding["promise"] == "P3"
        ground.redis.hdel(outbox, field)
        assert wrong(rough, ground.coupon) == []
    rough.start("worker-1")


def test_finds_a_settled_message_that_stays_in_the_outbox(rough, ground_make, worker_make):
    """A keeper has to be there that could have sent it again, and it must be no dead letter."""
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    _, owner, batch, _ = receive_parts(ground.receives[user(3)])
    ground.redis.hset(ground.key + ":outbox", batch, outbox_body(ground, owner, batch))

    def told(resend_after_ms=200):
        result = rough.ctl_run(
            f"--resend-after-ms={resend_after_ms}", "audit", ground.coupon, "--grace", GRACE_S,
            "--json",
        )  # fmt: skip
        return json.loads(result.stdout)["wrong"]

    assert told() == [], "no keeper"
    worker = worker_make(rough, COUPON_RESEND_AFTER_MS=3600000)
    wait_until(lambda: "keeper_elected" in worker.log())
    (finding,) = told()
    assert (finding["kind"], finding["promise"], finding["user"]) == ("outbox_settled", "P3", owner)
    ground.redis.sadd(ground.key + ":dead", batch)
    assert told() == [], "an operator's"
    worker.end()
    ground.redis.delete(ground.key + ":dead")
    rough.start("worker-1")
    assert told(resend_after_ms=5000) == [], "sent again and removed while the audit waits"
    assert ground.redis.hlen(ground.key + ":outbox") == 0


# Stores that cannot be compared


def test_rows_of_an_unknown_coupon(rough, ground_make):
    ground = ground_make(1, on=rough)
    batch, unknown = ulid_make(), "987654321000"
    undo = ground.row_add(user(0), 1, batch, 2, coupon=unknown)
    try:
        for arguments in ((unknown,), ("--all",)):
            # Receives of other tests that are in flight are not searched for progress.
            patience = ("--grace", 600, "--stalled-after-s", 86400)
            code, told = audit(rough, *arguments, *patience, timeout=280)
            assert code == FAILED
            check_told(
                [finding for finding in told["wrong"] if finding["coupon"] == unknown],
                {
                    "kind": "coupon_unknown",
                    "user": user(0),
                    "slot": 1,
                    "receive": f"{unknown}.{user(0)}.{batch}.2",
                },
                unknown,
            )
    finally:
        undo()
    assert rough.ctl_run("audit", unknown).returncode == 9


@pytest.mark.parametrize("service", ["DATABASE_URL", "REDIS_URL"])
def test_no_verdict_without_a_service(rough, ground_make, service):
    ground = ground_make(1, on=rough)
    flag = {
        "DATABASE_URL": "--database-url=postgresql://u@127.0.0.1:1/d",
        "REDIS_URL": "--redis-url=redis://127.0.0.1:1/0",
    }[service]
    result = rough.ctl_run(flag, "audit", ground.coupon)
    assert result.returncode == NO_VERDICT and service in result.stderr, result.stderr
