"""The statements that create a coupon, show it, and change its terms."""

import re
import uuid

import psycopg
import pytest
from sql_db import array_text, batch_make
from stack import wait_until


def test_create_skips_ids_that_are_taken(db):
    db.execute("BEGIN")
    first = int(db.coupon_create(None, 1)[0]["id"])
    assert first >= 1001
    for taken in (first + 1, first + 2):
        assert db.coupon_create(taken, 1) == [{"id": str(taken)}]
    assert db.coupon_create(None, 1) == [{"id": str(first + 3)}]
    assert db.coupon_create(first, 1) == []
    db.execute("ROLLBACK")


DAY_PAST = "2002-01-01T00:00:00Z"
DAY_1, DAY_2 = "2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"


@pytest.mark.parametrize(
    "terms",
    [
        {"id": 0},
        {"name": ""},
        {"total": -1},
        {"limit": 0},
        {"limit": 101},
        {"begin_at": DAY_2, "end_at": DAY_1},
        {"end_at": "infinity"},
        {"valid_days": 0},
        {"valid_days": 5, "valid_from": DAY_1, "valid_to": DAY_2},
        {"valid_from": DAY_1},
        {"valid_from": DAY_2, "valid_to": DAY_1},
        {"amount_off": 0, "currency": "EUR"},
        {"amount_off": 1},
        {"amount_off": 1, "percent_off": 1, "currency": "EUR"},
        {"amount_off": 1, "currency": "eur"},
        {"percent_off": 0},
        {"percent_off": 100.01},
        {"cap": 1, "currency": "EUR"},
        {"percent_off": 1, "cap": 1},
        {"threshold": 1},
        {"metadata": []},
        {"metadata": {"a": "b" * 8192}},
    ],
)
def test_create_refuses_terms_that_make_no_sense(db, terms):
    with pytest.raises(psycopg.errors.CheckViolation):
        db.coupon_create(terms.pop("id", None), terms.pop("total", 1), **terms)


def test_show_and_list(db, coupon_new):
    coupon = coupon_new(total=1, begin="2030-01-01T01:00:00+01:00", days=30)
    db.settle(
        *batch_make(coupon, ["1", "2"]), *batch_make(coupon, ["3"], seq_first=9, generation=4)
    )
    row = db.query("coupon_show", coupon)[0]
    times = ("created_at", "updated_at", "outcome_at")
    assert {name: row[name] for name in row if name not in times} == {
        "coupon": str(coupon),
        "name": "test",
        "state": "draft",
        "limit": "1",
        "begin": "2030-01-01T00:00:00.000Z",
        "end": None,
        "valid_days": "30",
        "valid_from": None,
        "valid_to": None,
        "discount.currency": None,
        "discount.amount_off": None,
        "discount.percent_off": None,
        "discount.cap": None,
        "discount.threshold": None,
        "budget.name": None,
        "budget.amount": None,
        "budget.left": None,
        "pause_reason": None,
        "metadata": None,
        "void_returns": "t",
        "events": "f",
        "zone": "UTC",
        "local.begin": "2030-01-01T00:00:00+00:00",
        "local.end": None,
        "local.valid_from": None,
        "local.valid_to": None,
        "tell_before": None,
        "local.tell_before": None,
        "tags": "{}",
        "local.tags": "",
        "hidden": "f",
        "postgresql.status": "draft",
        "postgresql.total": "1",
        "postgresql.issued": "1",
        "postgresql.version": "1",
        "postgresql.generation": "0",
        "postgresql.seq": "2",
        "postgresql.settled": "2",
        "postgresql.rejected": "2",
        "refused": None,
        "in_flight": "8",
        "settled_at": None,
        "expires_at": None,
    }
    for name in times:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row[name])
    listed = db.query("coupon_list", coupon - 1, 1)
    names = ("coupon", "name", "state", "limit", "tags", "begin", "end")
    assert listed == [
        {name: row[name] for name in names}
        | {name: row[f"postgresql.{name}"] for name in ("status", "total", "issued")}
    ]
    assert db.query("coupon_show", 1) == []


@pytest.mark.parametrize("status", ["published", "paused"])
@pytest.mark.parametrize(
    "end, valid_to, is_ended",
    [
        (None, DAY_PAST, True),
        (DAY_1, DAY_PAST, True),
        (DAY_PAST, DAY_1, True),
        (DAY_PAST, None, True),
        (None, DAY_1, False),
        (DAY_1, DAY_2, False),
        (DAY_2, DAY_1, False),
        (None, None, False),
    ],
)
def test_issuing_ends_with_the_window_or_the_validity(
    db, coupon_new, status, end, valid_to, is_ended
):
    """In every statement: what Redis gets, what the audit compares and what people are told."""
    db.execute("BEGIN")
    validity = {"valid_from": "2001-01-01T00:00:00Z", "valid_to": valid_to} if valid_to else {}
    coupon = coupon_new(end=end, events_on=True, **validity)
    db.status_put(coupon, status)
    end_ms = {None: "0", DAY_1: "1893456000000", DAY_PAST: "1009843200000"}[
        min((at for at in (end, valid_to) if at), default=None)
    ]
    ids = array_text([coupon])
    for query, *arguments in (
        ("coupon_lock", coupon),
        ("coupon_state", ids),
        ("coupon_page", coupon - 1, 1, ids),
        ("rebuild_coupon", ids),
        ("audit_coupon", coupon),
    ):
        assert db.query(query, *arguments)[0]["end_ms"] == end_ms, query
    state = "ended" if is_ended else {"published": "issuing", "paused": "paused"}[status]
    assert db.query("coupon_show", coupon)[0]["state"] == state
    assert db.query("coupon_list", coupon - 1, 1)[0]["state"] == state
    assert db.query("live_campaigns", ids)[0]["state"] == state
    assert {row["state"]: row["n"] for row in db.query("live_states")}[state] > "0"
    assert db.query("coupon_history", coupon, 0, None)[-1]["to"] == state
    detail = (
        "SELECT detail[1]->>'to' FROM event_log WHERE coupon = ARRAY[%s] ORDER BY id DESC LIMIT 1"
    )
    assert db.execute(detail, coupon) == [(state,)]
    db.execute("ROLLBACK")


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
    db.status_put(coupon, old)
    may = (old, wanted) in ALLOWED
    expected = {
        "id": str(coupon),
        "old_status": old,
        "status": wanted if may else old,
        "version": "2" if may else "1",
    }
    assert db.query("coupon_status_set", coupon, wanted) == [expected]
    row = db.query("coupon_show", coupon)[0]
    assert row["postgresql.status"] == expected["status"]
    assert row["postgresql.version"] == expected["version"]
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
