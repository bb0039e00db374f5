"""issue.lua, terms.lua and slot_free.lua against two models, in Python and of the simulations
(tests/models.c), after every call of a random sequence: verdicts, body, users, counts and
conservation (stock + taken slots + reserved = total). SEED=n repeats the sequence whose seed was n,
RUNS=n STEPS=n makes so many of that length."""

import os
import random

import pytest

from models import Simulated
from script_coupon import (
    BUSY,
    ENDED,
    LIMIT_REACHED,
    NOT_STARTED,
    OUT_OF_STOCK,
    PAUSED,
    UNBOUNDED,
    Coupon,
)
from seed import seeds
from ulid import ulid_make
from user_ids import user_id_random

HOUR = 3600 * 1000
STEPS = int(os.environ.get("STEPS") or 150)


class Model:
    def __init__(self, total, reserved, limit, generation):
        self.status, self.total, self.reserved, self.limit = "open", total, reserved, limit
        self.stock = total - reserved
        self.window = "in"
        self.generation, self.seq, self.version = generation, 0, 1
        self.users = {}  # user -> [(slot, batch, index, key)]
        self.outbox = {}

    def verdict(self, user, key, batch, index, full):
        records = self.users.get(user, [])
        for slot, old_batch, old_index, old_key in records:
            if key and old_key == key:
                return f"{slot}:{old_batch}:{old_index}"
        if self.status != "open":
            return PAUSED if self.status == "paused" else ENDED
        if self.window != "in":
            return NOT_STARTED if self.window == "before" else ENDED
        if self.stock == 0:
            return OUT_OF_STOCK
        if len(records) >= self.limit:
            return LIMIT_REACHED
        if full:
            return BUSY
        slot = min(set(range(1, self.limit + 1)) - {r[0] for r in records})
        self.users.setdefault(user, []).append((slot, batch, index, key))
        self.stock -= 1
        return slot

    def issue(self, batch, requests, unsettled_max):
        verdicts, receives = [], []
        full = len(self.outbox) >= unsettled_max
        for user, key in requests:
            verdict = self.verdict(user, key, batch, len(receives), full)
            verdicts.append(verdict)
            if isinstance(verdict, int) and verdict > 0:
                receives.append([user, verdict, key])
        first = self.seq + 1
        self.seq += len(receives)
        return verdicts, receives, first

    def users_text(self):
        return {
            u: "\n".join("%d:%s:%d:%s" % r for r in records) for u, records in self.users.items()
        }


@pytest.fixture(scope="module")
def simulated():
    one = Simulated()
    yield one
    one.end()


def issue_step(rng, coupon, model, simulated, people, keys):
    requests = [
        (rng.choice(people), rng.choice(keys)) for _ in range(rng.choice([1, 1, 2, 3, 8, 40]))
    ]
    batch = ulid_make(rng)
    unsettled = len(model.outbox)
    bound = rng.choice([UNBOUNDED, UNBOUNDED, 1, unsettled or 1, unsettled + 1])
    a = coupon.issue(
        *requests, batch=batch, seen=(model.generation, model.seq), unsettled_max=bound
    )
    verdicts, receives, first = model.issue(batch, requests, bound)
    assert a.verdicts == verdicts
    assert (a.generation, a.seq, a.stock) == (model.generation, model.seq, model.stock)
    told = simulated.issue(batch, bound, requests)
    assert told[:3] == (verdicts, model.seq, model.stock)
    if not receives:
        assert a.body == "" and not told[3]
        return
    same = {"coupon": coupon.id, "at": a.now_ms}  # the simulation has its own coupon and clock
    assert {**told[3], **same} == a.message
    model.outbox[batch] = a.body
    assert a.message == {
        "v": 1,
        "batch": batch,
        "coupon": coupon.id,
        "generation": model.generation,
        "seq": first,
        "at": a.now_ms,
        "receives": receives,
    }


def terms_step(rng, coupon, model, simulated, now_ms):
    model.version += 1
    status = rng.choice(["open", "open", "open", "open", "paused", "closed"])
    window = rng.choice(["in", "in", "in", "in", "before", "after"])
    begin, end = {
        "in": (0, rng.choice([0, now_ms + HOUR])),
        "before": (now_ms + HOUR, 0),
        "after": (0, now_ms - HOUR),
    }[window]
    total, limit = max(0, model.total + rng.randrange(-15, 20)), rng.choice([1, 2, 2, 3, 5])
    taken = model.total - model.stock
    reply = coupon.run("terms", model.version, status, total, begin, end, limit)
    if total < taken or (taken and limit < model.limit):
        assert reply == ["taken", taken]
        return
    assert reply == "applied"
    model.status, model.window, model.total, model.limit = status, window, total, limit
    model.stock = total - taken
    simulated.tell("terms", status, window, total, model.stock, limit)


def slot_free_step(rng, coupon, model, simulated):
    """A rejected receive: its slot is free again, and the stock has one more."""
    if not model.users:
        return
    user = rng.choice(sorted(model.users))
    records = model.users[user]
    slot, batch, index, _ = records.pop(rng.randrange(len(records)))
    if not records:
        del model.users[user]
    model.stock += 1
    assert coupon.run("slot_free", user, slot, batch, index, "free") == [
        "ok",
        model.stock,
        0,
        "free",
    ]
    simulated.tell("slot_free", user, slot)


def settle_step(rng, coupon, model, simulated):
    if model.outbox:
        batch = rng.choice(sorted(model.outbox))
        del model.outbox[batch]
        coupon.redis.hdel(coupon.keys[2], batch)
        simulated.tell("settled", batch)


def check(coupon, model):
    assert coupon.users() == model.users_text()
    assert coupon.outbox() == model.outbox
    c = coupon.redis.hgetall(coupon.keys[0])
    assert (int(c["stock"]), int(c["seq"]), int(c["total"])) == (
        model.stock,
        model.seq,
        model.total,
    )
    assert int(c["stock"]) + coupon.taken() + int(c["reserved"]) == int(c["total"])


@pytest.mark.parametrize("seed", seeds(12))
def test_sequence(shared_redis, simulated, seed):
    rng = random.Random(seed)
    coupon = Coupon(shared_redis)
    reserved = rng.choice([0, 0, 3])
    total = rng.choice([5, 60, 400])
    model = Model(max(total, reserved), reserved, rng.choice([1, 2, 3]), rng.randrange(1, 5))
    people = [user_id_random(rng) for _ in range(rng.choice([3, 30, 300]))]
    keys = ["", "", "", "a", "b", 'q"\\ :', "1:2:3:"]
    coupon.put(
        total=model.total,
        stock=model.stock,
        reserved=reserved,
        limit=model.limit,
        generation=model.generation,
    )
    simulated.tell("begin", model.total, model.stock, model.limit, model.generation)
    try:
        for _ in range(STEPS):
            step = rng.choices(["issue", "terms", "slot_free", "settle"], [12, 2, 2, 3])[0]
            if step == "issue":
                issue_step(rng, coupon, model, simulated, people, keys)
            elif step == "terms":
                terms_step(rng, coupon, model, simulated, coupon.time_ms())
            elif step == "slot_free":
                slot_free_step(rng, coupon, model, simulated)
            else:
                settle_step(rng, coupon, model, simulated)
            check(coupon, model)
    finally:
        coupon.delete()
