"""settle() from several connections at once."""

import random
import uuid
from collections import Counter

import psycopg
import pytest
from seed import seeds
from sql_db import Db, Receive, array_text, batch_make, users_make
from stack import wait_until
from user_ids import user_ids_random


def begin_settle(db, *receives):
    db.execute("BEGIN")
    return db.settle(*receives)


def test_copy_waits_and_is_repeated(db, db_new, coupon_new, background):
    """The rows that a copy waited for are visible to its decision, unlike in the snapshot of a
    single statement."""
    coupon = coupon_new()
    batch = batch_make(coupon, ["1", "2"])
    assert begin_settle(db, *batch) == ["issued", "issued"]
    other = db_new()
    copy = background(other.settle, *reversed(batch))
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert copy.result() == ["repeated", "repeated"]
    assert db.counts(coupon) == (2, 2, 2)


def test_copy_is_issued_when_the_first_rolls_back(db, db_new, coupon_new, background):
    coupon = coupon_new()
    batch = batch_make(coupon, ["1", "2"])
    begin_settle(db, *batch)
    other = db_new()
    copy = background(other.settle, *batch)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("ROLLBACK")
    assert copy.result() == ["issued", "issued"]


def test_copy_waits_for_another_receive_and_finds_its_slot_taken(
    db, db_new, coupon_new, background
):
    coupon = coupon_new()
    first, other_receive = Receive(coupon, "1", uuid.uuid4(), 0), Receive(
        coupon, "1", uuid.uuid4(), 0, seq=2
    )
    begin_settle(db, first)
    other = db_new()
    running = background(other.settle, other_receive)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert running.result() == ["slot_taken"]


@pytest.mark.parametrize(
    "copied, expected",
    [
        (slice(0, 2), ["repeated", "out_of_stock"]),
        (slice(1, 2), ["out_of_stock"]),  # the whole call is stored, within the stock
    ],
)
def test_copy_of_a_receive_that_is_surplus_elsewhere(
    db, db_new, coupon_new, background, copied, expected
):
    """Its row is free when the copy continues, and there is stock: only the tombstone stops it."""
    coupon = coupon_new(total=1)
    batch = batch_make(coupon, ["1", "2"])
    db.execute("BEGIN")
    assert db.settle(*batch) == ["issued", "out_of_stock"]
    db.query("coupon_total_set", coupon, 10)
    other = db_new()
    copy = background(other.settle, *batch[copied])
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert copy.result() == expected
    assert db.counts(coupon) == (1, 2, 2)
    assert db.audit(coupon) == []


@pytest.mark.parametrize("fresh_num", [0, 1, 30])
def test_call_is_counted_anew_when_a_tombstone_appears(
    db, db_new, coupon_new, background, fresh_num
):
    """It waits with all its rows inserted and enough stock; then some of its receives are found to
    be rejected."""
    coupon = coupon_new(total=0)
    rejected = batch_make(coupon, ["1", "2"], seq_first=5)
    fresh = batch_make(coupon, users_make(11, 11 + fresh_num))
    db.execute("BEGIN")
    assert db.settle(*rejected) == ["out_of_stock"] * 2
    db.query("coupon_total_set", coupon, 100)
    other = db_new()
    running = background(other.settle, *fresh, rejected[1])
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert running.result() == ["issued"] * fresh_num + ["out_of_stock"]
    assert db.counts(coupon) == (fresh_num, max(6, fresh_num), fresh_num + 2)
    assert db.rows(coupon) == [(r.user, 1, r.batch, r.idx) for r in fresh]
    assert db.audit(coupon) == []


def tombstone_wait(db, db_new, coupon, background, late, *receives):
    """A call that waits while the first receive becomes a rejected one. Returns it when it has
    seen the end of that."""
    db.execute("BEGIN")
    assert db.settle(late) == ["out_of_stock"]
    db.query("coupon_total_set", coupon, 100)
    other = db_new()
    running = background(other.settle, *receives)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    return running


def test_tombstone_appears_while_another_receive_wants_the_slot(db, db_new, coupon_new, background):
    """The call cannot insert both rows, begins again, and sees the tombstone."""
    coupon = coupon_new(total=0)
    late, rightful = batch_make(coupon, ["1"]) + batch_make(coupon, ["1"], seq_first=2)
    running = tombstone_wait(db, db_new, coupon, background, late, late, rightful)
    assert running.result() == ["out_of_stock", "issued"]
    assert db.audit(coupon) == []


def test_tombstone_appears_after_a_call_has_begun_again(db, db_new, coupon_new, background):
    """The late copy is stored before its tombstone is visible, and blocks the receive that owns the
    slot: retried."""
    coupon = coupon_new(total=1)
    late, rightful = batch_make(coupon, ["1"]) + batch_make(coupon, ["1"], seq_first=2)
    (stored,) = batch_make(coupon, ["0"], seq_first=3)
    assert db.settle(stored) == ["issued"]
    running = tombstone_wait(db, db_new, coupon, background, late, stored, late, rightful)
    with pytest.raises(psycopg.errors.SerializationFailure):
        running.result()
    assert db.settle(stored, late, rightful) == ["repeated", "out_of_stock", "issued"]
    assert db.audit(coupon) == []


def test_slot_in_the_way_was_given_back(db, db_new, coupon_new, background):
    """The row that blocked this one is gone under the lock: it is neither stored nor rejected, so
    it is retried."""
    coupon = coupon_new()
    first, second = Receive(coupon, "1", uuid.uuid4(), 0), Receive(
        coupon, "1", uuid.uuid4(), 0, seq=2
    )
    assert db.settle(first) == ["issued"]
    db.execute("BEGIN")
    db.query("coupon_lock", coupon)
    other = db_new()
    running = background(other.settle, second)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("DELETE FROM user_coupon WHERE user_id = '1' AND coupon_id = %s", coupon)
    db.execute("UPDATE coupon SET issued_num = 0 WHERE id = %s", coupon)
    db.execute("COMMIT")
    with pytest.raises(psycopg.errors.SerializationFailure):
        running.result()
    assert db.settle(second) == ["issued"]


def test_coupon_is_not_created_while_a_receive_of_it_is_rejected(db, db_new, coupon_id, background):
    unknown = coupon_id()
    receive = Receive(unknown, "1", uuid.uuid4(), 0)
    assert begin_settle(db, receive) == ["unknown_coupon"]
    other = db_new()
    creation = background(other.coupon_create, unknown, 1)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert creation.result() == [{"id": str(unknown)}]
    assert db.settle(receive) == ["unknown_coupon"]
    assert db.audit(unknown) == []


def test_coupon_that_is_created_meanwhile_is_found(db, db_new, coupon_id, background):
    coupon = coupon_id()
    receive = Receive(coupon, "1", uuid.uuid4(), 0)
    db.execute("BEGIN")
    db.coupon_create(coupon, 1)
    other = db_new()
    running = background(other.settle, receive)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    with pytest.raises(psycopg.errors.SerializationFailure):
        running.result()
    assert db.settle(receive) == ["issued"]


def test_counts_of_a_generation_that_ends_meanwhile(db, db_new, coupon_new, background):
    """Opening a generation waits for what is being settled and moves its counts too."""
    coupon = coupon_new()
    db.execute("UPDATE coupon SET generation = 1 WHERE id = %s", coupon)
    begin_settle(db, *batch_make(coupon, ["1", "2"], generation=1))
    other = db_new()
    other.execute("BEGIN")
    fence = other.execute("SELECT fence FROM keeper")[0][0]
    opened = background(other.query, "coupon_generation_open", coupon, 1, 0, fence)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert opened.result() == [{"generation": "2"}]
    other.execute("COMMIT")
    assert db.counts(coupon) == (2, 0, 0)
    assert db.generations(coupon) == {1: (2, 2)}


@pytest.mark.parametrize("users", [["3"], ["3", "4"]])
def test_generation_ends_while_a_receive_of_it_waits(db, db_new, coupon_new, background, users):
    coupon = coupon_new()
    db.execute("UPDATE coupon SET generation = 1 WHERE id = %s", coupon)
    db.settle(*batch_make(coupon, ["1"], seq_first=9, generation=1))
    db.execute("BEGIN")
    fence = db.execute("SELECT fence FROM keeper")[0][0]
    assert db.query("coupon_generation_open", coupon, 1, 0, fence) == [{"generation": "2"}]
    other = db_new()
    running = background(other.settle, *batch_make(coupon, users, seq_first=20, generation=1))
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert running.result() == ["issued"] * len(users)
    assert db.counts(coupon) == (1 + len(users), 0, 0)
    assert db.generations(coupon) == {1: (19 + len(users), 1 + len(users))}


@pytest.mark.parametrize("users", [["2"], ["2", "3"]])
def test_stock_ends_while_a_receive_waits(db, db_new, coupon_new, background, users):
    coupon = coupon_new(total=2)
    begin_settle(db, *batch_make(coupon, ["10", "11"], seq_first=1))
    other = db_new()
    running = background(other.settle, *batch_make(coupon, users, seq_first=3))
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert running.result() == ["out_of_stock"] * len(users)
    assert db.counts(coupon) == (2, 2 + len(users), 2 + len(users))
    assert db.audit(coupon) == []


@pytest.mark.parametrize(
    "name, wanted", [("coupon_total_set", 50), ("coupon_status_set", "published")]
)
def test_terms_change_while_settling(db, db_new, coupon_new, background, name, wanted):
    coupon = coupon_new()
    begin_settle(db, *batch_make(coupon, ["1", "2"]))
    other = db_new()
    other.execute("BEGIN")
    change = background(other.query, name, coupon, wanted)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    row = change.result()[0]
    assert (row["version"], row.get("total_num") or row["status"]) == ("2", str(wanted))
    assert row.get("issued_num") in (None, "2")
    assert other.counts(coupon) == (2, 2, 2)
    other.execute("ROLLBACK")


def test_two_copies_in_opposite_order_never_deadlock(db_new, coupon_new, background):
    """Full stock, then a stock that ends within the batch, while the rows of one copy are deleted
    during the other."""
    one, two = db_new(), db_new()
    for total in [200] * 30 + [35] * 30:
        coupon = coupon_new(total=total)
        batch = batch_make(coupon, users_make(1, 61))
        running = background(two.settle_retrying, *reversed(batch))
        first = one.settle_retrying(*batch)
        second = list(reversed(running.result()))
        expected = ["issued"] * min(total, 60) + ["out_of_stock"] * (60 - min(total, 60))
        for position, outcomes in enumerate(zip(first, second)):
            if expected[position] == "issued":
                assert sorted(outcomes) == ["issued", "repeated"]
            else:
                assert outcomes == ("out_of_stock", "out_of_stock")
        assert one.counts(coupon) == (min(total, 60), 60, 60)
        assert one.audit(coupon) == []


def test_two_calls_with_coupons_in_opposite_order_never_deadlock(db_new, coupon_new, background):
    one, two = db_new(), db_new()
    for _ in range(30):
        coupons = [coupon_new(total=5) for _ in range(4)]
        mine = [r for coupon in coupons for r in batch_make(coupon, users_make(1, 5))]
        yours = [
            r
            for coupon in reversed(coupons)
            for r in batch_make(coupon, users_make(11, 15), seq_first=5)
        ]
        running = background(two.settle_retrying, *yours)
        outcomes = Counter(one.settle_retrying(*mine) + running.result())
        assert outcomes == {"issued": 20, "out_of_stock": 12}
        assert one.audit(*coupons) == []


def test_two_calls_that_reject_the_same_never_deadlock(db_new, coupon_id, background):
    """No coupon's lock guards the tombstones of an unknown coupon, only their order."""
    one, two = db_new(), db_new()
    for _ in range(30):
        batch = batch_make(coupon_id(), users_make(1, 401))
        running = background(two.settle_retrying, *reversed(batch))
        assert one.settle_retrying(*batch) == ["unknown_coupon"] * 400
        assert running.result() == ["unknown_coupon"] * 400


def receives_random(rng, coupons, unknown):
    """Batches of receives, some of them for a slot of another receive, a slot that does not exist,
    or an unknown coupon."""
    seqs = Counter()
    users = user_ids_random(rng, 150)
    batches = []
    for _ in range(60):
        coupon = rng.choice([*coupons, *coupons, unknown])
        generation = rng.choice([0, 0, 0, 1])
        batch = uuid.UUID(int=rng.getrandbits(128))
        receives = []
        for index in range(rng.randrange(1, 30)):
            seqs[coupon, generation] += 1
            receives.append(
                Receive(
                    coupon,
                    rng.choice(users),
                    batch,
                    index,
                    slot=rng.choice([1, 1, 1, 2, 2, 3, 0]),
                    generation=generation,
                    seq=seqs[coupon, generation],
                    key=rng.choice(["", "k'\"\\,{}"]),
                )
            )
        batches.append(receives)
    return batches


def calls_random(rng, batches):
    """Each batch two to four times, several in a call, in any order; one copy alone, or split into
    receives."""
    copies = [batch for batch in batches for _ in range(rng.randrange(1, 4))]
    rng.shuffle(copies)
    calls = []
    for batch in batches:
        calls += rng.choice([[[receive] for receive in batch], [batch]])
    while copies:
        size = rng.randrange(1, 6)
        call = [receive for batch in copies[:size] for receive in batch]
        rng.shuffle(call)
        calls.append(call)
        del copies[:size]
    rng.shuffle(calls)
    return calls


@pytest.mark.parametrize("seed", seeds(6))
def test_every_receive_has_one_outcome_whatever_happens(
    db, db_new, coupon_new, coupon_id, background, seed
):
    rng = random.Random(seed)
    limits = [1, 2, 3]
    coupons = [coupon_new(total=rng.choice([0, 20, 60, 10**6]), limit=limit) for limit in limits]
    unknown = coupon_id()
    batches = receives_random(rng, coupons, unknown)
    calls = calls_random(rng, batches)
    shares = [calls[worker::4] for worker in range(4)]

    def work(connection: Db, share):
        return [
            (receive, outcome)
            for call in share
            for receive, outcome in zip(call, connection.settle_retrying(*call))
        ]

    workers = [background(work, db_new(), share) for share in shares]
    told = [pair for worker in workers for pair in worker.result()]

    outcomes = {}
    for receive, outcome in told:
        outcomes.setdefault(receive, Counter())[outcome] += 1
    assert set(outcomes) == {receive for batch in batches for receive in batch}
    for receive, seen in outcomes.items():
        issued = "issued" in seen
        if issued:
            assert seen["issued"] == 1 and set(seen) <= {"issued", "repeated"}, (receive, seen)
        else:
            assert len(seen) == 1 and "repeated" not in seen, (receive, seen)
        stored = db.outcomes(
            "receive_outcome", (receive.coupon, receive.user, receive.batch, receive.idx)
        )
        assert [(row["state"], row["reason"]) for row in stored] == [
            ("issued", None) if issued else ("rejected", next(iter(seen)))
        ]

    assert db.audit(*coupons, unknown) == []
    assert db.rows(unknown) == []
    for coupon in coupons:
        of_coupon = [receive for receive in outcomes if receive.coupon == coupon]
        of_generation = {
            number: [r.seq for r in of_coupon if r.generation == number] for number in (0, 1)
        }
        assert db.counts(coupon) == (
            sum("issued" in outcomes[r] for r in of_coupon),
            max(of_generation[0], default=0),
            len(of_generation[0]),
        )
        expected = {1: (max(of_generation[1]), len(of_generation[1]))} if of_generation[1] else {}
        assert db.generations(coupon) == expected


def test_a_look_shows_the_coupons_that_others_have_locked(db, db_new, coupon_new):
    """Not those whose user coupons alone are locked, nor those that are locked weakly."""
    coupons = [coupon_new() for _ in range(5)]
    operator = db_new()
    operator.execute("BEGIN")
    for coupon, lock in zip(coupons, ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE")):
        operator.execute(f"SELECT FROM coupon WHERE id = {coupon} FOR {lock}")

    def look():
        rows = db.query("coupon_locked", array_text([*coupons, 1]))
        return {int(row["id"]) for row in rows}

    assert look() == set(coupons[:3])
    operator.execute("ROLLBACK")
    assert look() == set()


@pytest.mark.parametrize("name, is_shown", [("psql", True), ("coupon-worker put off", False)])
def test_a_look_does_not_show_what_workers_settle(db, db_new, coupon_new, name, is_shown):
    """Their transactions end by themselves. The lock is that of an UPDATE here."""
    coupon = coupon_new()
    other = db_new()
    other.execute(f"SET application_name = '{name}'")
    begin_settle(other, *batch_make(coupon, ["1", "2"]))
    shown = [{"id": str(coupon)}] if is_shown else []
    assert db.query("coupon_locked", array_text([coupon])) == shown
    other.execute("COMMIT")
    assert db.query("coupon_locked", array_text([coupon])) == []
