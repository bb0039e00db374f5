"""Exact orders of events between workers, PostgreSQL and RabbitMQ. docs/about/lifecycle.md lists
where the others are tested."""

import contextlib
import json
import re
import time

import pika
import psycopg
import pytest

from history import DEAD_QUEUE, History, queue_length
from message import batches
from relay import Relay
from stack import wait_until

USERS = range(1, 21)
CONNECTED = "event=amqp_connected connection=consumer"
CONSUMERS = 2  # of receives, and of what orders do
SETTLE = (
    "settle(int8[], int[], int8[], uuid[], int2[], text[], int2[], text[], text[], int8[], text[])"
)
BLOCKED = "SELECT pid FROM pg_locks WHERE NOT granted AND pid <> ALL (%s)"


@pytest.fixture
def history(rough):
    return History(rough, rough.coupon_make(1000, 2), 1000, 2)


@pytest.fixture
def amqp_rough(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        yield connection.channel()


@contextlib.contextmanager
def coupon_locked(stack, coupon):
    """Transactions of this coupon stop before its rows."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupon,))
        yield holder
        holder.rollback()


@pytest.fixture
def patient(rough):
    """Transactions wait for locks for as long as a test needs: no coupon is put off."""
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as owner:
        owner.execute(f"ALTER FUNCTION {SETTLE} SET lock_timeout = '25s'")
        yield
        owner.execute(f"ALTER FUNCTION {SETTLE} RESET lock_timeout")


def next_blocked(pg, *known):
    """The backend that waits for a lock, other than the given ones."""
    return wait_until(lambda: pg.execute(BLOCKED, (list(known),)).fetchone())[0]


def ask_all(stack, history):
    with stack.client() as client:
        for user in USERS:
            assert history.ask(client, user)["code"] == 0


def counted(worker, name):
    """A counter that the worker logs when it ends."""
    assert worker.terminate() == 0
    (line,) = (line for line in worker.log().splitlines() if " event=stats " in line)
    return int(re.search(rf" {name}=(\d+)", line)[1])


def messages_of(channel, queue, coupon):
    """The bodies with all receives of ask_all(), once. Something may be published twice, or for a
    coupon of another test."""
    bodies, receives = [], {}

    def have_all():
        body = channel.basic_get(queue, auto_ack=True)[2]
        found = [json.loads(batch) for batch in batches(body)] if body else []
        new = {one["batch"]: one["receives"] for one in found if one["coupon"] == coupon}
        if new.keys() - receives.keys():
            bodies.append(body)
            receives.update(new)
        return sum(map(len, receives.values())) == len(USERS)

    wait_until(have_all)
    return bodies


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("first", ["commits", "is rolled back"])
def test_a_copy_is_settled_by_two_workers_at_once(
    rough, rough_pg, amqp_rough, history, worker_make, first
):
    copies = amqp_rough.queue_declare("", exclusive=True).method.queue
    amqp_rough.queue_bind(copies, "coupon.topic", "coupon.receive")
    rough.stop("worker-1")
    ask_all(rough, history)
    bodies = messages_of(amqp_rough, copies, history.coupon)
    amqp_rough.queue_delete(copies)
    with coupon_locked(rough, history.coupon) as holder:
        one = worker_make(
            rough, COUPON_PREFETCH=len(bodies)
        )  # it has room for these, and not for their copies
        its_backend = next_blocked(rough_pg)
        wait_until(lambda: queue_length(rough) == 0)
        two = worker_make(rough)
        for body in bodies:
            amqp_rough.basic_publish(
                "coupon.topic", "coupon.receive", body, pika.BasicProperties(delivery_mode=2)
            )
        wait_until(lambda: queue_length(rough) == 0)
        waiting = next_blocked(rough_pg, its_backend)
        if first == "is rolled back":
            rough_pg.execute("SELECT pg_terminate_backend(%s)", (its_backend,))
            next_blocked(
                rough_pg, its_backend, waiting
            )  # it retries, and waits for the other's rows
        holder.rollback()
    assert history.judge() == len(USERS)
    issued, repeated = (
        [counted(worker, name) for worker in (one, two)] for name in ("issued", "repeated")
    )
    # A message may have receives of another test's coupon, too.
    receives = sum(len(json.loads(batch)["receives"]) for body in bodies for batch in batches(body))
    assert sum(issued) == receives
    # Which of them is first may differ from one transaction to the next.
    assert [sum(each) for each in zip(issued, repeated)] == [receives] * 2, "both settled each"
    assert queue_length(rough) == 0, "and acked it"


@pytest.mark.usefixtures("patient")
def test_the_connection_to_rabbitmq_breaks_while_the_transaction_runs(
    rough, rough_pg, history, worker_make
):
    """Deliveries of the old connection are committed and never acked; those of the new connection
    are found to be repeated, and acked."""
    rough.stop("worker-1")
    proxy = Relay(pika.URLParameters(rough.env["AMQP_URL"]).port)
    try:
        worker = worker_make(rough, AMQP_URL=proxy.url(rough.env_of("worker")["AMQP_URL"]))
        with coupon_locked(rough, history.coupon) as holder:
            ask_all(rough, history)
            next_blocked(rough_pg)
            wait_until(lambda: queue_length(rough) == 0)
            for connected in (2 * CONSUMERS, 3 * CONSUMERS):
                time.sleep(1)  # the log shows ten lines a second of an event, whichever connection
                proxy.cut()
                wait_until(lambda n=connected: worker.log().count(CONNECTED) == n)
                wait_until(lambda: queue_length(rough) == 0)
            holder.rollback()
        assert history.judge() == len(USERS)
        assert worker.log().count(CONNECTED) == 3 * CONSUMERS, "no ack closed the channel"
        wait_until(lambda: worker.metrics()["couponmq_worker_repeated_total"] > 0)
    finally:
        proxy.close()
    rough.start("worker-1")
    assert queue_length(rough) == 0
    assert history.judge() == len(USERS)


@pytest.mark.parametrize(
    "pipelined", [False, True], ids=["in messages of their own", "in one message"]
)
def test_a_receive_that_cannot_be_stored_takes_none_with_it(
    rough, rough_pg, amqp_rough, history, pipelined
):
    amqp_rough.queue_purge(DEAD_QUEUE)
    bad = 13
    lines = [{"op": "issue", "coupon": history.coupon, "user": str(user)} for user in USERS]
    with psycopg.connect(
        rough.env["DATABASE_ADMIN_URL"], autocommit=True
    ) as owner, rough.client() as client:
        owner.execute(
            f"ALTER TABLE user_coupon ADD CONSTRAINT no_{bad} CHECK (user_id <> '{bad}')"
            " NOT VALID"
        )
        try:
            rough.sigstop("worker-1")
            replies = (
                client.pipeline(lines) if pipelined else [client.call(**line) for line in lines]
            )
            assert {reply["code"] for reply in replies} == {0}
            if pipelined:
                assert len({reply["receive"].split(".")[2] for reply in replies}) < len(USERS) / 2
            rough.sigcont("worker-1")
            wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
            states = [
                client.call("status", receive=reply["receive"])["status"] for reply in replies
            ]
            assert states == [
                "accepted" if user == bad else "issued" for user in USERS
            ], "it is still owed"
        finally:
            owner.execute(f"ALTER TABLE user_coupon DROP CONSTRAINT no_{bad}")
        reason = json.loads(rough.ctl("dead", "list", "--json"))["messages"][0]["reason"]
        assert reason.startswith("unstorable: SQLSTATE 23514") and ("1 of" in reason) == pipelined
        rough.ctl("dead", "requeue", "--all")
        wait_until(
            lambda: client.call("status", receive=replies[bad - 1]["receive"])["status"] == "issued"
        )
    issued = "SELECT issued_num, settled_num FROM coupon WHERE id = %s"
    assert rough_pg.execute(issued, (history.coupon,)).fetchone() == (len(USERS), len(USERS))
