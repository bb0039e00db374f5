"""Requests of clients with their answers, which are compared with PostgreSQL and Redis at the end:
verdict.py."""

import collections
import os
import random
import time

import pika
import psycopg
import redis

from load import Ask, Load, now
from stack import wait_until
from ulid import ulid_uuid
from user_ids import user_of
from verdict import Allowed, Row, Stored, Terms, Tombstone, Verdict
from voids import Void, Voiding

WINDOW = 32  # requests of one connection in flight
EVERY_S = 0.03
ANSWER_S = 15.0
UNKNOWN_SHARE = 0.5  # of a history during a failure, where the test names no other
REGULARS = 50  # users who send many requests, so that limits and keys are met
QUEUE = "coupon.receive.queue"
DEAD_QUEUE = "coupon.receive.dead"
PARKED_QUEUE = "coupon.receive.parked"
USE_QUEUE = "coupon.use.queue"


class History:
    """Load on one coupon from several connections, which are reopened whenever they are cut."""

    def __init__(
        self,
        stack,
        coupon,
        total,
        limit=1,
        users=10**9,
        keys=0.3,
        ack=None,
        listen=None,
        seed=None,
        every_s=EVERY_S,
        allowed=None,
    ):
        """allowed: what may happen to it; services may fail, and nothing is rejected, if it is not
        given."""
        self.stack, self.coupon, self.total, self.limit = stack, str(coupon), total, limit
        self.users, self.keys, self.ack = users, keys, ack
        self.listen = listen or stack.env["COUPON_LISTEN"]
        self.seed = random.randrange(10**6) if seed is None else seed
        self.every_s = every_s
        self.allowed = allowed or Allowed(("unavailable", "busy"), unknown=UNKNOWN_SHARE)
        self.asked = []
        self.voidings = []
        self.load = None

    # The load

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, connections=3):
        self.load = Load(
            lambda: [("gateway", self.listen)],
            self._window_make,
            self.seed,
            connections,
            self.every_s,
            ANSWER_S,
        ).start()
        return self

    def stop(self):
        load, self.load = self.load, None
        if load:
            load.stop()

    def abandon(self):
        """Ends the load without waiting."""
        if self.load:
            self.load.stopping.set()

    def _window_make(self, chance):
        return self, [self._ask_make(chance) for _ in range(WINDOW)]

    def _ask_make(self, chance):
        number = chance.randint(1, REGULARS if chance.random() < 0.2 else self.users)
        key = f"key {chance.randint(1, 3)}" if chance.random() < self.keys else None
        return Ask("issue", user_of(number, self.seed), key, self.ack)

    def note(self, ask):
        self.asked.append(ask)

    def ask(self, client, user, key=None, **members):
        """One request, recorded as well."""
        ask = Ask("issue", user, key)
        ask.at = now()
        self.note(ask)
        return ask.answer(
            client.issue(self.coupon, user, **({"key": key} if key else {}), **members)
        )

    def void(self, receive, kill_after_s=None, fault=""):
        """couponctl void, recorded as well. fault: where a build with fault points dies."""
        voiding = Voiding(receive)
        self.voidings.append(voiding)
        program = self.stack.build_dir / "couponctl"
        return voiding.run(
            [str(program), "void", receive, "--json"],
            {**os.environ, **self.stack.env_of("operator"), "COUPON_FAULT": fault},
            kill_after_s,
        )

    def wait_accepted(self, more, timeout=120):
        """Waits until about this many more requests are accepted."""
        load = self.load
        aim = load.accepted + more
        wait_until(lambda: load.errors or load.accepted >= aim, timeout)
        assert not load.errors, load.errors

    def codes(self):
        return collections.Counter(asked.code for asked in self.asked)

    # The judgement

    def settle(self, timeout=120):
        """Waits until nothing of the coupon is in flight, and no rejected receive holds a slot.
        After a recovery of PostgreSQL each coupon of the stack is rebuilt, one after the other."""
        key = f"coupon:{{{self.coupon}}}"
        with redis.Redis.from_url(
            self.stack.env["REDIS_URL"], decode_responses=True
        ) as cache, psycopg.connect(self.stack.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:

            def state():
                """The counts of what is still in flight, by name; empty once all is settled."""
                hash_ = cache.hgetall(key)
                seq, generation = int(hash_.get("seq", -1)), int(hash_.get("generation", -1))
                row = pg.execute(
                    "SELECT seq_seen, settled_num, generation, late_num, (SELECT count(*)"
                    " FROM receive_rejected AS t"
                    " WHERE t.coupon_id = coupon.id AND t.freed_at IS NULL) FROM coupon"
                    " WHERE id = %s",
                    (self.coupon,),
                ).fetchone()
                older = pg.execute(
                    "SELECT generation, seq_seen, settled_num FROM coupon_generation WHERE"
                    " coupon_id = %s",
                    (self.coupon,),
                ).fetchall()
                return {
                    "numbers": (seq, seq) != row[:2] and (seq, row[:2]),
                    "generation": generation != row[2] and (generation, row[2]),
                    "older": [
                        one
                        for one in older
                        if max(one[1], int(hash_.get(f"high:{one[0]}", 0))) > one[2]
                    ],
                    "late": int(hash_.get("late", 0)) != row[3] and (hash_.get("late"), row[3]),
                    "outbox": cache.hlen(key + ":outbox"),
                    "unfreed": row[4],
                }

            (coupons,) = pg.execute("SELECT count(*) FROM coupon").fetchone()
            timeout += coupons / 20
            deadline = time.monotonic() + timeout
            while any((now := state()).values()):
                assert time.monotonic() < deadline, f"not settled after {timeout:.0f} s: {now}"
                time.sleep(0.05)

    def judge(self):
        """Stops the load, waits until all is settled, and checks every promise. Returns how many
        were issued."""
        self.stop()
        self.settle()
        where = f"(coupon {self.coupon}, seed {self.seed})"
        stored = self.stored()
        terms = Terms(self.coupon, self.total, self.limit)
        Verdict(terms, self.asked, stored, self.allowed, where, self.voidings).check()
        audit = self.stack.ctl_run("audit", self.coupon)
        assert (
            audit.returncode == 0
        ), f"couponctl does not agree: {audit.stdout}{audit.stderr} {where}"
        return len(stored.rows)

    def stored(self):
        """What PostgreSQL and Redis have of the coupon."""
        with psycopg.connect(self.stack.env["DATABASE_ADMIN_URL"]) as pg:
            rows = pg.execute(
                "SELECT user_id, slot, batch, idx, coalesce(key, '') FROM user_coupon WHERE"
                " coupon_id = %s",
                (self.coupon,),
            ).fetchall()
            tombstones = pg.execute(
                "SELECT user_id, slot, batch, idx, reason FROM receive_rejected WHERE"
                " coupon_id = %s",
                (self.coupon,),
            ).fetchall()
            voids = pg.execute(
                "SELECT user_id, slot, batch, idx, is_returned FROM coupon_void WHERE"
                " coupon_id = %s",
                (self.coupon,),
            ).fetchall()
            (issued_num,) = pg.execute(
                "SELECT issued_num FROM coupon WHERE id = %s", (self.coupon,)
            ).fetchone()
        return Stored(
            [Row(*row) for row in rows],
            [Tombstone(*row) for row in tombstones],
            issued_num,
            *self._redis(),
            [Void(*row) for row in voids],
        )

    def _redis(self):
        key = f"coupon:{{{self.coupon}}}"
        slots = []
        with redis.Redis.from_url(self.stack.env["REDIS_URL"], decode_responses=True) as cache:
            counts = {
                name: int(cache.hget(key, name) or 0)
                for name in ("total", "stock", "reserved", "lost")
            }
            for user, records in cache.hgetall(key + ":users").items():
                for record in records.split("\n"):
                    slot, batch, index, key_ = record.split(":", 3)
                    slots.append(Row(user, int(slot), ulid_uuid(batch), int(index), key_))
        return slots, counts


def queue_length(stack, queue=QUEUE):
    """Messages that are ready, as reported by the broker."""
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        return connection.channel().queue_declare(queue, passive=True).method.message_count
