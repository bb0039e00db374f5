"""The statements by which the gateway looks up outcomes and coupons."""

import random
import time
import uuid

import pytest
from seed import SEED
from sql_db import AT_MS, QUERIES, Operation, Receive, batch_make


def test_receive_outcome(db, coupon_new):
    coupon = coupon_new(total=1, days=1)
    issued, rejected = batch_make(coupon, ["1", "2"])
    db.settle(issued, rejected)
    assert db.outcomes("receive_outcome", (coupon, "1", issued.batch, 0)) == [
        {
            "ord": "1",
            "state": "issued",
            "slot": "1",
            "reason": None,
            "valid_from": "2023-11-14T22:13:20.123Z",
            "valid_to": "2023-11-15T22:13:20.123Z",
            "use": None,
        }
    ]
    assert db.outcomes("receive_outcome", (coupon, "2", issued.batch, 1)) == [
        {
            "ord": "1",
            "state": "rejected",
            "slot": "1",
            "reason": "out_of_stock",
            "valid_from": None,
            "valid_to": None,
            "use": None,
        }
    ]
    # All parts name the receive.
    for name in ("receive_outcome", "receive_committed"):
        for wrong in [
            (coupon, "2", issued.batch, 0),
            (coupon, "1", issued.batch, 1),
            (coupon, "1", uuid.uuid4(), 0),
            (coupon - 1, "1", issued.batch, 0),
            (coupon, "1", rejected.batch, 1),
        ]:
            assert db.outcomes(name, wrong) == []


@pytest.mark.parametrize("name", ["receive_outcome", "receive_committed"])
def test_outcomes_of_many_receives(db, coupon_new, name):
    """Each receive is found by itself, whatever the others are, and told apart by its number."""
    first, second = coupon_new(total=300, limit=2), coupon_new(total=300)
    ones = batch_make(first, [f"u{n}" for n in range(200)])
    others = batch_make(second, [f"u{n}" for n in range(200)])
    again = batch_make(first, ["u1"], slot=1)
    db.settle(*ones, *others, *again)
    db.execute("SELECT coupon_void(%s, %s, 7::smallint, 'u7', NULL)", first, ones[7].batch)
    asked = [*others[:80], *again, *ones, *batch_make(first, ["u1", "u2"]), *others[80:]]
    random.Random(SEED).shuffle(asked)
    rows = db.outcomes(name, *((r.coupon, r.user, r.batch, r.idx) for r in asked))
    expected = {r: ("issued", None) for r in ones + others}
    expected |= {again[0]: ("rejected", "slot_taken"), ones[7]: ("rejected", "voided")}
    assert [(int(row["ord"]), row["state"], row["reason"]) for row in rows] == [
        (number, *expected[one]) for number, one in enumerate(asked, 1) if one in expected
    ]


def test_user_outcomes(db, coupon_new):
    coupon = coupon_new(limit=2)
    batch = uuid.uuid4()
    db.settle(
        Receive(coupon, "1", batch, 0, slot=2, key="k"),
        Receive(coupon, "1", batch, 1),
        Receive(coupon, "2", batch, 3),
        Receive(coupon, "1", batch, 2),
    )
    rows = db.outcomes("user_outcomes", (coupon, "1"))
    assert [(r["state"], r["slot"], r["idx"], r["reason"], r["key"]) for r in rows] == [
        ("issued", "1", "1", None, ""),
        ("issued", "2", "0", None, "k"),
        ("rejected", "1", "2", "slot_taken", ""),
    ]
    assert {r["batch"] for r in rows} == {str(batch)}
    assert db.outcomes("user_outcomes", (coupon, "3")) == []


def test_user_outcomes_of_many_users(db, coupon_new):
    """The rows of each user follow each other, in the order in which they are of one user."""
    one, other = coupon_new(limit=3), coupon_new(limit=3)
    for _ in range(2):  # the second time each slot is taken
        for coupon in (one, other):
            for slot in (2, 1, 3):
                db.settle(*batch_make(coupon, ["a", "b", "c"], slot=slot))
    asked = [(one, "c"), (one, "nobody"), (other, "a"), (one, "a"), (other, "c"), (one, "c")]
    rows = db.outcomes("user_outcomes", *asked)
    for number, user in enumerate(asked, 1):
        alone = db.outcomes("user_outcomes", user)
        assert [row["state"] for row in alone] == (
            [] if user[1] == "nobody" else ["issued"] * 3 + ["rejected"] * 3
        )
        mine = [row for row in rows if row["ord"] == str(number)]
        assert [{**row, "ord": "1"} for row in mine] == alone
    assert [int(row["ord"]) for row in rows] == [1] * 6 + [3] * 6 + [4] * 6 + [5] * 6 + [6] * 6


def test_user_outcomes_are_bounded(db, coupon_new):
    coupon = coupon_new(limit=100)
    batch = uuid.uuid4()
    db.settle(*(Receive(coupon, "1", batch, slot, slot=slot) for slot in range(1, 301)))
    rows = db.outcomes("user_outcomes", (coupon, "1"))
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


PAGE = "user_coupon_page"


def pages(db, user, limit):
    """All pages: each is asked for with the last row of the one before."""
    found, after = [], (None, None, None)
    while rows := db.query(PAGE, user, *after, limit, None):
        assert len(rows) <= limit
        found.append(rows)
        after = tuple(rows[-1][name] for name in ("received_us", "coupon_id", "slot"))
    return found


OFFER = ("currency", "amount_off", "percent_off", "cap", "threshold", "metadata")


def test_coupon_discount(db, coupon_new):
    coupon = coupon_new()
    assert db.query("coupon_discount", coupon) == [{"version": "1", **dict.fromkeys(OFFER)}]
    offer = ("EUR", None, "12.50", "500", "2000", '{"a": 1.50}')
    terms = dict(zip(OFFER, offer))
    coupon = coupon_new(**{**terms, "metadata": {"a": 1}})
    db.execute("UPDATE coupon SET metadata = '{\"a\":1.50}' WHERE id = %s", coupon)
    assert db.query("coupon_discount", coupon) == [{"version": "1", **terms}]
    db.settle(*batch_make(coupon, ["1"]))
    (row,) = db.query(PAGE, "1", None, None, None, 10, None)
    assert {name: row[name] for name in OFFER} == terms
    assert db.query("coupon_discount", 1) == []


def test_user_coupon_page(db, coupon_new):
    coupon = coupon_new(limit=2, days=1)
    first, second = batch_make(coupon, ["1", "1"])
    db.settle(first, second.but(slot=2, at_ms=AT_MS + 1000))
    db.settle(*batch_make(coupon, ["10", "01"]))
    assert db.query(PAGE, "1", None, None, None, 10, None) == [
        {
            "coupon_id": str(coupon),
            "batch": str(first.batch),
            "idx": idx,
            "slot": slot,
            "is_voided": "f",
            "use": None,
            "name": "test",
            **dict.fromkeys(OFFER),
            "received_at": f"2023-11-14T22:13:{second_}.123Z",
            "valid_from": f"2023-11-14T22:13:{second_}.123Z",
            "valid_to": f"2023-11-15T22:13:{second_}.123Z",
            "received_us": str(at_ms * 1000),
        }
        for idx, slot, second_, at_ms in (
            ("1", "2", "21", AT_MS + 1000),
            ("0", "1", "20", AT_MS),
        )
    ]
    assert db.query(PAGE, "2", None, None, None, 10, None) == []


def test_user_coupon_page_of_usable_ones(db, coupon_new):
    """None that an order has, that is voided or not valid now, and all others."""
    times = ("2000-01-01", "2001-01-01"), ("2100-01-01", "2101-01-01")
    past, future = (coupon_new(valid_from=begin, valid_to=end) for begin, end in times)
    receives = [batch_make(coupon_new(), ["1"])[0] for _ in range(4)]
    free, held, ended, voided = receives
    db.settle(*receives, *batch_make(past, ["1"]), *batch_make(future, ["1"]))
    db.use(Operation("hold", "a", (held, ended)))
    db.execute("UPDATE receive_use SET until = now() WHERE batch = %s", ended.batch)
    db.execute("UPDATE coupon SET void_returns = false WHERE id = %s", voided.coupon)
    db.query("coupon_void", voided.coupon, voided.batch, voided.idx, "1", None)
    usable = db.query(PAGE, "1", None, None, None, 10, "true")
    assert {int(row["coupon_id"]) for row in usable} == {free.coupon, ended.coupon}
    assert len(db.query(PAGE, "1", None, None, None, 10, "false")) == 6


def test_user_coupon_pages_of_one_moment(db, coupon_new):
    """Each row is on one page, in the order of its coupon and slot, however the pages are cut."""
    coupons = sorted((coupon_new(limit=3) for _ in range(4)), reverse=True)
    wanted = [(AT_MS, coupon, slot) for coupon in coupons for slot in (3, 2, 1)]
    for coupon in coupons:
        batch = uuid.uuid4()
        db.settle(*(Receive(coupon, "1", batch, slot, slot, at_ms=AT_MS) for slot in (1, 2, 3)))
    for limit in (1, 2, 5, 12, 100):
        found = [
            (int(row["received_us"]) // 1000, int(row["coupon_id"]), int(row["slot"]))
            for page in pages(db, "1", limit)
            for row in page
        ]
        assert found == wanted, limit


def test_user_coupon_pages_of_the_ends_of_time(db, coupon_new):
    """The earliest and the latest time that a message may have, as they are stored."""
    coupon = coupon_new(limit=3)
    batch = uuid.uuid4()
    moments = [0, 4102444800001, 253402300799999]
    db.settle(
        *(
            Receive(coupon, "1", batch, slot, slot, at_ms=at_ms)
            for slot, at_ms in enumerate(moments, 1)
        )
    )
    found = [int(page[0]["received_us"]) for page in pages(db, "1", 1)]
    stored = db.execute(
        "SELECT (extract(epoch FROM received_at) * 1000000)::bigint FROM user_coupon"
        " WHERE coupon_id = %s ORDER BY received_at DESC",
        coupon,
    )
    assert found == [at_us for at_us, in stored] and found[-1] == 0


def test_user_coupon_page_of_an_unknown_coupon(owner, db, coupon_new):
    """It has no name; the page does not wait for one."""
    coupon = coupon_new()
    db.settle(*batch_make(coupon, ["1"]))
    owner.execute("DELETE FROM coupon WHERE id = %s", coupon)
    (row,) = db.query(PAGE, "1", None, None, None, 10, None)
    assert (row["coupon_id"], row["name"]) == (str(coupon), None)


def test_user_coupon_page_is_planned_without_statistics(owner, db, coupon_new):
    """They say that all rows are of one user, so that a scan of the whole table looks cheap."""
    coupon = coupon_new(total=1000, limit=100)
    batch = uuid.uuid4()
    db.settle(*(Receive(coupon, "1", batch, slot, slot=slot) for slot in range(1, 101)))
    owner.execute("ANALYZE user_coupon")
    owner.execute("ANALYZE coupon")
    for setting in ("enable_seqscan = off", "plan_cache_mode = force_generic_plan"):
        db.execute(f"SET {setting}")
    db.prepare(PAGE)
    db.query(PAGE, "1", None, None, None, 21, None)
    db.execute(f"PREPARE page AS {QUERIES[PAGE]}")
    plan = "\n".join(
        row[0] for row in db.execute("EXPLAIN EXECUTE page ('1', NULL, NULL, NULL, 21, NULL)")
    )
    assert "Seq Scan" not in plan and "user_coupon" in plan and "coupon_pkey" in plan, plan
