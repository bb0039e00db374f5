"""The statements that create a coupon, show it, and change its terms."""

import re
import uuid

import psycopg
import pytest
from sql_db import batch_make
from stack import wait_until


def test_create_skips_ids_that_are_taken(db):
    db.execute("BEGIN")
    terms = ("name", 1, 1, None, None, None, None, None)
    first = int(db.query("coupon_create", None, *terms)[0]["id"])
    assert first >= 1001
    for taken in (first + 1, first + 2):
        assert db.query("coupon_create", taken, *terms) == [{"id": str(taken)}]
    assert db.query("coupon_create", None, *terms) == [{"id": str(first + 3)}]
    assert db.query("coupon_create", first, *terms) == []
    db.execute("ROLLBACK")


@pytest.mark.parametrize(
    "terms",
    [
        (0, "name", 1, 1, None, None, None, None, None),
        (None, "", 1, 1, None, None, None, None, None),
        (None, "name", -1, 1, None, None, None, None, None),
        (None, "name", 1, 0, None, None, None, None, None),
        (None, "name", 1, 101, None, None, None, None, None),
        (None, "name", 1, 1, "2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z", None, None, None),
        (None, "name", 1, 1, None, "infinity", None, None, None),
        (None, "name", 1, 1, None, None, 0, None, None),
        (None, "name", 1, 1, None, None, 5, "2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"),
        (None, "name", 1, 1, None, None, None, "2030-01-01T00:00:00Z", None),
        (None, "name", 1, 1, None, None, None, "2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z"),
    ],
)
def test_create_refuses_terms_that_make_no_sense(db, terms):
    with pytest.raises(psycopg.errors.CheckViolation):
        db.query("coupon_create", *terms)


def test_show_and_list(db, coupon_new):
    coupon = coupon_new(total=1, begin="2030-01-01T01:00:00+01:00", days=30)
    db.settle(
        *batch_make(coupon, ["1", "2"]), *batch_make(coupon, ["3"], seq_first=9, generation=4)
    )
    row = db.query("coupon_show", coupon)[0]
    times = ("created_at", "updated_at", "outcome_at")
    assert {name: row[name] for name in row if name not in times} == {
        "id": str(coupon),
        "name": "test",
        "status": "draft",
        "total_num": "1",
        "issued_num": "1",
        "user_limit": "1",
        "begin_at": "2030-01-01T00:00:00.000Z",
        "end_at": None,
        "valid_days": "30",
        "valid_from": None,
        "valid_to": None,
        "version": "1",
        "generation": "0",
        "seq_seen": "2",
        "settled_num": "2",
        "older_unsettled_num": "8",
        "rejected_num": "2",
        "unreleased_num": "2",
        "settled_at": None,
        "expires_at": None,
    }
    for name in times:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row[name])
    listed = db.query("coupon_list", coupon - 1, 1)
    assert listed == [
        {
            name: row[name]
            for name in (
                "id",
                "name",
                "status",
                "total_num",
                "issued_num",
                "user_limit",
                "begin_at",
                "end_at",
            )
        }
    ]
    assert db.query("coupon_show", 1) == []


ALLOWED = {
    ("draft", "published"),
    ("published", "paused"),
    ("paused", "published"),
    ("published", "closed"),
    ("paused", "closed"),
}
STATUSES = ("draft", "published", "paused", "closed")


@pytest.mark.parametrize("old", STATUSES)
@pytest.mark.parametrize("wanted", [*STATUSES, "nonsense"])
def test_status_set(db, coupon_new, old, wanted):
    coupon = coupon_new()
    db.execute("BEGIN")
    db.execute("UPDATE coupon SET status = %s WHERE id = %s", old, coupon)
    may = (old, wanted) in ALLOWED
    expected = {
        "id": str(coupon),
        "old_status": old,
        "status": wanted if may else old,
        "version": "2" if may else "1",
    }
    assert db.query("coupon_status_set", coupon, wanted) == [expected]
    row = db.query("coupon_show", coupon)[0]
    assert (row["status"], row["version"]) == (expected["status"], expected["version"])
    db.execute("ROLLBACK")


def test_status_set_of_no_coupon(db):
    assert db.query("coupon_status_set", 1, "published") == []


def test_total_set(db, coupon_new):
    coupon = coupon_new(total=5)
    db.settle(*batch_make(coupon, ["1", "2"]))

    def total_set(total):
        row = db.query("coupon_total_set", coupon, total)[0]
        return tuple(
            int(row[name]) for name in ("old_total_num", "total_num", "issued_num", "version")
        )

    assert total_set(5) == (5, 5, 2, 1)
    assert total_set(8) == (5, 8, 2, 2)
    assert total_set(8) == (8, 8, 2, 2)
    assert total_set(1) == (8, 8, 2, 2)
    assert total_set(2) == (8, 2, 2, 3)
    assert db.query("coupon_total_set", 1, 5) == []


def test_new_terms_are_announced_and_settling_is_not(db, db_new, coupon_new):
    coupon, draft = coupon_new(total=5), coupon_new()
    listener = db_new()
    heard = []
    listener.connection.add_notify_handler(lambda notify: heard.append(notify.payload))
    listener.execute("LISTEN couponmq_terms")

    def announced():
        """The notifications since the last call: the listener's own notification arrives after all
        committed ones."""
        marker = uuid.uuid4().hex
        listener.execute("SELECT pg_notify('couponmq_terms', %s)", marker)
        wait_until(lambda: listener.execute("SELECT 1") and marker in heard)
        payloads = [payload for payload in heard if payload in (str(coupon), str(draft))]
        heard.clear()
        return payloads

    db.query("coupon_total_set", draft, 50)
    assert announced() == []
    db.query("coupon_status_set", coupon, "published")
    assert announced() == [str(coupon)]
    db.query("coupon_status_set", coupon, "published")
    assert announced() == []
    db.query("coupon_total_set", coupon, 6)
    assert announced() == [str(coupon)]
    db.settle(*batch_make(coupon, ["1"]))
    assert announced() == []
    db.query("coupon_status_set", coupon, "closed")
    assert announced() == [str(coupon)]
