"""
Another session holds a lock on one coupon, as an operator's forgotten transaction does: the workers
settle all other coupons meanwhile, and this one when the lock ends.
"""

import contextlib
import json

import pika
import psycopg
import pytest

from audit_ground import outbox_lose, purge
from history import DEAD_QUEUE, PARKED_QUEUE, History, queue_length
from message import message, message_publish
from stack import wait_until
from ulid import ulid_make, ulid_uuid

WAITING = 20_000


def coupons_insert(pg, n):
    """Coupons that PostgreSQL alone has: enough to settle."""
    query = """INSERT INTO coupon (id, name, total_num, valid_days)
        SELECT coupon_id_next(), 'test', 100, 30 FROM generate_series(1, %s) RETURNING id"""
    return [row[0] for row in pg.execute(query, (n,))]


@contextlib.contextmanager
def locked(stack, *coupons):
    """BEGIN; SELECT … FOR UPDATE, left open."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as pg:
        pg.execute("SELECT FROM coupon WHERE id = ANY (%s) FOR UPDATE", ([*map(int, coupons)],))
        yield pg


def issued_n(pg, coupon):
    query = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
    return pg.execute(query, (coupon,)).fetchone()[0]


def coupon_open(stack, total):
    coupon = stack.coupon_make(total)
    with stack.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
    return coupon


def issue_all(stack, coupon, users):
    requests = [{"op": "issue", "coupon": str(coupon), "user": str(user)} for user in users]
    with stack.client() as client:
        assert {reply["code"] for reply in client.pipeline(requests)} == {0}


def parked_n(stack):
    return queue_length(stack, PARKED_QUEUE)


@pytest.mark.long
def test_a_locked_coupon_does_not_stop_the_others(rough, rough_pg):
    locked_coupon = History(rough, coupon_open(rough, 1000), 1000, ack="accepted")
    other = coupon_open(rough, 1000)
    with locked(rough, locked_coupon.coupon):
        with locked_coupon.start():
            locked_coupon.wait_accepted(300)
        issue_all(rough, other, range(1, 201))
        wait_until(lambda: issued_n(rough_pg, other) == 200)
        with rough.client() as client:
            assert client.issue(other, 1000, ack="issued")["status"] == "issued"
        assert issued_n(rough_pg, locked_coupon.coupon) == 0
    wait_until(lambda: issued_n(rough_pg, locked_coupon.coupon) >= 300)
    locked_coupon.judge()


@pytest.mark.long
def test_so_many_wait_for_a_locked_coupon(rough, rough_pg, worker_make):
    """More than the workers may hold: they leave the prefetch, and all are delivered again."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_PREFETCH=16)
    coupon, other = coupon_open(rough, WAITING), coupon_open(rough, 10_000)
    with locked(rough, coupon):
        rough.rush("--coupon", coupon, "--users", WAITING, "--no-verify")
        # Its own check: every accepted receive of the other coupon is a row.
        rough.rush("--coupon", other, "--users", 10_000)
        assert issued_n(rough_pg, coupon) == 0
        assert worker.metrics()["couponmq_worker_parked_total"] > 16
        assert worker.terminate() == 0  # loses its record of the lock
        rough.start("worker-1")
        with rough.client() as client:
            assert client.issue(other, 10**6, ack="issued")["code"] == 2, "sold out"
        rough.rush("--coupon", coupon_open(rough, 1000), "--users", 1000)
    wait_until(lambda: issued_n(rough_pg, coupon) == WAITING)
    wait_until(lambda: parked_n(rough) == 0)
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_many_coupons_are_locked_at_once(rough, rough_pg, worker_make):
    """All of them are found at once: the others wait for a few time-outs, not for one each."""
    rough.stop("worker-1")
    worker = worker_make(rough)
    coupons = coupons_insert(rough_pg, 300)
    held, free = coupons[::2], coupons[1::2]

    def receives(channel, user):
        for coupon in coupons:
            message_publish(channel, message(coupon, receives=[[str(user), 1, ""]]))

    def settled(of, n):
        query = "SELECT sum(issued_num) FROM coupon WHERE id = ANY (%s)"
        return rough_pg.execute(query, (of,)).fetchone()[0] == n

    def metric(name):
        return worker.metrics()[f"couponmq_worker_{name}"]

    with locked(rough, *held), pika.BlockingConnection(
        pika.URLParameters(rough.env["AMQP_URL"])
    ) as amqp:
        receives(amqp.channel(), 1)
        wait_until(lambda: settled(free, 150))
        assert metric("blocked_total") <= 20
        wait_until(lambda: metric("put_off_coupons") == 150)
        receives(amqp.channel(), 2)
        wait_until(lambda: settled(free, 300))
        assert settled(held, 0)
    wait_until(lambda: settled(held, 300))
    wait_until(lambda: metric("held") == 0 and metric("put_off_coupons") == 0)
    assert parked_n(rough) == 0


def test_a_worker_killed_while_it_parks(rough, rough_pg):
    """A receive that is then in both queues is issued once."""
    coupon = coupon_open(rough, 5000)
    with locked(rough, coupon):
        for first in range(1, 3001, 500):
            issue_all(rough, coupon, range(first, first + 500))
            wait_until(lambda: rough.log_has("worker-1", f"coupon={coupon} for_ms="))
            rough.kill9("worker-1")
            rough.start("worker-1")
    wait_until(lambda: issued_n(rough_pg, coupon) == 3000)
    wait_until(lambda: parked_n(rough) == 0)
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_one_locked_coupon_does_not_hide_another(rough, rough_pg, worker_make):
    """Both are parked, and one lock ends: its messages are behind those of the other."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_PREFETCH=4)
    first, second = coupon_open(rough, 100), coupon_open(rough, 100)
    with locked(rough, first):
        with locked(rough, second):
            with rough.client() as client:
                for user in range(1, 31):  # one message each
                    assert client.issue(first, user)["code"] == 0
                wait_until(lambda: worker.metrics()["couponmq_worker_parked_total"] >= 10)
                for user in range(1, 11):
                    assert client.issue(second, user)["code"] == 0
            wait_until(lambda: worker.metrics()["couponmq_worker_put_off_coupons"] == 2)
        wait_until(lambda: issued_n(rough_pg, second) == 10)
        assert issued_n(rough_pg, first) == 0
    wait_until(lambda: issued_n(rough_pg, first) == 30)
    wait_until(lambda: worker.metrics()["couponmq_worker_held"] == 0)


def test_a_lock_on_a_user_coupon_is_of_its_coupon_alone(rough, rough_pg):
    """The lock is not on the coupon's row, but on the key of a row that is to be inserted."""
    coupon, other = coupon_open(rough, 100), coupon_open(rough, 100)
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"]) as pg:
        pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from)"
            " VALUES (7, %s, 1, 0, %s, now(), now())",
            (coupon, ulid_uuid(ulid_make())),
        )
        issue_all(rough, coupon, range(1, 21))
        issue_all(rough, other, range(1, 21))
        wait_until(lambda: issued_n(rough_pg, other) == 20)
        assert issued_n(rough_pg, coupon) == 0
        pg.rollback()
    wait_until(lambda: issued_n(rough_pg, coupon) == 20)


def test_a_worker_ends_in_time_while_a_coupon_is_locked(rough, rough_pg, worker_make):
    rough.stop("worker-1")
    worker = worker_make(rough)
    coupon = coupon_open(rough, 100)
    with locked(rough, coupon):
        issue_all(rough, coupon, range(1, 51))
        wait_until(lambda: worker.metrics()["couponmq_worker_put_off_coupons"] == 1)
        assert worker.terminate() == 0
        assert "event=stopped" in worker.log()
    rough.start("worker-1")
    wait_until(lambda: issued_n(rough_pg, coupon) == 50)


def test_the_client_that_waits_for_a_locked_coupon(rough, gateway_make):
    """ack=issued: unknown at the deadline, and a look-up returns the outcome when the lock has
    ended."""
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=300)
    coupon = coupon_open(rough, 10)
    with gateway.client() as client:
        with locked(rough, coupon):
            reply = client.issue(coupon, 1, key="k", ack="issued")
            assert reply["status"] == "unknown", json.dumps(reply)
        wait_until(lambda: client.call("status", receive=reply["receive"])["status"] == "issued")
        assert client.issue(coupon, 1, key="k", ack="issued")["status"] == "issued"


@pytest.mark.long
def test_an_audit_does_not_call_lost_what_a_lock_holds_up(rough, rough_pg):
    """The workers hold the receives, and no queue and no outbox has them."""
    purge(rough, DEAD_QUEUE)  # dead letters would be undecided as well
    coupon = coupon_open(rough, 100)
    with locked(rough, coupon):
        issue_all(rough, coupon, range(1, 21))
        wait_until(lambda: rough.log_has("worker-1", f"coupon={coupon} for_ms="))
        outbox_lose(rough, coupon)

        def undecided():
            audit = rough.ctl_run("audit", coupon, "--grace", 1)
            assert audit.returncode in (0, 4), audit.stdout
            return "cannot be decided until it ends" in audit.stdout

        wait_until(undecided)
        given_up = rough.ctl_run("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
        assert given_up.returncode != 0
        assert "transaction open" in given_up.stderr or "can still arrive" in given_up.stderr
    wait_until(lambda: issued_n(rough_pg, coupon) == 20)
    assert rough.ctl_run("audit", coupon).returncode == 0


@pytest.fixture
def slow(rough):
    """slow(COUPON, SECONDS): each of its user coupons takes so long to insert, until the end of the
    test or slow(0)."""
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as owner:

        def make(coupon, seconds=0):
            owner.execute("DROP TRIGGER IF EXISTS slow ON user_coupon")
            owner.execute("DROP FUNCTION IF EXISTS slow_insert")
            if coupon:
                owner.execute(
                    "CREATE FUNCTION slow_insert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                    f" IF NEW.coupon_id = {int(coupon)} THEN PERFORM pg_sleep({seconds}); END IF;"
                    " RETURN NEW; END $$"
                )
                owner.execute(
                    "CREATE TRIGGER slow BEFORE INSERT ON user_coupon"
                    " FOR EACH ROW EXECUTE FUNCTION slow_insert()"
                )

        yield make
        make(0)


def test_a_receive_that_is_put_off_without_a_lock_is_not_lost(rough, rough_pg, worker_make, slow):
    """Time-outs put it off: no queue, no outbox and no lock shows it, and it must not be given
    up."""
    rough.stop("worker-1")
    worker_make(rough, COUPON_SETTLE_TIMEOUT_MS=100)
    coupon, other = coupon_open(rough, 100), coupon_open(rough, 100)
    slow(coupon, 0.2)
    issue_all(rough, coupon, range(1, 21))
    issue_all(rough, other, range(1, 21))
    wait_until(lambda: issued_n(rough_pg, other) == 20)
    wait_until(lambda: parked_n(rough) == 0 and rough.log_has("worker-extra-1", "failures=3"))
    outbox_lose(rough, coupon)
    assert rough.ctl_run("audit", coupon, "--grace", 1).returncode in (0, 4)
    given_up = rough.ctl_run("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
    assert given_up.returncode != 0
    assert "put off" in given_up.stderr or "can still arrive" in given_up.stderr
    slow(0)
    wait_until(lambda: issued_n(rough_pg, coupon) == 20)
    assert rough.ctl_run("audit", coupon).returncode == 0


@pytest.mark.long
def test_a_coupon_that_takes_too_long_is_settled_in_steps(rough, rough_pg, worker_make, slow):
    """PostgreSQL cancels the transaction of all its receives, and also that of one message. The
    keeper sends no copies meanwhile."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_SETTLE_TIMEOUT_MS=200, COUPON_RESEND_AFTER_MS=3000)
    coupon, other = coupon_open(rough, 100), coupon_open(rough, 100)
    slow(coupon, 0.04)
    issue_all(rough, coupon, range(1, 41))
    wait_until(lambda: "event=settle_cancelled" in worker.log())
    issue_all(rough, other, range(1, 21))
    wait_until(lambda: issued_n(rough_pg, other) == 20)
    assert issued_n(rough_pg, coupon) < 40
    wait_until(lambda: issued_n(rough_pg, coupon) == 40)
    wait_until(lambda: worker.metrics()["couponmq_worker_put_off_coupons"] == 0)
    assert rough.ctl_run("audit", coupon).returncode == 0


@contextlib.contextmanager
def parking_full(stack):
    """RabbitMQ refuses to park a second message. Yields a function that ends that earlier."""
    policy = '{"max-length": 1, "overflow": "reject-publish"}'
    stack.rabbitmqctl("set_policy", "full", PARKED_QUEUE, policy, "--apply-to", "queues")
    with contextlib.ExitStack() as ends:
        ends.callback(stack.rabbitmqctl, "clear_policy", "full")
        yield ends.close


@pytest.mark.long
def test_a_parking_queue_that_is_full(rough, rough_pg, worker_make):
    """The other coupons are settled, although what RabbitMQ refuses to park would fill the
    prefetch; that is settled when the lock ends, parked or not."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_PREFETCH=4)
    coupon, other = coupon_open(rough, 100), coupon_open(rough, 100)
    with parking_full(rough):
        with locked(rough, coupon), rough.client() as client:
            for user in range(1, 25):  # one message each
                assert client.issue(coupon, user)["code"] == 0
            wait_until(lambda: "event=park_failed" in worker.log())
            for user in range(1, 11):
                assert client.issue(other, user)["code"] == 0
            wait_until(lambda: issued_n(rough_pg, other) == 10)
            assert issued_n(rough_pg, coupon) == 0
            wait_until(lambda: worker.metrics()["couponmq_worker_requeued_total"] > 0)
        wait_until(lambda: issued_n(rough_pg, coupon) == 24)
    assert rough.ctl_run("audit", coupon).returncode == 0


@pytest.mark.long
def test_a_parking_queue_that_was_full(rough, rough_pg, worker_make):
    """It is used again before the lock ends, although RabbitMQ 3.10 does not tell the worker's
    channel, and confirms the copies that circulate in the receive queue all the time."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_PREFETCH=4)
    coupon = coupon_open(rough, 100)
    with parking_full(rough) as end, locked(rough, coupon):
        with rough.client() as client:
            for user in range(1, 21):  # one message each
                assert client.issue(coupon, user)["code"] == 0
        wait_until(lambda: worker.metrics()["couponmq_worker_requeued_total"] > 0)
        end()
        parked = worker.metrics()["couponmq_worker_parked_total"]
        wait_until(lambda: worker.metrics()["couponmq_worker_parked_total"] >= parked + 5)
    wait_until(lambda: issued_n(rough_pg, coupon) == 20)
    assert rough.ctl_run("audit", coupon).returncode == 0
