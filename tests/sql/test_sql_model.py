"""settle() against the model of PostgreSQL that the simulations use (tests/models.c): the same
outcomes and counts of the same messages, copies and all; and of several coupons in one call the
same as a call for each. SEED=n repeats the history whose seed was n."""

import os
import random

import pytest

from models import Simulated
from seed import seeds
from sql_db import batch_make, Receive, users_make
from ulid import ulid_make, ulid_uuid


# Against the model


STEPS = int(os.environ.get("STEPS") or 30)
GENERATION = 1  # of later ones settle() does more than the model: see test_rebuild_model.py


@pytest.fixture(scope="module")
def simulated():
    one = Simulated()
    yield one
    one.end()


def message_make(rng, people, limit, seq):
    """(SEQ, BATCH, INDEX, USER, SLOT) of each receive; a slot may be outside the limit, or another
    receive's."""
    batch = ulid_make(rng)
    return [
        (seq + index, batch, index, rng.choice(people), rng.randrange(0, limit + 2))
        for index in range(rng.choice([1, 1, 2, 3, 8]))
    ]


@pytest.mark.parametrize("seed", seeds(12))
def test_messages(db, coupon_new, simulated, seed):
    rng = random.Random(seed)
    total, limit = rng.choice([2, 10, 100]), rng.randrange(1, 4)
    people = [str(number) for number in range(rng.choice([2, 6, 30]))]
    coupon = coupon_new(total=total, limit=limit)
    db.execute("UPDATE coupon SET generation = %s WHERE id = %s", GENERATION, coupon)
    simulated.tell("coupon", total, limit, GENERATION)
    messages = []
    for _ in range(STEPS):
        if rng.random() < 0.1:
            total += rng.randrange(5)
            db.query("coupon_total_set", coupon, total)
            simulated.tell("total", total)
        elif messages and rng.random() < 0.3:
            asked = rng.choice(messages)
        else:
            asked = message_make(rng, people, limit, 1 + sum(map(len, messages)))
            messages.append(asked)
        if not messages:
            continue
        receives = [
            Receive(coupon, user, ulid_uuid(batch), index, slot, GENERATION, seq)
            for seq, batch, index, user, slot in asked
        ]
        told = [
            outcome if outcome in ("issued", "repeated") else "rejected"
            for outcome in db.settle_retrying(*receives)
        ]
        assert (told, db.counts(coupon)) == simulated.settle(GENERATION, asked)
    assert db.audit(coupon) == []


# Several coupons in a call


CALLS = 8
COUNTED = "SELECT issued_num, seq_seen, settled_num, late_num, generation FROM coupon WHERE id = %s"


def coupons_make(db, rng, coupon_new, count):
    """Twice `count` coupons, the second half like the first."""
    terms = [(rng.choice([5, 1000, 1000]), 2) for _ in range(count)]
    generations = [rng.choice([1, 1, 2]) for _ in range(count)]
    made = [[coupon_new(total=total, limit=limit) for total, limit in terms] for _ in range(2)]
    for half in made:
        for coupon, generation in zip(half, generations, strict=True):
            db.execute("UPDATE coupon SET generation = %s WHERE id = %s", generation, coupon)
    return made


def receives_make(rng, coupons, generations, seqs, earlier):
    """In most calls only one thing is out of the ordinary."""
    kind = rng.choice(["plain", "other generation", "same users", "same users", "anything"])
    is_any, found, taken = kind == "anything", [], set()
    for _ in range(rng.randrange(2, 12)):
        if is_any and earlier and rng.random() < 0.2:
            found.append(rng.choice(earlier))
            continue
        which, chance = rng.randrange(len(coupons)), rng.random()
        is_other = chance < 0.2 and (is_any or kind == "other generation")
        user = str(rng.randrange(40 if is_any else 10**9))
        if kind == "same users":
            user = f"{len(earlier)}:{rng.randrange(3)}"
        slot = rng.randrange(1, 4 if is_any else 3)
        if (which, user, slot) in taken and not is_any:
            continue
        taken.add((which, user, slot))
        seqs[which] += 1
        found += batch_make(
            coupons[which],
            [user],
            seq_first=seqs[which],
            generation=3 - generations[which] if is_other else generations[which],
            slot=slot,
            key=rng.choice(["", "a"]),
        )
    earlier += found
    rng.shuffle(found)
    return found


def state_of(db, coupon):
    late = "SELECT num, generation, seq, user_id, slot, batch, idx, key, reason FROM coupon_late"
    return (
        db.execute(COUNTED, coupon),
        db.generations(coupon),
        db.rows(coupon),
        db.tombstones(coupon),
        db.execute(late + " WHERE coupon_id = %s ORDER BY num", coupon),
    )


@pytest.mark.parametrize("seed", seeds(20))
def test_one_call_or_several(db, coupon_new, seed):
    rng = random.Random(seed)
    mixed, single = coupons_make(db, rng, coupon_new, rng.randrange(2, 6))
    twin = dict(zip(mixed, single, strict=True))
    generations = [db.execute(COUNTED, coupon)[0][4] for coupon in mixed]
    seqs, earlier = [0] * len(mixed), []
    for _ in range(CALLS):
        asked = receives_make(rng, mixed, generations, seqs, earlier)
        told = db.settle(*asked)
        for coupon in mixed:
            own = [(i, one) for i, one in enumerate(asked) if one.coupon == coupon]
            copies = [one.but(coupon=twin[coupon]) for _, one in own]
            if copies:
                assert db.settle(*copies) == [told[i] for i, _ in own], seed
        for coupon in mixed:
            assert state_of(db, coupon) == state_of(db, twin[coupon]), seed
    assert db.audit(*mixed, *single) == []


def test_a_tombstone_of_another_batch_changes_nothing(db, coupon_new):
    first, second = coupon_new(total=1), coupon_new()
    kept, refused = batch_make(first, ["1", "2"])
    assert db.settle(kept, refused) == ["issued", "out_of_stock"]
    db.execute("UPDATE coupon SET total_num = 10 WHERE id = %s", first)
    asked = [*batch_make(first, ["3", "4"], seq_first=3), *batch_make(second, users_make(1, 40))]
    assert db.settle(*asked) == ["issued"] * len(asked)
    assert db.settle(refused, Receive(second, "x", refused.batch, 1, seq=40)) == [
        "out_of_stock",
        "issued",
    ]
    assert (db.counts(first), db.counts(second)) == ((3, 4, 4), (40, 40, 40))
    assert db.audit(first, second) == []
