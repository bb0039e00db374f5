"""settle() of several coupons in one call does the same as a call for each."""

import os
import random

import pytest
from sql_db import Receive, batch_make, users_make

SEEDS = (
    [int(os.environ["COUPON_TEST_SEED"])]
    if "COUPON_TEST_SEED" in os.environ
    else [random.SystemRandom().randrange(2**32) for _ in range(20)]
)
CALLS = 6
COUNTED = "SELECT issued_num, seq_seen, settled_num, late_num, generation FROM coupon WHERE id = %s"


def coupons_make(db, rng, coupon_new, count):
    """Twice `count` coupons, the second half like the first."""
    terms = [(rng.choice([3, 8, 1000]), rng.randrange(1, 3)) for _ in range(count)]
    generations = [rng.choice([1, 1, 2]) for _ in range(count)]
    made = [[coupon_new(total=total, limit=limit) for total, limit in terms] for _ in range(2)]
    for half in made:
        for coupon, generation in zip(half, generations, strict=True):
            db.execute("UPDATE coupon SET generation = %s WHERE id = %s", generation, coupon)
    return made


def receives_make(rng, coupons, generations, seqs, earlier):
    """Mostly new ones of the current generation, so that many calls have nothing else."""
    is_plain, found = rng.random() < 0.5, []
    for _ in range(rng.randrange(1, 12)):
        which = rng.randrange(len(coupons))
        first = seqs[which] = seqs[which] + 1
        if earlier and not is_plain and rng.random() < 0.2:
            found.append(rng.choice(earlier))
            continue
        generation = generations[which]
        if not is_plain and rng.random() < 0.2:
            generation = 3 - generation
        (one,) = batch_make(
            coupons[which],
            [str(rng.randrange(10**9 if is_plain else 8))],
            seq_first=first,
            generation=generation,
            slot=1 if is_plain else rng.randrange(1, 4),
            key=rng.choice(["", "", "a", "b"]),
        )
        found.append(one)
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


@pytest.mark.parametrize("seed", SEEDS)
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
