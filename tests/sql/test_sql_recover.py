"""The counts of a coupon after couponctl recover, and what its session counts."""

import pytest
from sql_db import array_text, batch_make


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
