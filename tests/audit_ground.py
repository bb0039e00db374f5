"""Runs couponctl audit, and makes the coupons that its tests audit."""

import functools
import json
import time

import pika
import psycopg
import redis

from history import DEAD_QUEUE, QUEUE, queue_length
from message import batches
from stack import wait_until
from ulid import ulid_uuid
from user_ids import user_of

FAILED, NO_VERDICT, STALLED = 1, 10, 5  # exit statuses
GRACE_S = 1
SETTLED_USERS = 12
STEADY_S = 0.035  # about two thousand requests a second: an audit reads all rows of their coupon


def user(number):
    """None of the users of the load."""
    return user_of(10**10 + number, "audit")


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
    """As wrong(), once no undecided receive is overdue: on a busy machine, messages wait in the
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
            for number in range(SETTLED_USERS):
                one, key = user(number), f"key of {number}"
                self.receives[one] = self.issued(client, one, key)["receive"]
            if limit > 1:
                assert self.issued(client, user(1), "second key")["slot"] == 2
        wait_until(lambda: self.redis.hlen(self.key + ":outbox") == 0)

    def settled(self, client, owner, key):
        """The reply; asks again with the key while the outcome is unknown, on a busy machine."""

        def ask():
            reply = client.issue(self.coupon, owner, key=key, ack="issued")
            return reply["status"] != "unknown" and reply

        return wait_until(ask)

    def issued(self, client, owner, key):
        reply = self.settled(client, owner, key)
        assert reply["status"] == "issued", reply
        return reply

    def close(self):
        self.redis.close()
        self.pg.close()

    def sql(self, statement, **values):
        """A statement that has to change one row."""
        assert (
            self.pg.execute(statement, {"coupon": self.coupon, **values}).rowcount == 1
        ), statement

    def count_add(self, column, number):
        """Adds to a number of the coupon in PostgreSQL; returns what undoes it."""
        statement = f"UPDATE coupon SET {column} = {column} + %(number)s WHERE id = %(coupon)s"
        self.sql(statement, number=number)
        return lambda: self.sql(statement, number=-number)

    def remove(self, table, condition, **values):
        """Takes one row out; returns what puts it back."""
        row = self.pg.execute(
            f"DELETE FROM {table} WHERE coupon_id = %(coupon)s AND {condition} RETURNING *",
            {"coupon": self.coupon, **values},
        ).fetchall()
        assert len(row) == 1
        places = ", ".join(["%s"] * len(row[0]))
        return lambda: self.pg.execute(f"INSERT INTO {table} VALUES ({places})", row[0])

    def row_add(self, owner, slot, batch, index, coupon=None):
        coupon = coupon or self.coupon
        self.pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from)"
            " VALUES (%s, %s, %s, %s, %s, now(), now())",
            (owner, coupon, slot, index, ulid_uuid(batch)),
        )
        return lambda: self.pg.execute(
            "DELETE FROM user_coupon WHERE user_id = %s AND coupon_id = %s AND slot = %s",
            (owner, coupon, slot),
        )

    def receive(self, owner, batch, index):
        return f"{self.coupon}.{owner}.{batch}.{index}"

    def record(self, owner):
        return self.redis.hget(self.key + ":users", owner)

    def record_set(self, owner, record):
        """Returns what undoes it."""
        before = self.record(owner)
        self.redis.hset(self.key + ":users", owner, record)
        if before is None:
            return lambda: self.redis.hdel(self.key + ":users", owner)
        return lambda: self.redis.hset(self.key + ":users", owner, before)

    def add(self, field, number):
        self.redis.hincrby(self.key, field, number)
        return lambda: self.redis.hincrby(self.key, field, -number)

    @functools.cached_property
    def rejected(self):
        """A receive of user 782 that was rejected and has given back its slot. Needs a worker."""
        with self.stack.client() as client:
            self.redis.hset(self.key, "limit", self.limit + 1)
            for number in range(self.limit + 1):
                reply = self.settled(client, user(782), f"rejected {number}")
            self.redis.hset(self.key, "limit", self.limit)
        assert reply["reason"] == "slot_invalid", reply
        query = "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND freed_at IS NULL"
        wait_until(lambda: self.pg.execute(query, (self.coupon,)).fetchone() == (0,))
        return reply["receive"]


PROMISES = {
    "issued_num": "P1",
    "coupon_unknown": "P1",
    "user_limit": "P2",
    "slot_limit": "P2",
    "use_taken": "P12",
    "use_state": "P12",
    "use_unknown": "P12",
    "hold_taken": "P13",
    "budget_sum": "P14",
}
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


def accept(ground, users):
    """Receives without an outcome yet, whose messages are in RabbitMQ and in the outbox."""
    with ground.stack.client() as client:
        replies = [client.issue(ground.coupon, one, ack="queued") for one in users]
    assert {reply["status"] for reply in replies} == {"queued"}
    return [reply["receive"] for reply in replies]


def purge(stack, queue=QUEUE):
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        connection.channel().queue_purge(queue)


def outbox_lose(stack, coupon):
    """Redis loses all messages of the coupon."""
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        assert client.delete(f"coupon:{{{coupon}}}:outbox") == 1


def dead_letter(stack):
    """Moves the oldest message to the dead-letter queue, and marks it as a worker does."""
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        _, properties, body = channel.basic_get(QUEUE, auto_ack=True)
        channel.basic_publish("", DEAD_QUEUE, body, properties)
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        for batch in map(json.loads, batches(body)):
            client.sadd(f"coupon:{{{batch['coupon']}}}:dead", batch["batch"])
    wait_until(lambda: queue_length(stack, DEAD_QUEUE) == 1)
