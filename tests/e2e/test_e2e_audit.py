"""couponctl audit: finds every planted error exactly, at rest and under load; receives in flight
are no errors."""

import json
import os
import random
import time

import pika
import psycopg
import pytest
import redis

from history import DEAD_QUEUE, QUEUE, History, queue_length
from message import AT_MS, message_text
from stack import wait_until
from ulid import ulid_at, ulid_make, ulid_uuid

FAILED, NO_VERDICT = 1, 4
GRACE_S = 1
USER = 10**10  # and the following: none of the users of the load
SETTLED_USERS = 12


def audit(stack, *arguments, **options):
    """Its exit code and what it printed."""
    result = stack.ctl_run("audit", *arguments, "--json", **options)
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


def wrong(stack, coupon, grace=GRACE_S):
    """Its findings; its exit code must agree."""
    code, told = audit(stack, coupon, "--grace", grace)
    assert (code, told["passed"]) == ((FAILED, False) if told["wrong"] else (0, True)), told
    return told["wrong"]


def wrong_decided(stack, coupon):
    """The same, once no undecided receive is overdue: on a busy machine, messages wait in the
    queue."""
    for _ in range(20):
        _, told = audit(stack, coupon, "--grace", GRACE_S)
        if told["coupons"][0]["overdue"] == 0:
            break
    return told["wrong"]


class Ground:
    """A coupon with some settled receives, in which errors are planted."""

    def __init__(self, stack, limit, total=1_000_000):
        self.stack, self.limit, self.total, self.made_at = stack, limit, total, time.time()
        self.coupon = stack.coupon_make(total, limit)
        self.key = f"coupon:{{{self.coupon}}}"
        self.redis = redis.Redis.from_url(stack.env["REDIS_URL"], decode_responses=True)
        self.pg = psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True)
        self.receives = {}  # user: its first receive
        with stack.client() as client:
            wait_until(lambda: client.call("coupon", coupon=self.coupon)["code"] == 0)
            for user in range(USER, USER + SETTLED_USERS):
                reply = client.issue(self.coupon, user, key=f"key of {user}", ack="issued")
                assert reply["status"] == "issued", reply
                self.receives[user] = reply["receive"]
            if limit > 1:
                assert client.issue(self.coupon, USER + 1, ack="issued")["slot"] == 2
        wait_until(lambda: self.redis.hlen(self.key + ":outbox") == 0)

    def close(self):
        self.redis.close()
        self.pg.close()

    def sql(self, statement, **values):
        """A statement that has to change one row."""
        assert (
            self.pg.execute(statement, {"coupon": self.coupon, **values}).rowcount == 1
        ), statement

    def remove(self, table, condition, **values):
        """Takes one row out; returns what puts it back."""
        row = self.pg.execute(
            f"DELETE FROM {table} WHERE coupon_id = %(coupon)s AND {condition} RETURNING *",
            {"coupon": self.coupon, **values},
        ).fetchall()
        assert len(row) == 1
        places = ", ".join(["%s"] * len(row[0]))
        return lambda: self.pg.execute(f"INSERT INTO {table} VALUES ({places})", row[0])

    def row_add(self, user, slot, batch, index, coupon=None):
        coupon = coupon or self.coupon
        self.pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from)"
            " VALUES (%s, %s, %s, %s, %s, now(), now())",
            (user, coupon, slot, index, ulid_uuid(batch)),
        )
        return lambda: self.pg.execute(
            "DELETE FROM user_coupon WHERE user_id = %s AND coupon_id = %s AND slot = %s",
            (user, coupon, slot),
        )

    def receive(self, user, batch, index):
        return f"{self.coupon}.{user}.{batch}.{index}"

    def record(self, user):
        return self.redis.hget(self.key + ":users", user)

    def record_set(self, user, record):
        """Returns what undoes it."""
        before = self.record(user)
        self.redis.hset(self.key + ":users", user, record)
        if before is None:
            return lambda: self.redis.hdel(self.key + ":users", user)
        return lambda: self.redis.hset(self.key + ":users", user, before)

    def add(self, field, number):
        self.redis.hincrby(self.key, field, number)
        return lambda: self.redis.hincrby(self.key, field, -number)

    def rejected(self, user):
        """A receive that was rejected and has given back its slot."""
        with self.stack.client() as client:
            self.redis.hset(self.key, "limit", self.limit + 1)
            while (reply := client.issue(self.coupon, user, ack="issued"))["code"] == 0:
                pass
            self.redis.hset(self.key, "limit", self.limit)
        assert reply["reason"] == "slot_invalid", reply
        query = "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND released_at IS NULL"
        wait_until(lambda: self.pg.execute(query, (self.coupon,)).fetchone() == (0,))
        return reply["receive"]


# Each plants one error and returns the finding that the audit must report, and a function that
# undoes it.


def issued_num_high(ground):
    ground.sql("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %(coupon)s")
    return {"kind": "issued_num"}, lambda: ground.sql(
        "UPDATE coupon SET issued_num = issued_num - 1 WHERE id = %(coupon)s"
    )


def issued_num_low(ground):
    """A row without its count as well."""
    ground.sql("UPDATE coupon SET issued_num = issued_num - 1 WHERE id = %(coupon)s")
    return {"kind": "issued_num"}, lambda: ground.sql(
        "UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %(coupon)s"
    )


def settled_num_high(ground):
    ground.sql("UPDATE coupon SET settled_num = settled_num + 3 WHERE id = %(coupon)s")
    return {"kind": "settled_num"}, lambda: ground.sql(
        "UPDATE coupon SET settled_num = settled_num - 3 WHERE id = %(coupon)s"
    )


def settled_num_low(ground):
    ground.sql("UPDATE coupon SET settled_num = settled_num - 1 WHERE id = %(coupon)s")
    return {"kind": "settled_num"}, lambda: ground.sql(
        "UPDATE coupon SET settled_num = settled_num + 1 WHERE id = %(coupon)s"
    )


def seq_seen_high(ground):
    ground.sql("UPDATE coupon SET seq_seen = seq_seen + 1000000 WHERE id = %(coupon)s")
    return {"kind": "seq_seen"}, lambda: ground.sql(
        "UPDATE coupon SET seq_seen = seq_seen - 1000000 WHERE id = %(coupon)s"
    )


def seq_seen_low(ground):
    ground.sql("UPDATE coupon SET seq_seen = seq_seen - 1 WHERE id = %(coupon)s")
    return {"kind": "seq_seen"}, lambda: ground.sql(
        "UPDATE coupon SET seq_seen = seq_seen + 1 WHERE id = %(coupon)s"
    )


def row_deleted(ground):
    back = ground.remove("user_coupon", "user_id = %(user)s", user=USER + 5)
    return {
        "kind": "row_missing",
        "user": str(USER + 5),
        "slot": 1,
        "receive": ground.receives[USER + 5],
    }, back


def row_added(ground):
    batch = ulid_make()
    back = ground.row_add(USER + 777, 1, batch, 3)
    return {
        "kind": "row_unknown",
        "user": str(USER + 777),
        "slot": 1,
        "receive": ground.receive(USER + 777, batch, 3),
    }, back


def row_added_and_issued_num(ground):
    batch = ulid_make()
    back = ground.row_add(USER + 777, 1, batch, 3)
    ground.sql("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %(coupon)s")

    def undo():
        back()
        ground.sql("UPDATE coupon SET issued_num = issued_num - 1 WHERE id = %(coupon)s")

    return {
        "kind": "row_unknown",
        "user": str(USER + 777),
        "slot": 1,
        "receive": ground.receive(USER + 777, batch, 3),
    }, undo


def user_over_limit(ground):
    batch = ulid_make()
    back = ground.row_add(USER + 1, ground.limit + 1, batch, 0)
    receive = ground.receive(USER + 1, batch, 0)
    return {
        "kind": "user_limit",
        "user": str(USER + 1),
        "slot": ground.limit + 1,
        "receive": receive,
    }, back


def slot_beyond_limit(ground):
    batch = ulid_make()
    back = ground.row_add(USER + 778, 9, batch, 0)
    return {
        "kind": "slot_limit",
        "user": str(USER + 778),
        "slot": 9,
        "receive": ground.receive(USER + 778, batch, 0),
    }, back


def issued_and_rejected(ground):
    """Marked as released, or a worker would mark it."""
    ground.sql(
        "INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,"
        " received_at, released_at)"
        " SELECT coupon_id, batch, idx, user_id, slot, 'slot_taken', received_at, now()"
        " FROM user_coupon WHERE coupon_id = %(coupon)s AND user_id = %(user)s",
        user=USER + 6,
    )
    return (
        {
            "kind": "issued_and_rejected",
            "user": str(USER + 6),
            "slot": 1,
            "receive": ground.receives[USER + 6],
        },
        lambda: ground.remove("receive_rejected", "user_id = %(user)s", user=USER + 6),
    )


def issued_twice(ground):
    _, _, batch, index = ground.receives[USER + 7].split(".")
    back = ground.row_add(USER + 779, 1, batch, index)
    return {
        "kind": "issued_twice",
        "user": str(USER + 779),
        "slot": 1,
        "receive": ground.receive(USER + 779, batch, index),
    }, back


def slot_removed(ground):
    before = ground.record(USER + 8)
    ground.redis.hdel(ground.key + ":users", USER + 8)
    return (
        {
            "kind": "slot_missing",
            "user": str(USER + 8),
            "slot": 1,
            "receive": ground.receives[USER + 8],
        },
        lambda: ground.redis.hset(ground.key + ":users", USER + 8, before),
    )


def slot_added(ground):
    batch = ulid_at(1_700_000_000_000)
    back = ground.record_set(USER + 780, f"1:{batch}:0:")
    return {
        "kind": "slot_unknown",
        "user": str(USER + 780),
        "slot": 1,
        "receive": ground.receive(USER + 780, batch, 0),
    }, back


def slot_added_of_the_future(ground):
    batch = ulid_at(int(time.time() * 1000) + 10**9)
    back = ground.record_set(USER + 781, f"1:{batch}:0:")
    return {
        "kind": "slot_unknown",
        "user": str(USER + 781),
        "slot": 1,
        "receive": ground.receive(USER + 781, batch, 0),
    }, back


def slot_of_another(ground):
    batch = ulid_at(1_700_000_000_000)
    back = ground.record_set(USER + 9, f"1:{batch}:4:key of {USER + 9}")
    return {
        "kind": "slot_receive",
        "user": str(USER + 9),
        "slot": 1,
        "receive": ground.receive(USER + 9, batch, 4),
    }, back


def another_key(ground):
    back = ground.record_set(USER + 10, ground.record(USER + 10) + "0")
    return {
        "kind": "slot_key",
        "user": str(USER + 10),
        "slot": 1,
        "receive": ground.receives[USER + 10],
    }, back


def records_malformed(ground):
    back = ground.record_set(USER + 11, "1:not a batch:0:")
    return {"kind": "records_malformed", "user": str(USER + 11)}, back


def user_malformed(ground):
    back = ground.record_set("nobody", f"1:{ulid_make()}:0:")
    return {"kind": "records_malformed", "user": None}, back


def slot_not_given_back(ground):
    receive = ground.rejected(USER + 782)
    _, user, batch, index = receive.split(".")
    record = f"{ground.limit + 1}:{batch}:{index}:"
    before = ground.record(user)
    back = ground.record_set(user, before + "\n" + record)
    return {
        "kind": "slot_unreleased",
        "user": str(USER + 782),
        "slot": ground.limit + 1,
        "receive": receive,
    }, back


def stock_more(ground):
    return {"kind": "sum"}, ground.add("stock", 1)


def stock_less(ground):
    return {"kind": "sum"}, ground.add("stock", -1)


def reserved_wrong(ground):
    return {"kind": "sum"}, ground.add("reserved", 2)


def lost_wrong(ground):
    return {"kind": "sum"}, ground.add("lost", 1)


def total_in_redis(ground):
    ground.add("total", 5)
    ground.add("stock", 5)
    return {"kind": "terms"}, lambda: (ground.add("total", -5), ground.add("stock", -5))


def total_in_postgresql(ground):
    ground.sql("UPDATE coupon SET total_num = total_num + 5 WHERE id = %(coupon)s")
    return {"kind": "terms"}, lambda: ground.sql(
        "UPDATE coupon SET total_num = total_num - 5 WHERE id = %(coupon)s"
    )


ANYWHERE = [
    issued_num_high, issued_num_low, settled_num_high, row_deleted, row_added,
    row_added_and_issued_num, user_over_limit, slot_beyond_limit, issued_and_rejected, issued_twice,
    slot_removed, slot_added, slot_added_of_the_future, slot_of_another, another_key,
    records_malformed, user_malformed, slot_not_given_back, stock_more, stock_less, reserved_wrong,
    lost_wrong, total_in_redis, total_in_postgresql,
]  # fmt: skip


# These are set right by the next settlement, or stop it.


def coupon_malformed(ground):
    before = ground.redis.hget(ground.key, "stock")
    ground.redis.hset(ground.key, "stock", "many")
    return {"kind": "coupon_malformed"}, lambda: ground.redis.hset(ground.key, "stock", before)


def coupon_field_missing(ground):
    before = ground.redis.hget(ground.key, "version")
    ground.redis.hdel(ground.key, "version")
    return {"kind": "coupon_malformed"}, lambda: ground.redis.hset(ground.key, "version", before)


def users_of_another_type(ground):
    key, aside = ground.key + ":users", "aside:" + ground.coupon
    ground.redis.rename(key, aside)
    ground.redis.set(key, "a string")
    return {"kind": "key_type"}, lambda: ground.redis.rename(aside, key)


def outbox_of_another_type(ground):
    ground.redis.rpush(ground.key + ":outbox", "a list")
    return {"kind": "key_type"}, lambda: ground.redis.delete(ground.key + ":outbox")


def number_never_given_out(ground):
    return {"kind": "receive_lost", "user": None, "receive": None}, ground.add("seq", 4)


AT_REST = [
    settled_num_low, seq_seen_high, seq_seen_low, coupon_malformed, coupon_field_missing,
    users_of_another_type, outbox_of_another_type, number_never_given_out,
]  # fmt: skip

PROMISES = {"issued_num": "P1", "coupon_unknown": "P1", "user_limit": "P2", "slot_limit": "P2"}
OF_P3 = {
    "issued_twice",
    "issued_and_rejected",
    "row_missing",
    "receive_lost",
    "settled_num",
    "seq_seen",
}


def check_told(told, expected, coupon):
    assert len(told) == 1, told
    (finding,) = told
    assert finding["coupon"] == coupon and expected.items() <= finding.items(), (finding, expected)
    kind = finding["kind"]
    assert finding["promise"] == PROMISES.get(kind, "P3" if kind in OF_P3 else "P4")
    assert finding.keys() == {"kind", "promise", "coupon", "user", "slot", "receive", "text"}


@pytest.fixture(scope="module", params=[1, 2], ids=["limit 1", "limit 2"])
def resting(stack, request):
    ground = Ground(stack, request.param)
    assert wrong(stack, ground.coupon) == []
    yield ground
    stack.ctl("close", ground.coupon)
    ground.close()


@pytest.mark.parametrize("plant", ANYWHERE + AT_REST, ids=lambda plant: plant.__name__)
def test_finds_at_rest(stack, resting, plant):
    expected, undo = plant(resting)
    try:
        told = wrong(stack, resting.coupon)
    finally:
        undo()
    check_told(told, expected, resting.coupon)
    assert wrong(stack, resting.coupon) == [], "it is as it was"


# Under load


REJECTED_S = 0.1  # each rejection leaves a row that the audit reads
STEADY_S = 0.035  # about two thousand requests a second: an audit reads all rows of their coupon


@pytest.fixture
def ground_make(stack):
    made = []

    def make(limit, on=stack):
        made.append(Ground(on, limit))
        return made[-1]

    yield make
    for ground in made:
        ground.stack.ctl("close", ground.coupon)
        ground.close()


def old_enough(ground):
    """Waits until its receives are older than the grace."""
    wait_until(lambda: time.time() > ground.made_at + GRACE_S)


UNDER_LOAD = [(2, plant) for plant in ANYWHERE]
UNDER_LOAD += [
    (1, plant) for plant in (row_deleted, slot_removed, slot_added, stock_more, stock_less)
]
if not os.environ.get("AUDIT_ALL"):  # some seconds each: a few of them, others by SEED=n
    UNDER_LOAD = random.Random(int(os.environ.get("SEED") or 1)).sample(UNDER_LOAD, 6)


@pytest.mark.parametrize("limit, plant", UNDER_LOAD)
def test_finds_under_load(stack, ground_make, limit, plant):
    ground = ground_make(limit)
    with History(stack, ground.coupon, ground.total, limit=limit, keys=0.1, every_s=STEADY_S).start(
        connections=2
    ) as history:
        history.wait_accepted(100)
        old_enough(ground)
        expected, undo = plant(ground)
        try:
            told = wrong_decided(stack, ground.coupon)
        finally:
            undo()
        check_told(told, expected, ground.coupon)
        history.wait_accepted(100)
        assert wrong(stack, ground.coupon) == [], "it is as it was"


def test_no_false_alarm_while_workers_come_and_go(rough, ground_make):
    """Many receives are in flight, older than the grace, and settled all at once."""
    ground = ground_make(2, on=rough)
    with History(rough, ground.coupon, ground.total, limit=2, every_s=STEADY_S).start(
        connections=2
    ) as history:
        for breaks in (rough.kill9, rough.stop):
            history.wait_accepted(300)
            breaks("worker-1")
            stopped_at = time.time()
            wait_until(lambda: time.time() > stopped_at + GRACE_S + 1)
            code, told = audit(rough, ground.coupon, "--grace", GRACE_S)
            assert (code, told["wrong"]) == (0, []) and told["coupons"][0][
                "overdue"
            ] > 0, "nobody settles"
            rough.start("worker-1")
            for _ in range(4):
                assert wrong(rough, ground.coupon) == []
        history.stop()
        history.settle()
    assert wrong(rough, ground.coupon) == []


def test_no_false_alarm_while_a_worker_hangs(rough, ground_make):
    """It holds messages that RabbitMQ does not count."""
    ground = ground_make(2, on=rough)
    with History(rough, ground.coupon, ground.total, limit=2, every_s=STEADY_S).start(
        connections=2
    ) as history:
        for _ in range(2):
            history.wait_accepted(300)
            rough.sigstop("worker-1")
            history.wait_accepted(1500)
            assert wrong(rough, ground.coupon, grace=30) == []
            rough.thaw()
            for _ in range(3):
                assert wrong(rough, ground.coupon, grace=30) == []
        history.stop()
        history.settle()


def test_no_false_alarm_while_rejections_are_given_back(stack, ground_make):
    """Redis has a higher limit than PostgreSQL, so that every second receive of a user is
    rejected."""
    ground = ground_make(1)
    ground.redis.hset(ground.key, "limit", 3)
    with History(stack, ground.coupon, ground.total, limit=3, users=3000, every_s=REJECTED_S).start(
        connections=2
    ) as history:
        rejected = "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s"
        wait_until(
            lambda: ground.pg.execute(rejected, (ground.coupon,)).fetchone()[0] > 200, timeout=30
        )
        for _ in range(12):
            assert {finding["kind"] for finding in wrong(stack, ground.coupon)} == {
                "terms"
            }, "only the limit differs"
        history.stop()
    ground.redis.hset(ground.key, "limit", 1)
    wait_until(lambda: wrong(stack, ground.coupon) == [], timeout=30)


# Permanent losses


def accept(ground, users):
    """Receives without an outcome yet, whose messages are in RabbitMQ."""
    with ground.stack.client() as client:
        receives = [client.issue(ground.coupon, user, ack="queued")["receive"] for user in users]
    wait_until(lambda: ground.redis.hlen(ground.key + ":outbox") == 0)
    return receives


def purge(stack):
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        connection.channel().queue_purge(QUEUE)


@pytest.mark.parametrize("limit", [1, 2])
def test_names_each_receive_of_a_purged_queue(rough, ground_make, limit):
    ground = ground_make(limit, on=rough)
    rough.stop("worker-1")
    lost = accept(ground, [USER + 100, USER + 101, USER + 102])
    accepted_at = time.time()
    code, told = audit(rough, ground.coupon, "--grace", 0)
    assert (code, told["wrong"]) == (0, []), "they wait in the queue"
    assert (told["coupons"][0]["overdue"], told["coupons"][0]["queued"]) == (3, 3)
    purge(rough)
    code, told = audit(rough, ground.coupon)
    assert (code, told["wrong"]) == (0, []), "younger than the grace"
    wait_until(lambda: time.time() > accepted_at + GRACE_S)
    found = wrong(rough, ground.coupon)
    assert {finding["kind"] for finding in found} == {"receive_lost"} and {
        finding["promise"] for finding in found
    } == {"P3"}
    assert sorted(finding["receive"] for finding in found) == sorted(lost)
    rough.start("worker-1")
    with History(rough, ground.coupon, ground.total, limit=limit, every_s=STEADY_S).start(
        connections=2
    ) as history:
        history.wait_accepted(300)
        found = wrong_decided(rough, ground.coupon)
    assert {finding["kind"] for finding in found} == {"receive_lost"}
    assert sorted(finding["receive"] for finding in found) == sorted(lost), "under load too"
    wait_until(lambda: audit(rough, ground.coupon)[1]["coupons"][0]["in_flight"] == len(lost))
    rough.ctl("rebuild", ground.coupon, "--release-lost", "--older-than-s", 1)
    assert wrong(rough, ground.coupon) == [], "given up, each is rejected"


def test_a_dead_letter_is_owed_and_not_lost(rough, ground_make):
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    accept(ground, [USER + 100])
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        _, properties, body = channel.basic_get(QUEUE, auto_ack=True)
        channel.basic_publish("", DEAD_QUEUE, body, properties)
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
    code, told = audit(rough, ground.coupon, "--grace", 0)
    assert (code, told["wrong"]) == (0, [])
    assert (told["coupons"][0]["overdue"], told["coupons"][0]["dead"]) == (1, 1)
    rough.start("worker-1")
    rough.ctl("dead", "requeue", "--all")
    wait_until(lambda: audit(rough, ground.coupon)[1]["coupons"][0]["settled"])


def test_what_is_overdue_cannot_be_told_without_rabbitmq(rough, ground_make):
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    accept(ground, [USER + 100])
    rough.kill9("rabbitmq")
    result = rough.ctl_run("audit", ground.coupon, "--grace", 0)
    assert (
        result.returncode == NO_VERDICT and "RabbitMQ cannot be queried" in result.stdout
    ), result.stdout
    assert wrong(rough, ground.coupon, grace=60) == [], "nothing is overdue"
    rough.start("rabbitmq", "worker-1")
    wait_until(lambda: audit(rough, ground.coupon)[1]["coupons"][0]["settled"], timeout=30)


# The outbox


def outbox_body(ground, user, batch, index=0, at=AT_MS, coupon=None):
    receives = [[str(user + number), 1, f"key of {user + number}"] for number in range(index + 1)]
    return message_text(coupon or ground.coupon, batch=batch, at=at, receives=receives)


def test_finds_what_is_wrong_in_the_outbox(rough, ground_make):
    """Without a worker, because the keeper would send the outbox."""
    ground = ground_make(1, on=rough)
    rough.stop("worker-1")
    outbox = ground.key + ":outbox"
    _, user, batch, _ = ground.receives[USER + 3].split(".")
    other = ulid_make()
    for field, body, expected in (
        (batch, outbox_body(ground, int(user), batch), {"kind": "outbox_settled", "user": user}),
        (other, outbox_body(ground, int(user), batch), {"kind": "outbox_malformed"}),
        (other, outbox_body(ground, int(user), other, coupon="7"), {"kind": "outbox_malformed"}),
        (other, "no message", {"kind": "outbox_malformed"}),
    ):
        ground.redis.hset(outbox, field, body)
        (finding,) = wrong(rough, ground.coupon)
        assert expected.items() <= finding.items() and finding["promise"] == "P3"
        ground.redis.hdel(outbox, field)
        assert wrong(rough, ground.coupon) == []
    rough.start("worker-1")


# Stores that cannot be compared


def test_rows_of_an_unknown_coupon(rough, ground_make):
    ground = ground_make(1, on=rough)
    batch, unknown = ulid_make(), "987654321000"
    undo = ground.row_add(USER, 1, batch, 2, coupon=unknown)
    try:
        for arguments in ((unknown,), ("--all",)):
            code, told = audit(rough, *arguments, "--grace", 600)
            assert code == FAILED
            check_told(
                [finding for finding in told["wrong"] if finding["coupon"] == unknown],
                {
                    "kind": "coupon_unknown",
                    "user": str(USER),
                    "slot": 1,
                    "receive": f"{unknown}.{USER}.{batch}.2",
                },
                unknown,
            )
    finally:
        undo()
    assert rough.ctl_run("audit", unknown).returncode == NO_VERDICT


@pytest.mark.parametrize("service", ["DATABASE_URL", "REDIS_URL"])
def test_no_verdict_without_a_service(stack, ground_make, service):
    ground = ground_make(1)
    flag = {
        "DATABASE_URL": "--database-url=postgresql://u@127.0.0.1:1/d",
        "REDIS_URL": "--redis-url=redis://127.0.0.1:1/0",
    }[service]
    result = stack.ctl_run(flag, "audit", ground.coupon)
    assert result.returncode == NO_VERDICT and service in result.stderr, result.stderr


def test_a_line_names_the_place(stack, resting):
    expected, undo = slot_removed(resting)
    try:
        result = stack.ctl_run("audit", resting.coupon)
    finally:
        undo()
    line = result.stdout.splitlines()[0]
    assert line.startswith(
        f"WRONG P4: coupon {resting.coupon}, user {USER + 8}, slot 1, receive"
        f" {expected['receive']}: "
    )
    assert (
        line.endswith("(slot_missing)")
        and result.stdout.splitlines()[-1] == "FAIL: 1 coupon audited, 1 wrong"
    )


# It changes nothing


def test_changes_nothing(stack, resting, pg_owner):
    """The sessions of an audit are read-only, and neither Redis nor PostgreSQL is changed by it."""
    tables = {"coupon": "id", "user_coupon": "coupon_id", "receive_rejected": "coupon_id"}

    def versions():
        """Each row of the coupon, with the transaction that wrote it."""
        return [
            pg_owner.execute(
                f"SELECT xmin::text, t::text FROM {table} AS t WHERE {column} = %s ORDER BY 2",
                (resting.coupon,),
            ).fetchall()
            for table, column in tables.items()
        ]

    rows = versions()
    assert rows[0] and rows[1]
    before = [resting.redis.dump(resting.key + suffix) for suffix in ("", ":users", ":outbox")]
    commands = resting.redis.info("commandstats")
    wrong(stack, resting.coupon)
    used = {
        name
        for name, told in resting.redis.info("commandstats").items()
        if told["calls"] > commands.get(name, {"calls": 0})["calls"]
    }
    assert {"cmdstat_hscan", "cmdstat_hmget"} <= used
    assert before == [
        resting.redis.dump(resting.key + suffix) for suffix in ("", ":users", ":outbox")
    ]
    assert versions() == rows
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (resting.coupon,))
        holder.execute("SELECT FROM user_coupon WHERE coupon_id = %s FOR UPDATE", (resting.coupon,))
        assert wrong(stack, resting.coupon) == [], "it does not wait for another session's lock"
