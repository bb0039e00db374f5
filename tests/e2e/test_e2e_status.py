"""`final`: a receive is only reported as absent with `final` when it cannot appear later."""

import contextlib
import os
import signal

import psycopg
import pytest

from stack import process_gone, process_tree, wait_until

NOBODY = "01JD8Z6Q4T1M0V5K9X3B7C2N8R"


@contextlib.contextmanager
def settling_held(stack):
    """Nothing is settled: user_coupon is locked against writing, not against reading."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("LOCK TABLE user_coupon IN EXCLUSIVE MODE")
        yield
        holder.rollback()


def is_final(client, coupon, user):
    """The answer of both forms of `status` for a user without a receive; they must agree."""
    of_user = client.call("status", coupon=coupon, user=str(user))
    assert (of_user["code"], of_user.get("receives")) == (0, []), of_user
    of_receive = client.call("status", receive=f"{coupon}.{user}.{NOBODY}.0")
    assert (of_receive["code"], of_receive["status"]) == (1, "not_found")
    assert of_user["final"] is of_receive["final"]
    return of_user["final"]


@pytest.fixture
def client(rough):
    with rough.client() as one:
        yield one


def test_none_is_not_final_after_redis_was_wiped_with_receives_in_flight(
    rough, rough_redis, client
):
    coupon = rough.coupon_make(10)
    assert client.issue(coupon, 1, ack="issued")["status"] == "issued"
    assert is_final(client, coupon, 42)
    with settling_held(rough):
        receive = client.issue(coupon, 42, ack="queued")["receive"]  # RabbitMQ has it
        rough_redis.flushall()
        for _ in range(10):
            reply = client.call("status", receive=receive)
            assert reply["status"] == "accepted" or (
                reply["status"] == "not_found" and reply["final"] is False
            ), reply
            assert client.call("status", coupon=coupon, user="42").get("final") in (None, False)
            assert client.call("status", coupon=coupon, user="43")["final"] is False
    wait_until(lambda: client.call("status", receive=receive)["status"] == "issued")


def test_none_is_not_final_before_a_restarted_redis_is_verified(rough, client):
    coupon = rough.coupon_make(10)
    wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
    assert client.issue(coupon, 1, ack="issued")["status"] == "issued"
    rough.stop("worker-1")
    rough.kill9("redis")
    rough.start("redis")
    wait_until(lambda: client.call("status", coupon=coupon, user="43")["code"] == 0)
    assert not is_final(client, coupon, 43)
    rough.start("worker-1")
    wait_until(lambda: client.call("status", coupon=coupon, user="43")["final"])
    assert is_final(client, coupon, 43)


def test_none_is_not_final_while_slots_are_reserved(make_coupon, redis_client, gateway):
    coupon = make_coupon(10)
    key = f"coupon:{{{coupon}}}"
    redis_client.hset(key, mapping={"stock": 9, "reserved": 1})
    assert not is_final(gateway, coupon, 42)
    redis_client.hset(key, mapping={"stock": 10, "reserved": 0})
    assert is_final(gateway, coupon, 42)


def test_none_is_not_final_where_the_records_are_malformed(make_coupon, redis_client, gateway):
    coupon = make_coupon(10)
    for key in ("k\x7f", "k" * 256):
        redis_client.hset(f"coupon:{{{coupon}}}:users", "42", f"1:{NOBODY}:1:{key}")
        assert not is_final(gateway, coupon, 42)
        assert is_final(gateway, coupon, 43)
    redis_client.hdel(f"coupon:{{{coupon}}}:users", "42")
    assert is_final(gateway, coupon, 42)


def test_none_is_not_final_where_redis_forgot_what_the_gateway_has_seen(
    make_coupon, redis_client, gateway
):
    coupon = make_coupon(10)
    key = f"coupon:{{{coupon}}}"
    assert gateway.issue(coupon, 1, ack="issued")["code"] == 0
    wait_until(lambda: is_final(gateway, coupon, 42))  # RabbitMQ has confirmed the receive
    redis_client.hset(key, "seq", 0)
    assert not is_final(gateway, coupon, 42)
    redis_client.hset(key, "seq", 1)
    wait_until(lambda: is_final(gateway, coupon, 42))  # the keeper may have seen it meanwhile


def test_none_is_final_where_the_coupon_was_never_in_redis(rough, client):
    rough.stop("worker-1")
    draft = rough.coupon_make(10, publish=False)
    published = rough.coupon_make(10, publish=False)
    rough.ctl("publish", published, "--wait-s", 0)
    for coupon in (draft, published, "987654321"):
        assert is_final(client, coupon, 42)


def test_none_is_final_of_a_settled_campaign_that_redis_no_longer_has(
    rough, rough_redis, rough_pg, client
):
    coupon = rough.coupon_make(10)
    issued = client.issue(coupon, 1, ack="issued")["receive"]
    rough.ctl("close", coupon)
    rough.stop("worker-1")  # the keeper would rebuild it
    rough_redis.delete(*rough_redis.keys(f"coupon:{{{coupon}}}*"))
    for settled in (False, True):
        rough_pg.execute(
            "UPDATE coupon SET settled_at = CASE WHEN %s THEN now() END WHERE id = %s",
            (settled, coupon),
        )
        assert is_final(client, coupon, 42) is settled
    assert client.call("status", receive=issued)["status"] == "issued"


# --processes


@contextlib.contextmanager
def clients_of_each(gateway):
    """A connection to each of its two processes: while one is frozen, the other accepts it."""
    first, second = (pid for pid in process_tree(gateway.child.pid)[1:] if not process_gone(pid))
    clients = []
    for other in (second, first):
        os.kill(other, signal.SIGSTOP)
        clients.append(gateway.client())
        assert clients[-1].call("ping")["code"] == 0
        os.kill(other, signal.SIGCONT)
    try:
        yield clients
    finally:
        for one in clients:
            one.close()


def test_none_is_not_final_while_another_process_has_it_in_hand_or_lost_it(rough, gateway_make):
    coupon, other = rough.coupon_make(10), rough.coupon_make(10)
    gateway = gateway_make(rough, COUPON_PROCESSES=2, COUPON_CALL_TIMEOUT_MS=1000)
    wait_until(
        lambda: gateway.metrics()["couponmq_redis_up"]
        == gateway.metrics()["couponmq_database_up"]
        == 2
    )
    with clients_of_each(gateway) as (here, there):
        wait_until(lambda: here.call("status", coupon=coupon, user="42").get("final"))
        assert all(is_final(client, one, 42) for client in (here, there) for one in (coupon, other))
        rough.sigstop("redis")
        here.send_line({"op": "issue", "coupon": coupon, "user": "1"})
        there.send_line({"op": "status", "coupon": coupon, "user": "42"})
        assert here.read_reply()["status"] == "unknown"
        there.read_reply()
        rough.sigcont("redis")
        wait_until(lambda: there.call("status", coupon=coupon, user="42")["code"] == 0)
        assert not is_final(
            there, coupon, 42
        ), "the other process has a call whose outcome is unknown"
        assert not is_final(here, coupon, 42)
        assert is_final(there, other, 42), "of that coupon only"


def test_none_is_not_final_after_a_process_died(rough, gateway_make):
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough, COUPON_PROCESSES=2)
    wait_until(
        lambda: gateway.metrics()["couponmq_redis_up"]
        == gateway.metrics()["couponmq_database_up"]
        == 2
    )
    with gateway.client() as one:
        # Both stores are compared first.
        wait_until(lambda: one.call("status", coupon=coupon, user="42")["code"] == 0)
        assert is_final(one, coupon, 42)
    with clients_of_each(gateway) as (_, there):
        victim = next(pid for pid in process_tree(gateway.child.pid)[1:] if not process_gone(pid))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: there.call("status", coupon=coupon, user="42").get("final") is False)
