"""The backlog while a service is unreachable: it is bounded, and all of it is processed when the
service is back."""

import contextlib
import time

import pika
import pytest

from history import DEAD_QUEUE, QUEUE, History, queue_length
from process import no_descriptors
from relay import Relay, port_of
from stack import wait_until

ALL, EACH = 10, 6  # unconfirmed receives of one process, and of one coupon
POLICY = "no-more"
CONSUMER_CONNECTED = "event=amqp_connected connection=consumer"
CONSUMERS = 2  # of receives, and of what orders do


@contextlib.contextmanager
def rabbitmq_unreachable(stack, gateway, relay, publish):
    """What is published is lost on the way, and no connection can be opened."""
    relay.mode("lose")
    yield
    relay.heal()


@contextlib.contextmanager
def rabbitmq_blocked(stack, gateway, relay, publish):
    """A resource alarm: the broker notifies a connection when it publishes, and stops reading from
    it."""
    stack.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        publish()
        wait_until(
            lambda: gateway.trouble("rabbitmq") == "blocked by a resource alarm of the broker"
        )
        yield
    finally:
        stack.rabbitmqctl("set_vm_memory_high_watermark", "0.4")


@contextlib.contextmanager
def rabbitmq_refusing(stack, gateway, relay, publish):
    """The queue has a maximum length, and has reached it."""
    stack.stop("worker-1")
    publish()
    wait_until(lambda: queue_length(stack) >= 1)
    arguments = '{"max-length":1,"overflow":"reject-publish"}'
    stack.policy_set(POLICY, f"^{QUEUE}$", arguments)
    try:
        before = gateway.metrics()["couponmq_messages_failed_total"]
        while gateway.metrics()["couponmq_messages_failed_total"] == before:
            publish()  # the policy takes effect with a delay
        yield
    finally:
        stack.policy_clear(POLICY)
        stack.start("worker-1")


@pytest.fixture
def relay(rough):
    with Relay(port_of(rough.env["AMQP_URL"])) as one:
        yield one


def test_no_descriptor_is_left_for_rabbitmq(rough, relay, gateway_make):
    """It is tried again, and no request is lost."""
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough, AMQP_URL=relay.url(rough.env_of("gateway")["AMQP_URL"]))
    with gateway.client() as client:
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["code"] in (0, 4))
        with no_descriptors(gateway.child.pid):
            relay.cut()
            wait_until(lambda: "cannot be opened: Too many open files" in gateway.log())
        wait_until(lambda: client.issue(coupon, 2, key="k", ack="issued")["code"] == 0)


@pytest.mark.parametrize("trouble", [rabbitmq_unreachable, rabbitmq_blocked, rabbitmq_refusing])
@pytest.mark.long
def test_so_many_are_accepted_while_rabbitmq_takes_nothing(rough, relay, gateway_make, trouble):
    coupon, other, first = (History(rough, rough.coupon_make(100), 100) for _ in range(3))
    gateway = gateway_make(
        rough,
        AMQP_URL=relay.url(rough.env_of("gateway")["AMQP_URL"]),
        COUPON_UNCONFIRMED_MAX=ALL,
        COUPON_UNCONFIRMED_PER_COUPON_MAX=EACH,
    )
    users = iter(range(1, 90))

    def unconfirmed():
        return gateway.metrics()["couponmq_receives_unconfirmed"]

    with gateway.client() as client:
        with trouble(rough, gateway, relay, lambda: first.ask(client, next(users))):
            codes = [coupon.ask(client, user)["code"] for user in range(1, 10)]
            assert codes == [0] * EACH + [20] * 3
            codes = [other.ask(client, user)["code"] for user in range(1, 7)]
            room = codes.count(0)
            assert codes == [0] * room + [20] * (6 - room) and 1 <= room <= ALL - EACH
            wait_until(lambda: unconfirmed() == ALL)
            assert "are not confirmed" in gateway.trouble("gateway"), "others may issue"
            assert [coupon.ask(client, user)["code"] for user in (10, 11)] == [20] * 2
        wait_until(lambda: unconfirmed() == 0)
        assert coupon.ask(client, 20)["code"] == 0
    assert coupon.judge() == EACH + 1, "each once, and busy requests took no slot"
    assert other.judge() == room
    first.judge()


@pytest.mark.long
def test_dead_letters_wait_for_a_queue_that_refuses_them(rough):
    """RabbitMQ does not notify a channel when a policy is removed: only a new connection can
    publish."""
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.queue_purge(DEAD_QUEUE)
        arguments = '{"max-length":1,"overflow":"reject-publish"}'
        rough.policy_set(POLICY, f"^{DEAD_QUEUE}$", arguments)
        try:
            sent, told = 0, rough.log("worker-1").count("dead_letter_failed")
            while (
                rough.log("worker-1").count("dead_letter_failed") == told
            ):  # the policy takes effect a moment later
                assert sent < 500
                channel.basic_publish("coupon.topic", "coupon.receive", b"unreadable")
                connection.sleep(0.05)
                sent += 1
            assert queue_length(rough, DEAD_QUEUE) < sent
        finally:
            rough.policy_clear(POLICY)
        wait_until(lambda: queue_length(rough, DEAD_QUEUE) >= sent)
        channel.queue_purge(DEAD_QUEUE)


# Workers


def test_so_many_messages_are_accepted_while_nothing_settles_them(rough, gateway_make):
    """Although RabbitMQ has confirmed them. A known key, the limit and another coupon are answered
    as ever."""
    coupon, other = (History(rough, rough.coupon_make(100), 100) for _ in range(2))
    gateway = gateway_make(rough, COUPON_UNSETTLED_MAX=EACH)
    with gateway.client() as client:
        wait_until(lambda: client.call("coupon", coupon=other.coupon)["code"] == 0)
        rough.stop("worker-1")
        first = coupon.ask(client, 1, key="k", ack="queued")
        codes = [coupon.ask(client, user, ack="queued")["code"] for user in range(2, 9)]
        assert codes == [0] * (EACH - 1) + [20] * (8 - EACH)
        wait_until(lambda: gateway.metrics()["couponmq_receives_unconfirmed"] == 0)
        assert coupon.ask(client, 20, key="k")["status"] == "busy"
        assert coupon.ask(client, 1, key="k")["receive"] == first["receive"]
        assert coupon.ask(client, 1)["status"] == "limit_reached"
        assert other.ask(client, 1)["code"] == 0
        rough.start("worker-1")
        wait_until(lambda: coupon.ask(client, 20, key="k")["code"] == 0)
    assert coupon.judge() == EACH + 1, "each once, and busy requests took no slot"
    assert other.judge() == 1


# PostgreSQL


@contextlib.contextmanager
def rabbitmq_set(stack, **settings):
    """Settings for connections and channels that are opened from now on."""
    old = ", ".join(f"{{{name}, application:get_env(rabbit, {name})}}" for name in settings)
    new = "".join(
        f"application:set_env(rabbit, {name}, {value}), " for name, value in settings.items()
    )
    before = stack.rabbitmq_eval(f"Old = [{old}], {new}Old")
    try:
        yield
    finally:
        stack.rabbitmq_eval(
            "[case V of undefined -> application:unset_env(rabbit, N);"
            f" {{ok, W}} -> application:set_env(rabbit, N, W) end || {{N, V}} <- {before}]"
        )


@pytest.fixture
def history(rough):
    return History(rough, rough.coupon_make(1000), 1000)


def held_without_postgresql(rough, history, worker_make):
    """A worker that holds 20 messages and cannot settle them."""
    rough.stop("worker-1")
    worker = worker_make(rough)
    rough.stop("postgres")
    with rough.client() as client:
        for user in range(1, 21):
            assert history.ask(client, user)["code"] == 0
    wait_until(lambda: queue_length(rough) == 0)
    return worker


@pytest.mark.long
def test_without_postgresql_a_worker_holds_what_it_has_and_keeps_its_heartbeats(
    rough, history, worker_make
):
    with rabbitmq_set(rough, heartbeat=2):
        worker = held_without_postgresql(rough, history, worker_make)
        until = time.monotonic() + 5  # the broker closes the connection after twice the heartbeat
        while time.monotonic() < until:
            assert "amqp_lost" not in worker.log()
            assert queue_length(rough) == 0, "they are not given back"
        rough.start("postgres")
        assert history.judge() == 20
        assert worker.log().count(CONSUMER_CONNECTED) == CONSUMERS


def test_without_postgresql_for_longer_than_the_brokers_patience(rough, history, worker_make):
    """The broker closes the channel of a consumer that does not ack in time: it reconnects and gets
    them again."""
    with rabbitmq_set(rough, consumer_timeout=800, channel_tick_interval=200):
        worker = held_without_postgresql(rough, history, worker_make)
        wait_until(lambda: worker.log().count(CONSUMER_CONNECTED) >= CONSUMERS + 2)
        assert 'connection=consumer why="the broker closed the channel"' in worker.log()
        rough.start("postgres")
        assert history.judge() == 20


# A publisher that is stuck


@pytest.mark.long
def test_a_publisher_that_is_stuck_in_a_write_is_cut_off(rough, rough_pg, gateway_make):
    """By the kernel (TCP_USER_TIMEOUT) or by the watchdog, whichever comes first."""
    coupon = rough.coupon_make(200_000)
    proxy = Relay(pika.URLParameters(rough.env["AMQP_URL"]).port, buffer_bytes=4096)
    try:
        gateway = gateway_make(rough, AMQP_URL=proxy.url(rough.env_of("gateway")["AMQP_URL"]))
        proxy.hold()
        issued = 0
        with gateway.client(timeout=60) as client:
            while issued < 50_000:
                lines = [
                    {"op": "issue", "coupon": coupon, "user": str(issued + n)}
                    for n in range(1, 257)
                ]
                assert {reply["code"] for reply in client.pipeline(lines)} == {0}
                issued += 256
            assert gateway.metrics()["couponmq_amqp_up"] == 1
            wait_until(lambda: gateway.metrics()["couponmq_amqp_up"] == 0)
            assert "event=amqp_lost" in gateway.log()
            proxy.cut()
            wait_until(lambda: gateway.metrics()["couponmq_receives_unconfirmed"] == 0)
    finally:
        proxy.close()
    wait_until(lambda: queue_length(rough) == 0)
    count = "SELECT issued_num FROM coupon WHERE id = %s"
    wait_until(lambda: rough_pg.execute(count, (coupon,)).fetchone() == (issued,))
