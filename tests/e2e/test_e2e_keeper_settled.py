"""A closed coupon is settled once nothing of it is in flight, and then its keys expire."""

import pytest

from coupon_seen import Seen, rounds_pass
from sent import query_sent
from stack import wait_until

ENDED = 3
KEEP_S = 2
POISON = "ALTER TABLE user_coupon ADD CONSTRAINT poison CHECK (user_id <> '666') NOT VALID"
NO_POISON = "ALTER TABLE user_coupon DROP CONSTRAINT poison"


@pytest.fixture
def quick(rough, worker_make):
    """The only worker, which keeps closed coupons for KEEP_S."""
    rough.stop("worker-1")
    for number in range(2):  # the first settles older coupons, of which it does not log every one
        worker = worker_make(rough, COUPON_KEEP_CLOSED_S=KEEP_S)
        wait_until(lambda worker=worker: "keeper_elected" in worker.log())
        rounds_pass(worker)
        if number == 0:
            worker.terminate()
    return worker


def test_a_closed_coupon_is_settled_and_its_keys_expire(rough, rough_coupon, quick):
    coupon = rough_coupon(total=5, limit=2)
    with rough.client() as client:
        receive = client.issue(coupon.coupon, 1, key="k", ack="issued")["receive"]
        client.issue(coupon.coupon, 2, ack="issued")
        rough.ctl("close", coupon.coupon)
        wait_until(coupon.is_settled)
        assert {coupon.redis.pttl(key) > 0 for key in coupon.keys()} == {True}
        again = client.issue(coupon.coupon, 1, key="k", ack="issued")
        assert again["receive"] == receive, "while its keys are there"
        wait_until(lambda: not coupon.keys(), timeout=KEEP_S + 5)
        assert (
            client.issue(coupon.coupon, 1)["code"]
            == client.issue(coupon.coupon, 3, key="new")["code"]
            == ENDED
        )
        assert client.call("coupon", coupon=coupon.coupon)["code"] == ENDED
        told = client.call("status", receive=receive)
        assert (told["status"], told["slot"]) == ("issued", 1)
        told = client.call("status", coupon=coupon.coupon, user="1")
        assert [(one["receive"], one["state"]) for one in told["receives"]] == [(receive, "issued")]
    told = f"event=coupon_settled coupon={coupon.coupon} issued=2"
    wait_until(lambda: quick.log().count(told) == 1)
    assert "coupon_missing" not in quick.log()
    rounds_pass(quick, 3)
    assert not coupon.redis.exists(coupon.key), "it is not loaded again"
    # Gateways report again what they have seen.
    assert {coupon.redis.pttl(key) > 0 for key in coupon.keys()} <= {True}


def test_one_that_was_never_loaded_is_settled(rough, rough_redis, rough_pg, quick):
    quick.signal(19)
    coupon = Seen(rough.coupon_make(5), rough_redis, rough_pg)
    rough.ctl("close", coupon.coupon)
    quick.signal(18)
    wait_until(coupon.is_settled)
    assert not coupon.keys()


def test_not_settled_while_a_message_is_in_the_queue_or_dead(
    rough, rough_coupon, rough_owner, quick
):
    coupon = rough_coupon(total=5)
    rounds_pass(quick)
    before = quick.metrics()["couponmq_keeper_receives_in_flight"]  # of coupons of other tests
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
        rough_owner.execute(POISON)
        try:
            assert client.issue(coupon.coupon, 666)["code"] == 0
            rough.ctl("close", coupon.coupon)
            wait_until(lambda: "event=dead_letter " in quick.log())
            wait_until(
                lambda: coupon.field("status") == "closed"
                and coupon.redis.scard(coupon.key + ":dead") == 1
            )
            rounds_pass(quick)
            assert coupon.row("settled_at", "expires_at") == (None, None)
            assert quick.metrics()["couponmq_keeper_receives_in_flight"] == before + 1
        finally:
            rough_owner.execute(NO_POISON)
        rough.ctl("dead", "requeue", "--all")
    wait_until(coupon.is_settled)


def test_not_settled_before_what_was_rejected_is_given_back(rough, rough_coupon, quick):
    coupon = rough_coupon(total=5)
    coupon.pg.execute("UPDATE coupon SET total_num = 0 WHERE id = %s", (coupon.coupon,))
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["reason"] == "out_of_stock"
    freed = "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND freed_at IS NOT NULL"
    wait_until(lambda: coupon.pg.execute(freed, (coupon.coupon,)).fetchone() == (1,))
    wait_until(lambda: coupon.field("generation") == "2")  # the reply for an absent field
    quick.signal(19)
    rough.ctl("close", coupon.coupon)
    coupon.redis.set(coupon.key + ":users", "of a wrong type: nothing can be given back")
    coupon.pg.execute(
        "UPDATE receive_rejected SET freed_at = NULL WHERE coupon_id = %s", (coupon.coupon,)
    )
    quick.signal(18)
    rounds_pass(quick)
    assert quick.metrics()["couponmq_keeper_coupons_unfreed"] == 1
    assert coupon.row("settled_at") == (None,)
    coupon.redis.delete(coupon.key + ":users")
    wait_until(coupon.is_settled)


def test_a_late_message_unsettles(rough, rough_coupon, quick):
    """A loss that was not detected: Redis has its earlier counts again."""
    coupon = rough_coupon(total=5)
    with rough.client() as client:
        quick.signal(19)
        assert client.issue(coupon.coupon, 1, ack="queued")["status"] == "queued"
        coupon.redis.hset(coupon.key, mapping={"seq": 0, "stock": 5})
        coupon.redis.delete(coupon.key + ":users", coupon.key + ":outbox")
        coupon.pg.execute(
            "UPDATE coupon SET status = 'closed', version = version + 1, settled_at = now(),"
            " expires_at = now() WHERE id = %s",
            (coupon.coupon,),
        )
        quick.signal(18)
        wait_until(lambda: coupon.row("issued_num") == (1,))
    assert coupon.row("settled_at") == (None,)
    coupon.redis.hset(coupon.key, mapping={"seq": 1, "stock": 4})
    wait_until(coupon.is_settled)


def test_one_that_expires_is_verified_on_another_redis_process(rough, rough_coupon):
    coupon = rough_coupon()
    with rough.client() as client:
        receive = client.issue(coupon.coupon, 1, key="k", ack="issued")["receive"]
        rough.ctl("close", coupon.coupon)
        wait_until(coupon.is_settled)
        rough.restart("redis")
        wait_until(lambda: client.issue(coupon.coupon, 2)["code"] == ENDED)
        assert client.issue(coupon.coupon, 1, key="k")["receive"] == receive
    assert coupon.redis.pttl(coupon.key) > 0


def test_settled_is_told_once_when_the_expiry_was_not_recorded(rough, rough_coupon, keeper_behind):
    """A further outcome takes the mark away before the expiry is recorded."""
    coupon = rough_coupon()
    worker, gate = keeper_behind("DATABASE_URL")
    gate.trap(query_sent("coupon_expires_set"))
    rough.ctl("close", coupon.coupon)
    wait_until(gate.trapped_num)
    coupon.pg.execute("UPDATE coupon SET settled_at = NULL WHERE id = %s", (coupon.coupon,))
    gate.let_go()
    wait_until(coupon.is_settled)
    wait_until(lambda: f"event=coupon_settled coupon={coupon.coupon} " in worker.log())
    assert worker.log().count(f"event=coupon_settled coupon={coupon.coupon} ") == 1
