"""The statements by which the gateway looks up outcomes and coupons."""

import time
import uuid

from sql_db import Receive, batch_make


def test_receive_outcome(db, coupon_new):
    coupon = coupon_new(total=1, days=1)
    issued, rejected = batch_make(coupon, ["1", "2"])
    db.settle(issued, rejected)
    assert db.query("receive_outcome", coupon, "1", issued.batch, 0) == [
        {
            "state": "issued",
            "slot": "1",
            "reason": None,
            "valid_from": "2023-11-14T22:13:20.123Z",
            "valid_to": "2023-11-15T22:13:20.123Z",
        }
    ]
    assert db.query("receive_outcome", coupon, "2", issued.batch, 1) == [
        {
            "state": "rejected",
            "slot": "1",
            "reason": "out_of_stock",
            "valid_from": None,
            "valid_to": None,
        }
    ]
    # All parts name the receive.
    for wrong in [
        (coupon, "2", issued.batch, 0),
        (coupon, "1", issued.batch, 1),
        (coupon, "1", uuid.uuid4(), 0),
        (coupon - 1, "1", issued.batch, 0),
        (coupon, "1", rejected.batch, 1),
    ]:
        assert db.query("receive_outcome", *wrong) == []


def test_user_outcomes(db, coupon_new):
    coupon = coupon_new(limit=2)
    batch = uuid.uuid4()
    db.settle(
        Receive(coupon, "1", batch, 0, slot=2, key="k"),
        Receive(coupon, "1", batch, 1),
        Receive(coupon, "2", batch, 3),
        Receive(coupon, "1", batch, 2),
    )
    rows = db.query("user_outcomes", coupon, "1")
    assert [(r["state"], r["slot"], r["idx"], r["reason"], r["key"]) for r in rows] == [
        ("issued", "1", "1", None, ""),
        ("issued", "2", "0", None, "k"),
        ("rejected", "1", "2", "slot_taken", ""),
    ]
    assert {r["batch"] for r in rows} == {str(batch)}
    assert db.query("user_outcomes", coupon, "3") == []


def test_user_outcomes_are_bounded(db, coupon_new):
    coupon = coupon_new(limit=100)
    batch = uuid.uuid4()
    db.settle(*(Receive(coupon, "1", batch, slot, slot=slot) for slot in range(1, 301)))
    rows = db.query("user_outcomes", coupon, "1")
    assert [r["state"] for r in rows] == ["issued"] * 100 + ["rejected"] * 100


def test_coupon_state(db, coupon_new):
    coupon = coupon_new(begin="2030-01-01T00:00:00.123Z")
    before = int(time.time() * 1000)
    row = db.query("coupon_state", f"{{{coupon}}}")[0]
    assert (row["status"], row["begin_ms"], row["end_ms"]) == ("draft", "1893456000123", "0")
    assert abs(int(row["now_ms"]) - before) < 60000
    assert (row["generation"], row["settled"]) == ("0", "f")
    db.execute("UPDATE coupon SET generation = 1, settled_at = now() WHERE id = %s", coupon)
    row = db.query("coupon_state", f"{{{coupon}}}")[0]
    assert (row["generation"], row["settled"]) == ("1", "t")
    assert db.query("coupon_state", "{1}") == []
    one, two = coupon_new(), coupon_new()
    found = db.query("coupon_state", f"{{1,{two},{one},2}}")
    assert {row["id"] for row in found} == {str(one), str(two)}
