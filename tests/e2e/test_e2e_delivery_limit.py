"""RabbitMQ drops a message that was delivered more often than the limit of its queue allows, and
AMQP does not report a limit that a policy sets: workers keep the count low."""

import contextlib

import pika
import psycopg
import pytest

from history import DEAD_QUEUE, PARKED_QUEUE, QUEUE, queue_length
from relay import Relay, port_of
from stack import wait_until

RECEIVES = 20
LIMIT = 10
RESCUED_FROM = 8


@contextlib.contextmanager
def delivery_limit(stack):
    stack.policy_set("limit", "^coupon[.]", f'{{"delivery-limit":{LIMIT}}}')
    try:
        yield
    finally:
        stack.policy_clear("limit")


def take_and_return(stack, queue, messages, rounds):
    """As a consumer does that dies with all of them, so often."""
    for _ in range(rounds):
        with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
            channel = connection.channel()
            for _ in range(messages):
                method, _properties, _body = channel.basic_get(queue)
                assert method, f"{queue} has lost messages"
        wait_until(lambda: queue_length(stack, queue) == messages)


def accept(stack, coupon):
    with stack.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        for user in range(1, RECEIVES + 1):
            assert client.issue(coupon, user, ack="queued")["code"] == 0


def issued_n(pg, coupon):
    query = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
    return pg.execute(query, (coupon,)).fetchone()[0]


def messages_move(stack, source, target):
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(RECEIVES):
            method, properties, body = channel.basic_get(source)
            channel.basic_publish("", target, body, properties, mandatory=True)
            channel.basic_ack(method.delivery_tag)


@pytest.fixture
def relay(rough):
    with Relay(port_of(rough.env["AMQP_URL"])) as relay:
        yield relay


@pytest.mark.parametrize("queue", [QUEUE, PARKED_QUEUE])
def test_a_message_is_rescued_before_the_limit(rough, worker_make, relay, queue):
    """By a worker that has lost PostgreSQL, and had it before: otherwise it consumes nothing."""
    coupon = rough.coupon_make(100)
    with delivery_limit(rough), rough.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        rough.stop("worker-1")
        worker = worker_make(rough, AMQP_URL=relay.url(rough.env["AMQP_URL"]))
        relay.hold()  # new connections, too
        relay.reset()
        wait_until(lambda: worker.metrics()["couponmq_worker_consumer_up"] == 0)
        accept(rough, coupon)
        if queue == PARKED_QUEUE:
            messages_move(rough, QUEUE, PARKED_QUEUE)
        take_and_return(rough, queue, RECEIVES, RESCUED_FROM)
        rough.stop("postgres")
        relay.heal()
        wait_until(lambda: worker.metrics()["couponmq_worker_rescued_total"] == RECEIVES)
        line = next(line for line in worker.log().splitlines() if "event=delivered_often" in line)
        assert f"queue={queue} count={RESCUED_FROM}" in line
        worker.kill9()
        wait_until(lambda: queue_length(rough, queue) == RECEIVES)
        take_and_return(rough, queue, RECEIVES, RESCUED_FROM)  # more than the limit in all
        rough.start("postgres", "worker-1")
        with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
            wait_until(lambda: issued_n(pg, coupon) == RECEIVES)
    wait_until(lambda: rough.ctl_run("audit", coupon).returncode == 0)


def test_looking_at_dead_letters_loses_none(rough):
    """Each look is a delivery of every dead letter."""
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(3):
            properties = pika.BasicProperties(headers={"x-couponmq-reason": f"test {number}"})
            channel.basic_publish("", DEAD_QUEUE, b"{}", properties, mandatory=True)
        with delivery_limit(rough):
            for _ in range(2 * LIMIT):
                told = rough.ctl("dead", "list")
                places = [told.index(f"test {number}") for number in range(3)]
                assert places == sorted(places)
        channel.queue_purge(DEAD_QUEUE)
