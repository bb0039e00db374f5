"""An operator destroys data that no other store held: the loss is counted, its receives stay owed,
and no user gets more than allowed."""

import itertools
import json
import re
import shutil
import subprocess

import pika
import pytest
import redis
import requests

from history import QUEUE, queue_length
from process import metrics_read
from stack import wait_until

LIMIT_REACHED = 4


@pytest.fixture
def lost_stack(stack_make):
    own = stack_make()
    own.services()
    own.start("gateway", "worker-1")
    yield own
    own.down()


def in_flight(stack, coupon):
    return int(re.search(r"^  in flight +(\d+)", stack.ctl("show", coupon), re.MULTILINE)[1])


def assert_owed(stack, coupon, replies):
    """Accepted, and without an outcome: each holds its slot, so that the stock is not issued
    again."""
    assert in_flight(stack, coupon) == len(replies)
    with stack.client() as client:
        for reply in replies:
            assert client.call("status", receive=reply["receive"])["status"] == "accepted"
            assert client.issue(coupon, reply["receive"].split(".")[1])["code"] == LIMIT_REACHED


def test_a_queue_and_the_outbox_purged_after_the_confirms(rough, rough_redis):
    coupon = rough.coupon_make(10)
    with rough.client() as client:
        assert (
            wait_until(lambda: client.issue(coupon, 1, key="k", ack="issued"))["status"] == "issued"
        )
        rough.stop("worker-1")
        lost = [client.issue(coupon, user, ack="queued") for user in range(2, 7)]
        assert {reply["status"] for reply in lost} == {"queued"}
        wait_until(lambda: queue_length(rough) == 5)
        with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
            connection.channel().queue_purge(QUEUE)
        rough_redis.delete(f"coupon:{{{coupon}}}:outbox")
        rough.start("worker-1")
        assert (
            client.issue(coupon, 7, ack="issued")["status"] == "issued"
        ), "later requests are not delayed"
    assert_owed(rough, coupon, lost)


def put_back(stack, data, backup):
    """Replaces the data of PostgreSQL, and waits until that is noticed."""
    stack.stop("postgres")
    shutil.rmtree(data)
    backup.rename(data)
    stack.start("postgres")
    wait_until(lambda: stack.log_has("worker-1", "event=postgresql_behind"))


def states(stack):
    """How the gateway and the worker say that PostgreSQL is."""
    return [
        requests.get(url, timeout=60).json()["postgresql"]
        for url in (stack.http("/readyz"), stack.worker_http(1, "/readyz"))
    ]


@pytest.mark.long
def test_postgresql_put_back_to_an_earlier_moment(lost_stack):
    stack = lost_stack
    coupon, users = stack.coupon_make(1000), itertools.count(100)
    data = (stack.run_dir / "postgres").resolve() / "data"
    backup = data.with_name("backup")
    with stack.client() as client:
        wait_until(lambda: client.issue(coupon, 1, key="k", ack="issued")["code"] == 0)
        stack.stop("postgres")
        subprocess.run(["cp", "-a", data, backup], check=True)
        stack.start("postgres")
        lost = [client.issue(coupon, user, ack="issued") for user in (2, 3)]
        assert {reply["status"] for reply in lost} <= {"issued", "unknown"}
        wait_until(lambda: in_flight(stack, coupon) == 0)
        put_back(stack, data, backup)
        # Until it is noticed, some may be accepted.
        wait_until(lambda: client.issue(coupon, next(users))["status"] == "unavailable")
        wait_until(lambda: all("put back" in state for state in states(stack)))
        assert json.loads(stack.ctl("show", coupon, "--json"))["behind"] > 0
        refused = stack.ctl_run("create", "--name", "another", "--total", 1)
        assert refused.returncode == 10 and "couponctl recover" in refused.stderr
        stack.ctl("recover", "--all")
        wait_until(lambda: states(stack) == ["ok", "ok"])
        for reply in lost:
            told = client.call("status", receive=reply["receive"])
            assert (told["status"], told["slot"]) == ("issued", reply["slot"])
        wait_until(lambda: client.issue(coupon, 4, key="k", ack="issued")["status"] == "issued")
        assert client.issue(coupon, 1, key="k")["code"] == 0, "the same receive again"
    wait_until(lambda: states(stack) == ["ok", "ok"])


def test_nothing_is_final_before_postgresql_was_compared(rough, rough_owner, gateway_make):
    """The comparison is held open over a new connection, on which everything else is answered."""
    gateway = gateway_make(rough, COUPON_CALL_TIMEOUT_MS=400, COUPON_ISSUED_TIMEOUT_MS=1000)
    coupon, absent = rough.coupon_make(10), 700000005000
    with gateway.client() as client:
        had = wait_until(lambda: client.issue(coupon, 1, key="k", ack="issued"))
        wait_until(lambda: client.call("status", receive=had["receive"])["status"] == "issued")
        with rough_owner.transaction():
            rough_owner.execute("LOCK TABLE change_count IN ACCESS EXCLUSIVE MODE")
            rough_owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'coupon-gateway%'"
            )
            for request in (
                {"op": "status", "receive": had["receive"]},
                {"op": "status", "coupon": coupon, "user": "1"},
            ):
                wait_until(lambda: "put back" in unavailable(client, **request))  # noqa: B023
            for request in (
                {"op": "coupons", "user": "1"},
                {"op": "coupon", "coupon": absent},
                {"op": "issue", "coupon": absent, "user": "1"},
            ):
                unavailable(client, **request)
            known = client.issue(coupon, 1, key="k", ack="issued")
            assert (known["status"], known["receive"]) == ("unknown", had["receive"])
        wait_until(lambda: client.call("status", receive=had["receive"])["status"] == "issued")
        assert wait_until(lambda: client.call("coupons", user="1").get("coupons"))


def unavailable(client, op, **members):
    """The message of the reply, which is that."""
    reply = client.call(op, **members)
    assert reply["status"] == "unavailable", reply
    return reply.get("message", "")


@pytest.mark.long
def test_a_number_that_is_copied_later_is_noticed(lost_stack):
    """A worker copies the number of a COMMIT to Redis when a gateway has compared already."""
    stack = lost_stack
    coupon = stack.coupon_make(10)
    with stack.client() as client:
        had = wait_until(lambda: client.issue(coupon, 1, key="k", ack="issued"))
        wait_until(lambda: states(stack) == ["ok", "ok"])
        with redis.Redis.from_url(stack.env["REDIS_URL"]) as cache:
            cache.hincrby("couponmq:changes", "0", 1000)
        wait_until(lambda: all("put back" in state for state in states(stack)))
        assert "put back" in unavailable(client, "status", receive=had["receive"])
        stack.ctl("recover", "--all")
        wait_until(lambda: states(stack) == ["ok", "ok"])
        wait_until(lambda: client.call("status", receive=had["receive"])["status"] == "issued")


@pytest.mark.long
def test_what_arrives_while_postgresql_is_behind_is_settled_after_the_recovery(lost_stack):
    """Accepted by Redis before it was noticed; nothing is settled or acked meanwhile."""
    stack = lost_stack
    coupon = stack.coupon_make(10)
    data = (stack.run_dir / "postgres").resolve() / "data"
    backup = data.with_name("backup")
    with stack.client() as client:
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["code"] == 0)
        stack.stop("postgres")
        subprocess.run(["cp", "-a", data, backup], check=True)
        stack.start("postgres")
        assert wait_until(lambda: client.issue(coupon, 2, ack="issued")["status"] == "issued")
        stack.stop("worker-1")
        late = client.issue(coupon, 3, ack="queued")
        assert late["status"] == "queued"
        stack.stop("postgres")
        shutil.rmtree(data)
        backup.rename(data)
        stack.start("postgres", "worker-1")
        wait_until(lambda: stack.log_has("worker-1", "event=postgresql_behind"))
        wait_until(lambda: held(stack) == 1)
        assert [held(stack) for _ in range(50)] == [1] * 50, "settled in an instant, if at all"
        stack.ctl("recover", "--all")
        wait_until(lambda: client.call("status", receive=late["receive"])["status"] == "issued")


def held(stack):
    """The messages that the worker holds unacked."""
    return metrics_read(stack.worker_http(1, "/metrics"))["couponmq_worker_held"]
