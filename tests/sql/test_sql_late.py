"""Receives of older generations: their outcomes are recorded for Redis, and a key that Redis lost
gives no second coupon."""

import uuid

import pytest
from sql_db import Receive, array_text, batch_make


def rebuilt(db, coupon_new, generation=2, **terms):
    coupon = coupon_new(**terms)
    db.execute("UPDATE coupon SET generation = %s WHERE id = %s", generation, coupon)
    for older in range(1, generation):
        db.execute("INSERT INTO coupon_generation VALUES (%s, %s, 0, 0)", coupon, older)
    return coupon


def late(db, coupon):
    return db.execute(
        "SELECT num, generation, seq, user_id, slot, batch, idx, key, reason FROM coupon_late"
        " WHERE coupon_id = %s"
        " ORDER BY num", coupon)  # fmt: skip


def late_num(db, coupon):
    return db.execute("SELECT late_num FROM coupon WHERE id = %s", coupon)[0][0]


@pytest.mark.parametrize("users", [["7"], ["7", "8", "9"]])
def test_what_is_of_this_generation_is_not_late(db, coupon_new, users):
    coupon = rebuilt(db, coupon_new)
    assert db.settle(*batch_make(coupon, users, generation=2)) == ["issued"] * len(users)
    assert (late(db, coupon), late_num(db, coupon)) == ([], 0)


@pytest.mark.parametrize("users", [["7"], ["7", "8"]])
def test_each_late_outcome_once_and_numbered(db, coupon_new, users):
    coupon = rebuilt(db, coupon_new)
    batch = batch_make(coupon, users, seq_first=5, generation=1, key="k")
    assert db.settle(*batch) == ["issued"] * len(users)
    assert late(db, coupon) == [
        (n + 1, 1, 5 + n, one.user, 1, one.batch, n, "k", None) for n, one in enumerate(batch)
    ]
    assert db.settle(*batch) == ["repeated"] * len(users)
    assert late_num(db, coupon) == len(late(db, coupon)) == len(users)
    assert db.generations(coupon) == {1: (4 + len(users), len(users))}


def test_late_rejections_and_a_mixture(db, coupon_new):
    coupon, other = rebuilt(db, coupon_new, total=2), rebuilt(db, coupon_new, generation=3)
    db.settle(Receive(coupon, "1", uuid.uuid4(), 0, generation=2))
    old = batch_make(coupon, ["1", "2", "3"], seq_first=1, generation=1)
    assert db.settle(
        *old,
        Receive(other, "4", uuid.uuid4(), 0, generation=2),
        Receive(other, "5", uuid.uuid4(), 0, generation=3),
    ) == ["slot_taken", "issued", "out_of_stock", "issued", "issued"]
    assert [(row[0], row[3], row[8]) for row in late(db, coupon)] == [
        (1, "1", "slot_taken"),
        (2, "2", None),
        (3, "3", "out_of_stock"),
    ]
    assert [(row[0], row[3], row[8]) for row in late(db, other)] == [(1, "4", None)]
    assert (late_num(db, coupon), late_num(db, other)) == (3, 1)
    assert db.audit(coupon, other) == []


def test_a_coupon_that_was_never_loaded_has_nothing_late(db, coupon_new):
    coupon = coupon_new()
    db.settle(*batch_make(coupon, ["1", "2"], generation=8))
    assert (late(db, coupon), late_num(db, coupon)) == ([], 0)


@pytest.mark.parametrize("other", [[], ["50"]])
@pytest.mark.parametrize("generation", [1, 2])
def test_a_key_that_redis_forgot(db, coupon_new, other, generation):
    """User 7 has slot 2 by this key; Redis, after a wipe, gave him slot 1 by the same key."""
    coupon = rebuilt(db, coupon_new, limit=3)
    db.settle(Receive(coupon, "7", uuid.uuid4(), 0, slot=2, generation=1, key="k"))
    again = batch_make(coupon, ["7", *other], seq_first=1, generation=generation, key="k")
    assert db.settle(*again) == ["key_taken"] + ["issued"] * len(other)
    assert db.settle(*again) == ["key_taken"] + ["repeated"] * len(other)
    assert db.settle(
        Receive(coupon, "7", uuid.uuid4(), 0, slot=1, generation=2, key="another")
    ) == ["issued"]
    assert db.settle(Receive(coupon, "7", uuid.uuid4(), 0, slot=3, generation=2)) == [
        "issued"
    ], "without a key: another one"
    assert db.audit(coupon) == []


def test_one_key_twice_in_one_call(db, coupon_new):
    coupon = rebuilt(db, coupon_new, limit=3)
    first = Receive(coupon, "7", uuid.uuid4(), 0, slot=1, generation=1, seq=9, key="k")
    second = Receive(coupon, "7", uuid.uuid4(), 0, slot=2, generation=2, seq=1, key="k")
    assert db.settle(second, first) == ["key_taken", "issued"], "the earlier one holds it"
    assert [row[1] for row in db.rows(coupon)] == [1]
    assert db.audit(coupon) == []


def test_a_slot_that_a_doubled_key_was_in_the_way_of(db, coupon_new):
    """The receive that conflicts with it is neither lost nor rejected."""
    coupon = rebuilt(db, coupon_new, limit=3)
    db.settle(Receive(coupon, "7", uuid.uuid4(), 0, slot=2, generation=1, key="k"))
    doubled = Receive(coupon, "7", uuid.uuid4(), 0, slot=1, generation=2, seq=1, key="k")
    rightful = Receive(coupon, "7", uuid.uuid4(), 1, slot=1, generation=2, seq=2)
    assert db.settle_retrying(doubled) == ["key_taken"]
    assert db.settle_retrying(rightful) == ["issued"]


def test_in_the_first_generation_keys_are_the_scripts(db, coupon_new):
    coupon = rebuilt(db, coupon_new, generation=1, limit=3)
    batch = uuid.uuid4()
    one, two = (
        Receive(coupon, "7", batch, n, slot=n + 1, seq=n + 1, generation=1, key="k")
        for n in range(2)
    )
    assert db.settle(one, two) == ["issued"] * 2


def lost(db, coupon, *receives):
    fields = ("generation", "batch", "idx", "user", "slot", "at_ms")
    rows = db.query(
        "receive_lost",
        coupon,
        *(array_text(getattr(one, field) for one in receives) for field in fields),
    )
    return [int(row["ord"]) for row in rows]


def test_lost_receives_are_rejected_for_ever(db, coupon_new):
    coupon = rebuilt(db, coupon_new)
    issued, gone = batch_make(coupon, ["1", "2"], generation=2)
    old = Receive(coupon, "3", uuid.uuid4(), 0, generation=1, seq=4)
    db.settle(issued)
    assert lost(db, coupon, issued, gone, old) == [2, 3]
    assert lost(db, coupon, issued, gone, old) == []
    assert db.counts(coupon) == (1, 2, 2)
    assert db.generations(coupon) == {1: (1, 1)}
    assert [(row[1], row[3], row[8]) for row in late(db, coupon)] == [(1, "3", "lost")]
    assert db.settle(issued, gone, old) == ["repeated", "lost", "lost"]
    assert db.counts(coupon) == (1, 2, 2), "not counted twice"
    assert db.audit(coupon) == []


def test_numbers_given_up(db, coupon_new):
    coupon = rebuilt(db, coupon_new, generation=3)
    db.settle(*batch_make(coupon, ["1", "2"], seq_first=4, generation=1))
    assert db.query("generation_lost", coupon, 1, 9, 3) == [{"lost_num": "4"}]
    assert db.query("generation_lost", coupon, 1, 9, 3) == []
    assert db.query("generation_lost", coupon, 1, 9, 0) == [{"lost_num": "3"}]
    assert db.query("generation_lost", coupon, 1, 9, 0) == []
    assert db.query("generation_lost", coupon, 2, 0, 0) == []
    assert db.generations(coupon)[1] == (9, 9)


def test_a_receive_whose_number_was_given_up_arrives(db, coupon_new):
    """Without a name it got no tombstone."""
    coupon = rebuilt(db, coupon_new)
    db.execute("UPDATE coupon_generation SET seq_seen = 3 WHERE coupon_id = %s", coupon)
    db.query("generation_lost", coupon, 1, 0, 0)
    assert db.settle(Receive(coupon, "1", uuid.uuid4(), 0, seq=2, generation=1)) == ["issued"]
    assert db.generations(coupon) == {1: (4, 4)}, "not more receives than numbers"


def test_lost_receives_are_counted_where_numbers_are_in_flight(db, coupon_new):
    """A caller that does not know the generations says that all are of the latest."""
    coupon = rebuilt(db, coupon_new, generation=4)
    for generation, seq in ((1, 2), (2, 0), (3, 1)):
        values = (seq, coupon, generation)
        db.execute(
            "UPDATE coupon_generation SET seq_seen = %s WHERE coupon_id = %s AND generation = %s",
            *values,
        )
    gone = [Receive(coupon, user, uuid.uuid4(), 0, generation=3) for user in "1234"]
    assert lost(db, coupon, *gone[:2]) == [1, 2]
    assert db.generations(coupon) == {1: (2, 1), 2: (0, 0), 3: (1, 1)}
    assert lost(db, coupon, *gone[2:]) == [1, 2]
    assert db.generations(coupon) == {1: (2, 2), 2: (0, 0), 3: (2, 2)}


# Folded generations

KEPT = 100  # of sql/function/coupon_generation_open.sql


def generation_open(db, coupon, times=1):
    for _ in range(times):
        fence = db.execute("SELECT fence FROM keeper")[0][0]
        now = db.execute("SELECT generation FROM coupon WHERE id = %s", coupon)[0][0]
        (opened,) = db.query("coupon_generation_open", coupon, now, 0, fence)
    return int(opened["generation"])


def sums(db, coupon):
    rows = db.generations(coupon).values()
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


def test_the_oldest_generations_are_folded(db, coupon_new):
    coupon = coupon_new(total=1000)
    assert generation_open(db, coupon) == 1
    db.settle(*batch_make(coupon, ["1", "2"], seq_first=4, generation=1))  # 3 are in flight
    generation_open(db, coupon)
    db.settle(*batch_make(coupon, ["3"], generation=2))
    generation_open(db, coupon, times=KEPT)
    assert db.generations(coupon)[0] == (5, 2)
    generation_open(db, coupon)
    assert db.generations(coupon)[0] == (6, 3)
    assert len(db.generations(coupon)) == 1 + KEPT
    generation_open(db, coupon, times=50)
    assert (len(db.generations(coupon)), sums(db, coupon)) == (1 + KEPT, (6, 3))


def test_late_receives_of_folded_generations(db, coupon_new):
    coupon = coupon_new(total=1000)
    generation_open(db, coupon)
    db.settle(*batch_make(coupon, ["1"], seq_first=3, generation=1))  # 2 are in flight
    generation_open(db, coupon, times=KEPT + 10)
    old, other = batch_make(coupon, ["2", "3"], generation=1)
    assert db.settle(old, other.but(generation=2, seq=70)) == ["issued"] * 2
    assert db.generations(coupon)[0] == (3, 3)
    assert db.settle(old) == ["repeated"]
    assert lost(db, coupon, Receive(coupon, "4", uuid.uuid4(), 0, generation=1)) == [1]
    assert db.generations(coupon)[0] == (4, 4)
    assert min(number for number in db.generations(coupon) if number) == 11
    assert db.audit(coupon) == []
