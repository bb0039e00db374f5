"""An operator destroys data that only one store held: the loss is counted, its receives stay owed,
and no user gets more than allowed."""

import re
import shutil
import subprocess

import pika
import pytest

from history import QUEUE, queue_length
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


def test_a_queue_purged_after_its_confirms(rough):
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
        rough.start("worker-1")
        assert (
            client.issue(coupon, 7, ack="issued")["status"] == "issued"
        ), "later requests are not delayed"
    assert_owed(rough, coupon, lost)


def test_postgresql_restored_to_an_earlier_moment(lost_stack):
    stack = lost_stack
    coupon = stack.coupon_make(10)
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
        stack.stop("postgres")
        shutil.rmtree(data)
        backup.rename(data)
        stack.start("postgres")
        wait_until(
            lambda: client.issue(coupon, 4, key="k", ack="issued")["status"] == "issued", timeout=20
        )
    assert_owed(stack, coupon, lost)
