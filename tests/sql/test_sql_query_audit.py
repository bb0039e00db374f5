"""The statements of couponctl audit: each finds what is wrong."""

import uuid

from sql_db import Receive, batch_make


def test_audits_find_what_is_wrong(db, owner, coupon_new, coupon_id):
    coupon, nowhere = coupon_new(total=3, limit=2), coupon_id()
    batch = batch_make(coupon, ["1", "2", "3", "4"])
    db.settle(*batch)
    assert db.audit(coupon) == []
    owner.execute("BEGIN")
    add = (
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " VALUES (%s, %s, %s, %s, %s, now(), now())"
    )
    owner.execute(add, "7", nowhere, 1, 0, uuid.uuid4())
    assert owner.audit(nowhere) == [
        (
            "audit_stock",
            {"coupon_id": str(nowhere), "total_num": None, "issued_num": None, "row_num": "1"},
        )
    ]
    owner.execute(add, "1", coupon, 2, batch[3].idx, batch[3].batch)  # the rejected one
    owner.execute(
        add, "1", coupon, 3, batch[2].idx, batch[2].batch
    )  # another user's, and a third slot
    expected = {
        "audit_stock": [
            {"coupon_id": str(coupon), "total_num": "3", "issued_num": "3", "row_num": "5"}
        ],
        "audit_limit": [
            {
                "coupon_id": str(coupon),
                "user_id": "1",
                "user_limit": "2",
                "row_num": "3",
                "slot_min": "1",
                "slot_max": "3",
            }
        ],
        "audit_twice": [
            {
                "what": what,
                "coupon_id": str(coupon),
                "batch": str(batch[0].batch),
                "idx": idx,
                "user_id": "1",
                "slot": slot,
            }
            for what, idx, slot in (("issued_twice", "2", "1"), ("issued_and_rejected", "3", "2"))
        ],
    }
    for name, rows in expected.items():
        assert owner.query(name, coupon) == rows
        everywhere = owner.query(name, None)
        assert all(row in everywhere for row in rows)
    owner.execute("ROLLBACK")


def test_audit_overtaken(db, coupon_new):
    """The newest by both clocks: a gateway whose clock is ahead does not count."""
    coupon = coupon_new()

    def receive(user, made_ms, at_ms, **fields):
        batch = uuid.UUID(int=made_ms << 80)
        return Receive(coupon, user, batch, 0, seq=made_ms, at_ms=at_ms, **fields)

    db.settle(receive("1", 5000, 5100), receive("2", 6000, 6100), receive("3", 99000, 5500))
    assert db.query("audit_overtaken", coupon, 5000) == [{"newest_ms": "6000"}]
    assert db.query("audit_overtaken", coupon, 6100) == [{"newest_ms": None}]
    assert db.settle(receive("4", 7000, 7100, slot=9)) == ["slot_invalid"]
    assert db.query("audit_overtaken", coupon, 5000) == [{"newest_ms": "7000"}]
