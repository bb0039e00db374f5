"""settle() against the model of PostgreSQL that the simulations use (tests/models.c): the same
outcomes and counts of the same messages, copies and all. SEED=n repeats the history whose seed was
n."""

import os
import random

import pytest

from models import Simulated
from seed import seeds
from sql_db import Receive
from ulid import ulid_make, ulid_uuid

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
