"""
Requests of clients with their answers, to be compared with PostgreSQL and Redis at the end.

A request without an answer, or answered `unknown`, may have taken effect or not. Every other answer
must be true: docs/protocol.md defines what each answer promises, and P1 to P6 are checked as
promises of the whole.
"""

import collections
import random
import time

import pika
import psycopg
import redis

from load import UNANSWERED, Ask, Load
from stack import wait_until
from ulid import ulid_uuid

WINDOW = 32  # requests of one connection in flight
EVERY_S = 0.01
ANSWER_S = 15.0
REJECTED, UNKNOWN = 9, 22
REGULARS = 50  # users who send many requests, so that limits and keys are met
QUEUE = "coupon.receive.queue"
DEAD_QUEUE = "coupon.receive.dead"
PARKED_QUEUE = "coupon.receive.parked"


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
    ):
        self.stack, self.coupon, self.total, self.limit = stack, str(coupon), total, limit
        self.users, self.keys, self.ack = users, keys, ack
        self.listen = listen or stack.env["COUPON_LISTEN"]
        self.seed = random.randrange(10**6) if seed is None else seed
        self.every_s = every_s
        self.asked = []
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
        user = chance.randint(1, REGULARS if chance.random() < 0.2 else self.users)
        key = f"key {chance.randint(1, 3)}" if chance.random() < self.keys else None
        return Ask("issue", user, key, self.ack)

    def note(self, ask):
        self.asked.append(ask)

    def ask(self, client, user, key=None, **members):
        """One request, recorded as well."""
        ask = Ask("issue", int(user), key)
        self.note(ask)
        ask.reply = client.issue(self.coupon, user, **({"key": key} if key else {}), **members)
        return ask.reply

    def wait_accepted(self, more, timeout=30):
        """Waits until about this many more requests are accepted."""
        load = self.load
        aim = load.accepted + more
        wait_until(lambda: load.errors or load.accepted >= aim, timeout)
        assert not load.errors, load.errors

    def codes(self):
        return collections.Counter(asked.code for asked in self.asked)

    # The judgement

    def settle(self, timeout=60):
        """Waits until nothing of the coupon is in flight, and no rejected receive holds a slot."""
        key = f"coupon:{{{self.coupon}}}"
        with redis.Redis.from_url(
            self.stack.env["REDIS_URL"], decode_responses=True
        ) as cache, psycopg.connect(self.stack.env["DATABASE_URL"], autocommit=True) as pg:

            def state():
                """The counts of what is still in flight, by name; empty once all is settled."""
                hash_ = cache.hgetall(key)
                seq, generation = int(hash_.get("seq", -1)), int(hash_.get("generation", -1))
                row = pg.execute(
                    "SELECT seq_seen, settled_num, generation, late_num, (SELECT count(*)"
                    " FROM receive_rejected AS t"
                    " WHERE t.coupon_id = coupon.id AND t.released_at IS NULL) FROM coupon"
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
                    "unreleased": row[4],
                }

            deadline = time.monotonic() + timeout
            while any((now := state()).values()):
                assert time.monotonic() < deadline, f"not settled after {timeout} s: {now}"
                time.sleep(0.05)

    def judge(self):
        """Stops the load, waits until all is settled, and checks every promise. Returns how many
        were issued."""
        self.stop()
        self.settle()
        where = f"(coupon {self.coupon}, seed {self.seed})"
        rows, tombstones, issued_num = self._database()
        slots, counts = self._redis()
        assert issued_num == len(rows) <= self.total, f"P1 {where}"
        by_user = collections.Counter(row[0] for row in rows)
        for user, count in by_user.items():
            assert (
                count <= self.limit
            ), f"P2: user {user} has {count} {where}: {self._asked_by(user)}"
        self._check_answers(rows, tombstones, where)
        self._check_requested(rows, where)
        self._check_keys(tombstones, where)
        in_all = counts["stock"] + counts["reserved"] + counts["lost"] + len(slots)
        assert in_all == counts["total"] == self.total, f"P4 {where}"
        taken = {(user, slot, batch, index) for user, slot, batch, index, _ in slots}
        assert taken == {row[:4] for row in rows}, f"P4: Redis and PostgreSQL differ {where}"
        audit = self.stack.ctl_run("audit", self.coupon)
        assert (
            audit.returncode == 0
        ), f"couponctl does not agree: {audit.stdout}{audit.stderr} {where}"
        return len(rows)

    def _database(self):
        with psycopg.connect(self.stack.env["DATABASE_URL"]) as pg:
            rows = pg.execute(
                "SELECT user_id, slot, batch, idx, coalesce(key, '') FROM user_coupon WHERE"
                " coupon_id = %s",
                (self.coupon,),
            ).fetchall()
            tombstones = pg.execute(
                "SELECT user_id, slot, batch, idx FROM receive_rejected WHERE coupon_id = %s",
                (self.coupon,),
            ).fetchall()
            (issued_num,) = pg.execute(
                "SELECT issued_num FROM coupon WHERE id = %s", (self.coupon,)
            ).fetchone()
        return rows, tombstones, issued_num

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
                    slot, batch, index, idempotency_key = record.split(":", 3)
                    slots.append(
                        (int(user), int(slot), ulid_uuid(batch), int(index), idempotency_key)
                    )
        return slots, counts

    def _check_answers(self, rows, tombstones, where):
        """P3: an accepted receive is exactly one row or exactly one rejection."""
        settled = {(row[2], row[3]): row for row in rows}
        assert len(settled) == len(rows), f"a receive has two rows {where}"
        rejected = {(row[2], row[3]): row for row in tombstones}
        assert not settled.keys() & rejected.keys(), f"issued and rejected {where}"
        for asked in self.asked:
            if not asked.receive:
                continue
            coupon, user, batch, index = asked.receive.split(".")
            place = (ulid_uuid(batch), int(index))
            assert (coupon, int(user)) == (self.coupon, asked.user), f"{asked} {where}"
            assert (place in settled) != (place in rejected), f"P3: {asked} {where}"
            if asked.reply["status"] in ("accepted", "queued", "issued") and place in settled:
                row = settled[place]
                assert row[:2] == (asked.user, asked.reply["slot"]), f"P3: {asked}, {row} {where}"
                assert row[4] == (asked.key or ""), f"P6: {asked}, {row} {where}"
            if asked.reply["status"] == "issued":
                assert place in settled, f"{asked} {where}"

    def _check_requested(self, rows, where):
        """P5, P7: no user has more than he requested and was not refused."""
        keys, keyless = collections.defaultdict(set), collections.Counter()
        for asked in self.asked:
            if asked.code not in (0, UNANSWERED, UNKNOWN, REJECTED):
                continue
            if asked.key:
                keys[asked.user].add(asked.key)
            else:
                keyless[asked.user] += 1
        with_key = collections.Counter((row[0], row[4]) for row in rows if row[4])
        assert max(with_key.values(), default=0) <= 1, f"P6: a key was issued twice {where}"
        for user, key in with_key:
            assert (
                key in keys[user]
            ), f"P5: user {user}, key {key!r} {where}: {self._asked_by(user)}"
        for user, count in collections.Counter(row[0] for row in rows if not row[4]).items():
            assert (
                count <= keyless[user]
            ), f"P5: user {user} has more than he requested {where}: {self._asked_by(user)}"

    def _asked_by(self, user):
        return " ".join(str(asked) for asked in self.asked if asked.user == user)

    def _check_keys(self, tombstones, where):
        receives = {}
        rejected = {(row[2], row[3]) for row in tombstones}
        for asked in self.asked:
            if asked.key and asked.receive:
                _, _, batch, index = asked.receive.split(".")
                if (ulid_uuid(batch), int(index)) in rejected:
                    continue  # its slot was given back, and its key with it
                first = receives.setdefault((asked.user, asked.key), asked.receive)
                assert first == asked.receive, f"P6: {asked} {where}: {self._asked_by(asked.user)}"
        keyless = [asked.receive for asked in self.asked if asked.receive and not asked.key]
        assert len(keyless) == len(set(keyless)), f"one receive for two requests {where}"


def queue_length(stack, queue=QUEUE):
    """Messages that are ready, as reported by the broker."""
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        return connection.channel().queue_declare(queue, passive=True).method.message_count
