"""Each transaction of settle() is counted in change_count, in a row that no other one has taken."""

import json

from sql_db import batch_make

STRIPES = 64


def counts(db):
    return {int(row["stripe"]): int(row["num"]) for row in db.query("change_counts")}


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
    own = db.pid % STRIPES
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
    values = ", ".join(["'{}'"] * 10)
    ((plan,),) = db.execute(f"EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE settle({values})")
    plan = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    assert plan["Node Type"] == "Append" and not plan["Parallel Aware"]
    first, last = plan["Plans"]
    assert first["Function Name"] == "settle" and "change_note()" in str(last["Output"])


def test_a_taken_row_is_passed_over(db, db_new, coupon_new):
    coupon, own, other = coupon_new(), db.pid % STRIPES, db_new()
    stripes_take(other, own, (own + 1) % STRIPES)
    before = counts(db)
    db.settle(*batch_make(coupon, ["1"]))
    assert change_of(db) == ((own + 2) % STRIPES, before[(own + 2) % STRIPES] + 1)
    other.execute("ROLLBACK")
    db.settle(*batch_make(coupon, ["2"]))
    assert change_of(db) == (own, before[own] + 1)


def test_without_a_free_row_it_does_not_wait(db, db_new, coupon_new):
    coupon, other = coupon_new(), db_new()
    stripes_take(other, *range(STRIPES))
    before = counts(db)
    db.execute("SET statement_timeout = '5s'")
    assert db.settle(*batch_make(coupon, ["1"])) == ["issued"]
    assert db.change is None and grown(db, before) == {}
    other.execute("ROLLBACK")
