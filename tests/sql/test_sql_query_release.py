"""The statements by which rejected receives are given back."""

import uuid

from sql_db import Receive, array_text, batch_make, users_make


def release_pending(db, *coupons, page=256):
    """The pending receives of these coupons, read in pages; those of other coupons are skipped."""
    found, after = [], (min(coupons) - 1, uuid.UUID(int=0), 0)
    while rows := db.query("release_pending", *after, page):
        assert len(rows) <= page
        found += rows
        after = tuple(rows[-1][name] for name in ("coupon_id", "batch", "idx"))
    return [row for row in found if int(row["coupon_id"]) in coupons]


def release_done(db, *receives):
    columns = (
        array_text(getattr(one, field) for one in receives) for field in ("coupon", "batch", "idx")
    )
    db.query("release_done", *columns)


def test_release_pending_tells_who_has_the_slot(db, coupon_new, coupon_id):
    db.execute("BEGIN")  # not visible to a running keeper
    coupon, full, nowhere = coupon_new(total=10), coupon_new(total=1), coupon_id()
    holder = Receive(coupon, "1", uuid.uuid4(), 5, key="its: key")
    db.settle(holder)
    rejected = [
        Receive(coupon, "1", uuid.uuid4(), 9, key="k"),
        Receive(coupon, "2", uuid.uuid4(), 0, slot=2),
        *batch_make(full, ["1", "2"])[1:],
        Receive(nowhere, "1", uuid.uuid4(), 0),
    ]
    db.settle(Receive(full, "7", uuid.uuid4(), 0))
    assert db.settle(*rejected) == ["slot_taken", "slot_invalid", "out_of_stock", "unknown_coupon"]
    expected = [
        {
            "coupon_id": str(one.coupon),
            "batch": str(one.batch),
            "idx": str(one.idx),
            "user_id": one.user,
            "slot": str(one.slot),
            "reason": reason,
            "holder_batch": str(holder.batch) if reason == "slot_taken" else None,
            "holder_idx": "5" if reason == "slot_taken" else None,
            "holder_key": "its: key" if reason == "slot_taken" else "",
            "is_over": "t",
        }
        for one, reason in zip(
            rejected, ("slot_taken", "slot_invalid", "out_of_stock", "unknown_coupon")
        )
    ]
    expected.sort(key=lambda row: (int(row["coupon_id"]), row["batch"], int(row["idx"])))
    assert release_pending(db, coupon, full, nowhere) == expected
    assert release_pending(db, coupon, full, nowhere, page=1) == expected
    db.execute("ROLLBACK")


def test_released_ones_are_not_pending(db, coupon_new):
    db.execute("BEGIN")
    coupon = coupon_new(total=1)
    batch = batch_make(coupon, users_make(1, 12))
    db.settle(*batch)
    left = sorted(str(one.idx) for one in batch[1:])
    release_done(db, batch[0], *batch[3:6])  # the first was issued
    for one in batch[3:6]:
        left.remove(str(one.idx))
    assert sorted(row["idx"] for row in release_pending(db, coupon)) == left
    when = (
        "SELECT idx, released_at FROM receive_rejected WHERE coupon_id = %s AND released_at IS"
        " NOT NULL ORDER BY idx"
    )
    marked = db.execute(when, coupon)
    assert [row[0] for row in marked] == [one.idx for one in batch[3:6]]
    release_done(db, *batch[3:6])
    assert db.execute(when, coupon) == marked
    assert db.settle(*batch[3:6]) == ["out_of_stock"] * 3
    assert len(db.tombstones(coupon)) == 10
    db.execute("ROLLBACK")


def test_releasing_waits_for_nobody(db, db_new, coupon_new):
    coupon = coupon_new(total=1)
    batch = batch_make(coupon, ["1", "2", "3"])
    db.settle(*batch)
    other = db_new()
    other.execute("BEGIN")
    other.execute(
        "SELECT FROM receive_rejected WHERE coupon_id = %s AND idx = 1 FOR UPDATE", coupon
    )
    db.execute("SET lock_timeout = '2s'")
    release_done(db, *batch)
    marked = "SELECT released_at IS NOT NULL FROM receive_rejected WHERE coupon_id = %s AND idx = 2"
    assert db.execute(marked, coupon) == [(True,)]
    other.execute("ROLLBACK")
    db.execute("RESET lock_timeout")
