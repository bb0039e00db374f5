"""
Processes killed, cut and told to end at moments that tests/torture does not choose, and then every
promise checked: see history.py.

The tests share one stack, which is repaired before each of them.
"""

import contextlib
import itertools
import json
import signal

import pika
import psycopg
import pytest

from coupon_seen import elections_ended, keeper_holders, rounds_pass
from history import DEAD_QUEUE, History, queue_length
from message import batches, message, message_publish
from process import metrics_read
from relay import Relay
from stack import wait_until
from ulid import ulid_uuid


EVERY_S = 0.1  # a window of each client: services take seconds to start, and the load goes on


@pytest.fixture
def campaign(rough):
    """campaign(total, limit): a coupon and the history of its requests."""
    histories = []

    def make(total=1_000_000, limit=2, every_s=EVERY_S, **options):
        coupon = rough.coupon_make(total, limit)
        histories.append(History(rough, coupon, total, limit, every_s=every_s, **options))
        return histories[-1]

    yield make
    for history in histories:
        history.abandon()


@pytest.fixture
def amqp_rough(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        yield connection.channel()


@pytest.fixture
def proxy_to_rabbitmq(rough):
    proxy = Relay(pika.URLParameters(rough.env["AMQP_URL"]).port)
    yield proxy
    proxy.close()


def outbox_length(redis_client, coupon):
    return redis_client.hlen(f"coupon:{{{coupon}}}:outbox")


@contextlib.contextmanager
def transaction_held(stack, history):
    """The backend of a worker that is in the middle of settling 20 receives, until the end of the
    context."""
    blocked = "SELECT pid FROM pg_locks WHERE NOT granted"
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as lock, stack.client() as client:
        lock.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (history.coupon,))
        for user in range(1, 21):
            assert history.ask(client, user)["code"] == 0
        (backend,) = wait_until(lambda: lock.execute(blocked).fetchone())
        yield backend
        lock.rollback()


def worker_total(log, name):
    """A counter that the worker logs when it ends."""
    return sum(int(word.split("=")[1]) for word in log.split() if word.startswith(name + "="))


# The load alone: the checker itself is tested


def test_a_sell_out_without_any_failure(campaign):
    history = campaign(total=1000, limit=2, users=1500).start()
    wait_until(lambda: history.codes()[2] > 200)
    assert history.judge() == 1000
    assert history.codes().keys() <= {0, 2, 4}


def test_the_checker_sees_a_lost_row(campaign, rough):
    history = campaign().start()
    history.wait_accepted(200)
    history.stop()
    history.settle()
    issued = "UPDATE coupon SET issued_num = issued_num + %s WHERE id = %s"
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        row = pg.execute(
            "DELETE FROM user_coupon WHERE ctid ="
            " (SELECT min(ctid) FROM user_coupon_0 WHERE coupon_id = %s)"
            " AND tableoid = 'user_coupon_0'::regclass RETURNING *",
            (history.coupon,),
        ).fetchone()
        with pytest.raises(AssertionError, match="P1"):
            history.judge()
        pg.execute(issued, (-1, history.coupon))
        with pytest.raises(AssertionError, match="P3|P4"):
            history.judge()
        pg.execute(issued, (1, history.coupon))
        pg.execute(f"INSERT INTO user_coupon VALUES ({', '.join(['%s'] * len(row))})", row)
    history.judge()


# Workers


@pytest.mark.always
def test_a_worker_killed_between_commit_and_ack(
    campaign, rough, rough_pg, worker_make, proxy_to_rabbitmq
):
    history = campaign()
    rough.stop("worker-1")
    doomed = worker_make(rough, AMQP_URL=proxy_to_rabbitmq.url(rough.env_of("worker")["AMQP_URL"]))
    proxy_to_rabbitmq.hold()  # acks are held here
    with rough.client() as client:
        for user in range(1, 21):
            assert history.ask(client, user)["code"] == 0
    rows = "SELECT xmin::text, * FROM user_coupon WHERE coupon_id = %s ORDER BY user_id"
    committed = wait_until(
        lambda: len(found := rough_pg.execute(rows, (history.coupon,)).fetchall()) == 20 and found
    )
    doomed.kill9()
    proxy_to_rabbitmq.cut()
    heir = worker_make(rough)
    wait_until(lambda: queue_length(rough) == 0)
    with rough.client() as client:
        assert history.ask(client, 21, ack="issued")["status"] == "issued"
    assert heir.terminate() == 0
    assert worker_total(heir.log(), "repeated") == 20, "they were delivered again"
    found = rough_pg.execute(rows, (history.coupon,)).fetchall()
    assert [row for row in found if row[1] != "21"] == committed, "and that changed nothing"
    rough.start("worker-1")
    assert history.judge() == 21


# The gateway


@pytest.mark.always
def test_the_keeper_sends_what_a_killed_gateway_could_not(
    campaign, rough, rough_redis, gateway_make
):
    gateway = gateway_make(rough, ready=False, AMQP_URL="amqp://guest:guest@127.0.0.1:1/%2f")
    wait_until(lambda: gateway.metrics()["couponmq_redis_up"] == 1)
    history = campaign()
    with gateway.client() as client:
        for user in range(1, 31):
            assert history.ask(client, user, key=f"order {user}")["code"] == 0
    gateway.kill9()
    keeper = rough.worker_http(1, "/metrics")
    before = metrics_read(keeper)["couponmq_keeper_resent_total"]
    rounds_pass(rough, 12)  # of 100 ms, after 400 ms
    assert metrics_read(keeper)["couponmq_keeper_resent_total"] > before
    assert history.judge() == 30
    assert outbox_length(rough_redis, history.coupon) == 0


def test_the_gateway_told_to_end_under_load(campaign, rough, gateway_make):
    gateway = gateway_make(rough)
    with campaign(listen=gateway.settings["COUPON_LISTEN"]).start() as history:
        history.wait_accepted(300)
        assert gateway.terminate() == 0
        (stopped,) = [line for line in gateway.log().splitlines() if "event=stopped" in line]
        assert "inflight=0 unconfirmed=0" in stopped, "all is confirmed before it ends"
        history.judge()


def test_the_gateway_told_to_end_answers_who_waits(rough, gateway_make):
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough)
    with gateway.client() as client:
        rough.sigstop("worker-1")
        client.send_line({"op": "issue", "coupon": coupon, "user": 1, "ack": "issued"})
        wait_until(lambda: gateway.metrics()["couponmq_outcomes_waiting"] == 1)
        gateway.signal(signal.SIGTERM)
        wait_until(lambda: "event=stopping" in gateway.log())
        rough.sigcont("worker-1")
        assert client.read_reply()["status"] == "issued"
        assert client.read_line() is None
    assert gateway.child.wait(120) == 0


# RabbitMQ


def test_the_publishers_connection_cut_again_and_again(
    campaign, rough, gateway_make, proxy_to_rabbitmq
):
    gateway = gateway_make(
        rough, AMQP_URL=proxy_to_rabbitmq.url(rough.env_of("gateway")["AMQP_URL"])
    )
    with campaign(listen=gateway.settings["COUPON_LISTEN"]).start() as history:
        for times in range(1, 4):
            history.wait_accepted(100)
            if times % 2:
                proxy_to_rabbitmq.hold()  # odd: messages are lost; even: their confirms
            history.wait_accepted(300)
            proxy_to_rabbitmq.cut()
            wait_until(lambda: gateway.log().count("event=amqp_ready") > times)
        history.judge()
        assert gateway.metrics()["couponmq_messages_failed_total"] > 0, "some were published again"


# PostgreSQL


def test_a_transaction_cut_in_its_middle(campaign, rough, worker_make):
    """The worker still has its messages: nobody needs to send them again."""
    rough.stop("worker-1")
    worker_make(rough, COUPON_RESEND_AFTER_MS=3600000)
    history = campaign()
    with transaction_held(rough, history) as backend, psycopg.connect(
        rough.env["DATABASE_ADMIN_URL"]
    ) as pg:
        assert pg.execute("SELECT pg_terminate_backend(%s, 10000)", (backend,)).fetchone() == (
            True,
        )
    assert history.judge() == 20


def test_issued_is_never_said_before_it_is_true(campaign, rough):
    with campaign(ack="issued").start() as history:
        history.wait_accepted(300)
        rough.kill9("postgres")
        rough.start("postgres")
        history.wait_accepted(300)
        history.judge()


# Messages


UNREADABLE = [
    b"",
    b"hello",
    b"\xff\xfe",
    b"[]",
    b"{}",
    b'{"v":1}',
    b"{" * 5000,
    b'{"v":1,"v":1}',
]


def broken_messages(coupon):
    changes = [
        {"v": 2}, {"v": 0}, {"v": "1"}, {"v": None}, {"batch": "x"}, {"batch": None},
        {"coupon": 1001}, {"coupon": "01"}, {"seq": 0}, {"seq": 1.5}, {"at": -1},
        {"generation": None}, {"receives": []}, {"receives": None}, {"receives": [["42", 1]]},
        {"receives": [[42, 1, ""]]}, {"receives": [["42", "1", ""]]},
        {"receives": [["42", 1, "x" * 256]]}, {"receives": [["", 1, ""]]},
        {"receives": [["4 2", 1, ""]]}, {"receives": [["x" * 65, 1, ""]]},
        {"receives": [["42", 1, "é"]]},
        {"receives": [[str(user), 1, ""] for user in range(1, 258)]},
    ]  # fmt: skip
    return [json.dumps(message(coupon, **change)).encode() for change in changes]


def test_what_cannot_be_read_is_dead_lettered_with_its_reason(campaign, rough, amqp_rough):
    history = campaign()
    amqp_rough.queue_purge(DEAD_QUEUE)
    bad = UNREADABLE + broken_messages(history.coupon)
    with rough.client() as client:
        for user, body in enumerate(bad, 1):
            message_publish(amqp_rough, body, message_id=str(user))
            assert history.ask(client, user)["code"] == 0
        assert history.judge() == len(bad), "the receives beside them settle"
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == len(bad))
    reasons = {}
    for _ in bad:
        _, properties, body = amqp_rough.basic_get(DEAD_QUEUE, auto_ack=True)
        assert body == bad[int(properties.message_id) - 1], "it is kept as it was"
        reasons[body] = properties.headers["x-couponmq-reason"]
    assert all(reasons.values())
    assert "version" in reasons[bad[len(UNREADABLE)]]


def test_a_duplicate_changes_nothing(campaign, rough, rough_pg, amqp_rough):
    copies = amqp_rough.queue_declare("", exclusive=True).method.queue
    amqp_rough.queue_bind(copies, "coupon.topic", "coupon.receive")
    history = campaign()
    with rough.client() as client:
        for user in range(1, 31):
            history.ask(client, user, key="k")
        assert history.judge() == 30
        rows = "SELECT xmin::text, * FROM user_coupon WHERE coupon_id = %s ORDER BY user_id"
        counts = "SELECT issued_num, seq_seen, settled_num FROM coupon WHERE id = %s"
        before = [rough_pg.execute(query, (history.coupon,)).fetchall() for query in (rows, counts)]
        bodies = []
        while (got := amqp_rough.basic_get(copies, auto_ack=True))[0]:
            bodies += batches(got[2])
        bodies = [body for body in bodies if json.loads(body)["coupon"] == history.coupon]
        assert sum(len(json.loads(body)["receives"]) for body in bodies) == 30
        for body in bodies * 3:
            message_publish(amqp_rough, body)
        other = rough.coupon_make(1)
        assert (
            client.issue(other, 1, ack="issued")["status"] == "issued"
        ), "it was after them in the queue"
        assert [
            rough_pg.execute(query, (history.coupon,)).fetchall() for query in (rows, counts)
        ] == before
        assert history.judge() == 30


def test_a_rejected_receive_stays_rejected_when_it_comes_again(rough, rough_pg, amqp_rough):
    coupon = rough.coupon_make(10)
    body = message(coupon, receives=[["42", 2, ""]])  # above the limit
    receive = f"{coupon}.42.{body['batch']}.0"
    with rough.client() as client:
        message_publish(amqp_rough, body)
        wait_until(lambda: client.call("status", receive=receive)["code"] == 9)
        with psycopg.connect(rough.env["DATABASE_ADMIN_URL"]) as pg:
            pg.execute("UPDATE coupon SET user_limit = 2 WHERE id = %s", (coupon,))
        message_publish(amqp_rough, body)
        # Redis never gave its number out: the keeper takes it for behind, and rebuilds the coupon.
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["status"] == "issued")
        assert client.call("status", receive=receive)["code"] == 9
    found = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s AND batch = %s"
    assert rough_pg.execute(found, (coupon, ulid_uuid(body["batch"]))).fetchone() == (0,)


# The keeper


def fence(pg):
    return pg.execute("SELECT fence FROM keeper").fetchone()[0]


@pytest.mark.always
@pytest.mark.parametrize("lost", ["killed", "frozen"])
def test_one_keeper_at_a_time_and_another_takes_over(
    rough, rough_pg, rough_redis, worker_make, lost
):
    holder = wait_until(lambda: keeper_holders(rough_redis))
    before = fence(rough_pg)
    others = [worker_make(rough) for _ in range(2)]
    for _ in range(2):
        coupon = rough.coupon_make(1)
        assert wait_until(lambda: rough_redis.hget(f"coupon:{{{coupon}}}", "fence")) == str(before)
    assert (keeper_holders(rough_redis), fence(rough_pg)) == (
        holder,
        before,
    ), "no other keeper is elected"
    assert not any("keeper_elected" in worker.log() for worker in others)
    if lost == "killed":
        rough.kill9("worker-1")
    else:
        rough.sigstop("worker-1")
    wait_until(lambda: fence(rough_pg) > before)
    assert [("keeper_elected" in worker.log()) for worker in others].count(True) == 1
    assert keeper_holders(rough_redis) not in ([], holder)
    coupon = rough.coupon_make(1)
    assert int(wait_until(lambda: rough_redis.hget(f"coupon:{{{coupon}}}", "fence"))) == before + 1
    if lost == "frozen":
        times = elections_ended(rough.log("worker-1"))
        rough.sigcont("worker-1")
        wait_until(lambda: elections_ended(rough.log("worker-1")) > times)
        assert fence(rough_pg) == before + 1


def test_a_keeper_told_to_end_hands_over_at_once(rough, rough_pg, worker_make):
    before = fence(rough_pg)
    rough.stop("worker-1")
    other = worker_make(rough, COUPON_KEEPER_LEASE_MS=60000)
    wait_until(lambda: "keeper_elected" in other.log())
    third = worker_make(rough, COUPON_KEEPER_LEASE_MS=60000, COUPON_KEEPER_ROUND_MS=50)
    assert other.terminate() == 0
    wait_until(lambda: "keeper_elected" in third.log())
    assert fence(rough_pg) >= before + 2
    assert third.terminate() == 0


def test_terms_changed_under_load(campaign, rough):
    with campaign().start() as history:
        history.allowed.add(answers=("paused",))
        for total in itertools.chain((1_000_100, 900_000), (1_000_000,)):
            history.wait_accepted(200)
            rough.ctl("stock", history.coupon, "--total", total)
            rough.ctl("pause", history.coupon)
            paused = history.codes()[6]
            wait_until(lambda: history.codes()[6] > paused)
            rough.ctl("resume", history.coupon)
        history.wait_accepted(200)
        history.judge()


# Last, because it removes every coupon from Redis


@pytest.mark.always
def test_a_wiped_redis_never_refills(campaign, rough, rough_pg, rough_redis):
    history = campaign(total=5, limit=1)
    with rough.client() as client:
        assert [history.ask(client, user, ack="issued")["code"] for user in (1, 2, 3, 4, 5)] == [
            0
        ] * 5
        rough_redis.flushall()

        def told(user):
            reply = history.ask(client, user)
            assert reply["code"] != 0, reply
            return reply["status"]

        wait_until(lambda: told(6) != "unavailable")  # until it is issued again
        assert {told(user) for user in range(1, 21)} == {"out_of_stock"}
        assert history.judge() == 5
    rows = rough_pg.execute(
        "SELECT user_id FROM user_coupon WHERE coupon_id = %s ORDER BY 1", (history.coupon,)
    )
    assert [row[0] for row in rows.fetchall()] == ["1", "2", "3", "4", "5"]
