"""couponctl queue move: queues that exist with other arguments are replaced while everything
runs."""

import os
import random
import subprocess

import pika
import pytest

from history import DEAD_QUEUE, PARKED_QUEUE, QUEUE, USE_QUEUE, History, queue_length
from kill import killed
from seed import SEED
from stack import wait_until

QUEUES = (QUEUE, PARKED_QUEUE, USE_QUEUE, DEAD_QUEUE)
MESSAGES = 300  # more than a round of the command
OTHER = {"x-queue-type": "quorum", "x-max-length": 10_000_000}


def amqp(stack):
    return pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"]))


@pytest.fixture
def differing(rough):
    """The queues of a stack that runs differ, as after an upgrade of the broker."""
    rough.stop("gateway", "worker-1")
    with amqp(rough) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_delete(queue)
            channel.queue_declare(queue, durable=True, arguments=OTHER)
    rough.start("gateway", "worker-1")
    wait_until(lambda: rough.log_has("worker-1", "event=queue_differs"))
    return rough


def moved(stack):
    listed = stack.queues_told()
    return "max-length" not in listed and ".moving" not in listed


def coupon_open(stack, total):
    coupon = stack.coupon_make(total)
    with stack.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
    return coupon


def test_nothing_to_do(rough):
    before = rough.queues_told()
    told = rough.ctl("queue", "move")
    assert told.count("as it should be") == 4 and rough.queues_told() == before


@pytest.mark.long
def test_under_load_and_killed_at_any_moment(differing):
    def move():
        return subprocess.Popen(
            [str(differing.build_dir / "couponctl"), "queue", "move"],
            env={**os.environ, **differing.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    history = History(differing, coupon_open(differing, 100_000), 100_000, ack="accepted")
    with history.start():
        history.wait_accepted(200)
        for _ in killed(move, random.Random(SEED), 2, 1.5):
            pass
        differing.ctl("queue", "move")
        assert moved(differing)
        history.wait_accepted(100)
    history.judge()


@pytest.mark.long
def test_what_no_worker_takes_is_moved_with_all_it_has(differing):
    """Receives, parked ones, uses and dead letters, with their headers; no worker runs. A dry run
    changes nothing."""
    before = differing.queues_told()
    told = differing.ctl("queue", "move", "--dry-run")
    assert told.count("is to be replaced") == 4 and "x-max-length" in told
    assert differing.queues_told() == before
    differing.stop("worker-1")
    headers = {"x-couponmq-reason": "unreadable: a test", "x-other": 7}
    with amqp(differing) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            for number in range(MESSAGES):
                channel.basic_publish(
                    "",
                    queue,
                    f"{queue} {number}".encode(),
                    pika.BasicProperties(delivery_mode=2, headers=headers, type="t"),
                )
        wait_until(lambda: {queue_length(differing, queue) for queue in QUEUES} == {MESSAGES})
        differing.ctl("queue", "move")
        assert moved(differing)
        found = []
        for queue in QUEUES:
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if not method:
                    break
                found.append(body.decode())
                assert headers.items() <= properties.headers.items() and properties.type == "t"
        wanted = [f"{queue} {number}" for queue in QUEUES for number in range(MESSAGES)]
        assert sorted(found) == sorted(wanted)


@pytest.mark.long
def test_uses_meanwhile(differing):
    """They wait in the helper, and are executed once it is moved back: none is lost, or left."""
    coupon = coupon_open(differing, 1000)
    with differing.client() as client:
        receives = [client.issue(coupon, user, ack="issued")["receive"] for user in range(1, 101)]
        move = subprocess.Popen(
            [differing.build_dir / "couponctl", "queue", "move"],
            env={**os.environ, **differing.env},
        )
        moving = []

        def used(receive):
            moving.append(move.poll() is None)
            asked = {"receive": receive, "order": receive[-64:], "key": receive}
            return client.call("use", **asked)["code"] == 0

        for receive in receives:
            wait_until(lambda: used(receive))
        assert any(moving) and move.wait(timeout=120) == 0
    assert moved(differing)
    wait_until(lambda: queue_length(differing, USE_QUEUE) == 0)


def test_after_a_death_between_deletion_and_declaration(rough):
    """A dry run says that a move is to be finished, and the next run finishes it."""
    rough.stop("gateway", "worker-1")
    with amqp(rough) as connection:
        channel = connection.channel()
        channel.queue_delete(DEAD_QUEUE)
        channel.queue_declare(f"{DEAD_QUEUE}.moving", durable=True, arguments=OTHER)
        channel.confirm_delivery()
        channel.basic_publish(
            "", f"{DEAD_QUEUE}.moving", b"moved", pika.BasicProperties(delivery_mode=2)
        )
    told = rough.ctl("queue", "move", "--dry-run")
    assert f"{DEAD_QUEUE}: does not exist; a move is to be finished" in told
    rough.ctl("queue", "move")
    assert moved(rough)
    with amqp(rough) as connection:
        assert connection.channel().basic_get(DEAD_QUEUE, auto_ack=True)[2] == b"moved"


@pytest.mark.long
def test_a_second_run_is_refused(differing):
    differing.sigstop("worker-1")  # holds its consumer
    first = subprocess.Popen(
        [str(differing.build_dir / "couponctl"), "queue", "move"],
        env={**os.environ, **differing.env},
    )
    try:
        wait_until(lambda: ".moving" in differing.queues_told())
        told = differing.ctl_run("queue", "move")
        assert told.returncode == 10 and "another couponctl queue move is running" in told.stderr
        differing.sigcont("worker-1")
        assert first.wait(timeout=120) == 0
    finally:
        first.kill()
    assert moved(differing) and queue_length(differing, QUEUE) == 0


@pytest.mark.long
def test_a_consumer_that_does_not_leave(differing):
    """Another client, or a program of another version: the command ends, and loses nothing."""
    differing.stop("worker-1")
    with amqp(differing) as connection:
        channel = connection.channel()
        channel.basic_publish("", QUEUE, b"held", pika.BasicProperties(delivery_mode=2))
        channel.basic_consume(QUEUE, lambda *_: None)
        connection.process_data_events(time_limit=1)
        child = subprocess.Popen(
            [differing.build_dir / "couponctl", "queue", "move", "--leave-timeout-s", "1"],
            env={**os.environ, **differing.env},
            stderr=subprocess.PIPE,
            text=True,
        )
        while child.poll() is None:
            connection.process_data_events(time_limit=0.1)
        assert child.returncode == 7
        assert f"1 other consumers of {QUEUE} do not leave" in child.stderr.read()
    differing.ctl("queue", "move")
    assert moved(differing)
    with amqp(differing) as connection:
        found = {
            connection.channel().basic_get(queue, auto_ack=True)[2]
            for queue in (QUEUE, PARKED_QUEUE)
        }
        assert b"held" in found
