"""What couponctl recover needs: the count of each transaction of settle() in change_count, in a row
that no other one has taken; and the counts of a coupon after it."""

import json

import pytest

from sql_db import array_text, batch_make


# Transactions are counted


STRIPES = 64
OTHERS, SETTLED = range(STRIPES), range(STRIPES, 2 * STRIPES)


def counts(db):
    return {int(row["stripe"]): int(row["num"]) for row in db.query("change_counts")}


def own_of(db, stripes=SETTLED, further=0):
    """The row that its transactions take, or one that comes after that."""
    return stripes[(db.pid + further) % STRIPES]


def grown(db, before):
    return {stripe: num for stripe, num in counts(db).items() if num != before[stripe]}


def change_of(db):
    stripe, num = db.change.split(":")
    return int(stripe), int(num)


def stripes_take(db, *stripes):
    """As transactions that are not over yet."""
    db.execute("BEGIN")
    for stripe in stripes:
        db.execute("SELECT pg_advisory_xact_lock('change_count'::regclass::int, %s)", stripe)


def test_each_call_is_counted(db, coupon_new):
    coupon = coupon_new()
    batch = batch_make(coupon, ["1", "2"])
    own = own_of(db)
    for receives in (batch, batch, ()):  # issued, repeated, none
        before = counts(db)
        db.settle(*receives)
        assert change_of(db) == (own, before[own] + 1)
        assert grown(db, before) == {own: before[own] + 1}


def test_the_number_is_of_the_same_transaction(db, coupon_new):
    coupon, before = coupon_new(), counts(db)
    db.execute("BEGIN")
    db.settle(*batch_make(coupon, ["1"]))
    assert list(grown(db, before).items()) == [change_of(db)]
    db.execute("ROLLBACK")
    assert db.rows(coupon) == [] and grown(db, before) == {}


def test_it_is_counted_after_settling(db):
    db.prepare("settle")
    values = ", ".join(["'{}'"] * 11)
    ((plan,),) = db.execute(f"EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE settle({values})")
    plan = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    assert plan["Node Type"] == "Append" and not plan["Parallel Aware"]
    first, last = plan["Plans"]
    assert first["Function Name"] == "settle" and "change_note(true)" in str(last["Output"])


def test_a_taken_row_is_passed_over(db, db_new, coupon_new):
    coupon, own, other = coupon_new(), own_of(db), db_new()
    stripes_take(other, own, own_of(db, further=1))
    before = counts(db)
    db.settle(*batch_make(coupon, ["1"]))
    assert change_of(db) == (own_of(db, further=2), before[own_of(db, further=2)] + 1)
    other.execute("ROLLBACK")
    db.settle(*batch_make(coupon, ["2"]))
    assert change_of(db) == (own, before[own] + 1)


def test_without_a_free_row_it_does_not_wait(db, db_new, coupon_new):
    coupon, other = coupon_new(), db_new()
    stripes_take(other, *SETTLED)
    before = counts(db)
    db.execute("SET statement_timeout = '5s'")
    assert db.settle(*batch_make(coupon, ["1"])) == ["issued"]
    assert db.change is None and grown(db, before) == {}
    other.execute("ROLLBACK")


def test_what_does_more_than_to_settle_is_counted_apart(db, coupon_new):
    coupon, before = coupon_new(status="closed"), counts(db)
    db.execute("UPDATE coupon SET version = version + 1 WHERE id = %s", coupon)
    own = own_of(db, OTHERS)
    assert grown(db, before) == {own: before[own] + 1}
    db.execute("UPDATE coupon SET settled_at = now() WHERE id = %s", coupon)
    before = counts(db)
    db.settle(*batch_make(coupon, ["1"]))
    assert grown(db, before) == {
        stripe: before[stripe] + 1 for stripe in (own, own_of(db))
    }, "a further outcome of a coupon that was settled"


# After couponctl recover


@pytest.fixture
def begun(db, coupon_new):
    """A coupon that PostgreSQL has in generation 1 with 2 of 3 receives settled, and Redis in
    generation 4."""
    coupon = coupon_new(total=100)
    db.execute("UPDATE coupon SET generation = 1 WHERE id = %s", coupon)
    db.settle(*batch_make(coupon, ["1", "3"], generation=1, seq_first=2))
    assert db.query("recover_begin", coupon, 4) == [{"generation": "4"}]
    assert db.generations(coupon) == {1: (3, 2)} and db.counts(coupon) == (2, 0, 0)
    return coupon


def end(db, coupon, own_owed=0, older_owed=0, highs=None):
    highs = highs or {1: 5, 3: 2, 4: 9}
    row = db.query(
        "recover_end",
        coupon, 4, array_text(highs), array_text(highs.values()), own_owed, older_owed,
    )  # fmt: skip
    return int(row[0]["generation"])


def test_a_coupon_that_is_not_there(db):
    assert db.query("recover_begin", 1, 4) == [{"generation": None}]
    assert db.query("recover_end", 1, 4, "{4}", "{9}", 0, 0) == [{"generation": None}]


def test_nothing_is_in_flight(db, begun):
    assert db.settle(*batch_make(begun, ["7"], generation=4)) == ["issued"]
    assert end(db, begun) == 5
    assert db.generations(begun) == {1: (5, 5), 3: (2, 2), 4: (9, 9)}
    assert db.counts(begun) == (3, 0, 0)


def test_what_is_owed_is_in_flight(db, begun):
    """In which of the older generations is not known."""
    assert end(db, begun, own_owed=1, older_owed=3) == 5
    assert db.generations(begun) == {0: (7, 4), 4: (9, 8)}
    assert end(db, begun, own_owed=1, older_owed=3) == 6
    assert db.generations(begun) == {0: (7, 4), 4: (9, 8), 5: (0, 0)}
    db.settle(*batch_make(begun, ["7", "8", "9"], generation=1, seq_first=3))
    assert db.generations(begun) == {0: (7, 7), 4: (9, 8), 5: (0, 0)}


def test_it_may_be_repeated(db, begun):
    assert end(db, begun, own_owed=1) == 5
    assert db.query("recover_begin", begun, 4) == [{"generation": "5"}]
    assert end(db, begun, own_owed=1) == 6
    assert db.generations(begun) == {1: (5, 5), 3: (2, 2), 4: (9, 8), 5: (0, 0)}


def test_what_was_settled_before_its_generation(db, coupon_new):
    coupon = coupon_new()
    db.settle(*batch_make(coupon, ["1"], generation=4))
    assert 4 in db.generations(coupon)
    assert db.query("recover_begin", coupon, 4) == [{"generation": "4"}]
    assert end(db, coupon) == 5


def test_late_outcomes_need_not_be_counted(db, begun):
    db.settle(*batch_make(begun, ["8"], generation=2))
    late = "SELECT count(*) FROM coupon_late WHERE coupon_id = %s"
    assert db.execute(late, begun) == [(1,)]
    end(db, begun)
    assert db.execute(late, begun) == [(0,)]


def test_more_outcomes_than_numbers(db, begun):
    """Receives were settled before it was noticed."""
    db.settle(*batch_make(begun, ["a", "b", "c"], generation=1, seq_first=1))
    assert end(db, begun, highs={4: 1}) == 5
    settled = sum(number for _, number in db.generations(begun).values())
    assert settled >= db.counts(begun)[0] == 5


def test_the_session_counts_nothing(db, begun):
    counts = "SELECT sum(num) FROM change_count"
    before = db.execute(counts)
    db.query("recover_session")
    try:
        db.execute("UPDATE coupon SET version = version + 1 WHERE id = %s", begun)
        assert db.execute(counts) == before
    finally:
        db.execute("RESET couponmq.recovering")
    db.execute("UPDATE coupon SET version = version + 1 WHERE id = %s", begun)
    assert db.execute(counts) > before


# Redis has the end of issuing only


DAYS = [f"2030-01-0{n}T00:00:00+00:00" for n in range(1, 5)]
MS = [1893456000000 + n * 86400000 for n in range(4)]


@pytest.mark.parametrize(
    "end, valid_to, end_ms, wanted, is_guess",
    [
        (None, None, 0, (None, None), False),
        (None, None, MS[1], (DAYS[1], None), False),
        (DAYS[0], None, 0, (None, None), False),
        (None, DAYS[1], MS[1], (None, DAYS[1]), False),
        (DAYS[2], DAYS[1], MS[1], (DAYS[2], DAYS[1]), False),
        (DAYS[0], DAYS[1], MS[1], (DAYS[1], DAYS[1]), False),
        (DAYS[2], DAYS[1], MS[0], (DAYS[0], DAYS[1]), False),
        # The validity was changed, to what is not known.
        (None, DAYS[1], MS[3], (DAYS[3], None), True),
        (DAYS[2], DAYS[1], 0, (None, None), True),
    ],
)
def test_the_end_in_redis_is_that_of_issuing(
    db, coupon_new, end, valid_to, end_ms, wanted, is_guess
):
    """The campaign must neither end with a validity that it no longer has, nor lose its own end."""
    validity = {"valid_from": "2001-01-01T00:00:00Z", "valid_to": valid_to} if valid_to else {}
    coupon = coupon_new(end=end, **validity)
    db.execute("BEGIN")
    db.query("recover_session")
    told = db.query("recover_terms_hash", coupon, "open", 100, 1, 0, end_ms, 7)
    assert told == [{"version": "7", "is_new": "f", "is_guess": "t" if is_guess else "f"}]
    row = db.execute("SELECT to_jsonb(c) FROM coupon AS c WHERE id = %s", coupon)[0][0]
    row = json.loads(row) if isinstance(row, str) else row
    assert (row["end_at"], row["valid_to"]) == wanted
    assert (row["valid_from"] is None) == (row["valid_to"] is None)
    assert db.query("recover_terms_hash", coupon, "open", 100, 1, 0, end_ms, 7) == []
    db.execute("ROLLBACK")
    db.execute("RESET couponmq.recovering")
