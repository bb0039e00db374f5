"""The event log: what is written, by whom, in which transaction, and in which order."""

import json
import threading
import uuid

import pytest
from sql_db import AT_MS, array_text, batch_make
from stack import wait_until


@pytest.fixture
def log(owner):
    """The rows of some coupons, in the order of their ids. Other tests leave some."""

    def read(*coupons):
        columns = (
            "id",
            "type",
            "num",
            "coupon",
            "user_id",
            "idx",
            "slot",
            "key",
            "at_ms",
            "reason",
            "trace",
            "valid_coupon",
            "valid_at_ms",
            "valid_from_ms",
            "valid_days",
            "valid_to_ms",
            "detail",
        )
        rows = owner.execute(
            f"SELECT {', '.join(columns)} FROM event_log WHERE coupon && %s::bigint[] ORDER BY id",
            list(coupons),
        )
        return [dict(zip(columns, row)) for row in rows]

    return read


@pytest.fixture
def coupon_on(db, coupon_id):
    """coupon_on(total=…): a new coupon with events. Its creation is an event, too."""

    def make(total=100, limit=1, **terms):
        coupon = coupon_id()
        db.coupon_create(coupon, total, limit, **{"events_on": True, **terms})
        return coupon

    return make


def receives_of(rows, type_="coupon.issued"):
    return [row for row in rows if row["type"] == type_]


def valid_of(row):
    """(coupon, time, from, days, to) for each rule of validity; see the table."""
    names = ("valid_coupon", "valid_at_ms", "valid_from_ms", "valid_days", "valid_to_ms")
    return list(zip(*(row[name] for name in names)))


def test_a_coupon_without_events_logs_nothing(db, coupon_id, owner):
    coupon = coupon_id()
    before = owner.execute("SELECT count(*) FROM event_log")
    db.coupon_create(coupon, 1)
    batch = batch_make(coupon, ["a", "b"])
    assert db.settle(*batch) == ["issued", "out_of_stock"]
    db.query("coupon_edit", coupon, '{"name": "other"}')
    db.query("coupon_void", coupon, batch[0].batch, 0, "a", None)
    assert owner.execute("SELECT count(*) FROM event_log") == before


def test_issued_receives_are_one_row(db, coupon_on, log):
    coupon = coupon_on(valid_days=2)
    batch = batch_make(coupon, ["a", 'b"\\', "c"], key="k")
    assert db.settle(*batch) == ["issued"] * 3
    created, row = log(coupon)
    assert created["type"] == "campaign.changed"
    assert (row["type"], row["num"], row["coupon"]) == ("coupon.issued", 3, [coupon])
    assert row["user_id"] == ["a", 'b"\\', "c"] and row["idx"] == [0, 1, 2]
    assert row["slot"] == [1] * 3 and row["key"] == ["k"] * 3 and row["at_ms"] == [AT_MS] * 3
    assert valid_of(row) == [(coupon, 0, 0, 2, 0)], "its terms, for receives of any time"
    assert db.settle(*batch) == ["repeated"] * 3
    assert len(log(coupon)) == 2, "a copy of the message is no event"


def test_traces(db, coupon_on, coupon_id, log):
    """Receives that have a trace keep it, whatever their outcome, and whatever else the call
    settles."""
    one, other, silent = coupon_on(total=2), coupon_on(), coupon_id()
    db.coupon_create(silent, 9)
    traced = [r.but(trace=f"t {r.idx}") for r in batch_make(one, ["a", "b", "c"])]
    traced[0] = traced[0].but(trace="")
    unheard = [r.but(trace="not told") for r in batch_make(silent, ["a"])]
    outcomes = db.settle(*traced, *batch_make(other, ["a"]), *unheard)
    assert outcomes == ["issued", "issued", "out_of_stock", "issued", "issued"]
    rejected, issued = log(one)[1:]
    assert (rejected["type"], rejected["trace"]) == ("coupon.rejected", ["t 2"])
    assert issued["coupon"] == [one, one, other] and issued["trace"] == ["", "t 1", ""]
    plain = coupon_on()
    db.settle(*batch_make(plain, ["a"]))
    assert log(plain)[1]["trace"] is None
    db.settle(*(r.but(trace="t") for r in batch_make(plain, ["b"])))
    assert log(plain)[2]["trace"] == ["t"]
    db.settle(*batch_make(one, ["d"]), *(r.but(trace="t") for r in batch_make(one, ["e"])))
    both = log(one)[3]  # rejected
    assert dict(zip(both["user_id"], both["trace"])) == {"d": "", "e": "t"}


def test_several_coupons_are_one_row_without_those_that_have_no_events(
    db, coupon_on, coupon_id, log
):
    coupons, silent = [coupon_on(), coupon_on(valid_days=1)], coupon_id()
    db.coupon_create(silent, 10)
    batches = [batch_make(coupon, ["a", "b"]) for coupon in (coupons[0], silent, coupons[1])]
    assert db.settle(*sum(batches, [])) == ["issued"] * 6
    rows = receives_of(log(*coupons, silent))
    assert [(row["num"], row["coupon"]) for row in rows] == [
        (4, [coupons[0]] * 2 + [coupons[1]] * 2)
    ]
    assert sorted(valid_of(rows[0])) == sorted([(coupons[0], 0, 0, 0, 0), (coupons[1], 0, 0, 1, 0)])


def test_validity_between_two_dates(db, coupon_on, log):
    dates = {"valid_from": "2030-01-01T00:00:00Z", "valid_to": "2030-02-01T00:00:00.5Z"}
    coupon = coupon_on(**dates)
    db.settle(*batch_make(coupon, ["a"]))
    terms = (coupon, 0, 1893456000000, 0, 1896134400500)
    assert valid_of(receives_of(log(coupon))[0]) == [terms]
    db.query("coupon_edit", coupon, '{"valid_from": null, "valid_to": null, "valid_days": 7}')
    names = {"valid_from", "valid_to", "valid_days"}
    assert set(log(coupon)[-1]["detail"][0]["changes"]) == names
    assert set(json.loads(db.query("coupon_history", coupon, 0, None)[-1]["changes"])) == names
    db.settle(*batch_make(coupon, ["b"], seq_first=2))
    assert valid_of(receives_of(log(coupon))[1]) == [(coupon, 0, 0, 7, 0)]


def test_terms_that_change_meanwhile(db, db_new, coupon_on, owner, log):
    """The validity is that of the user coupon, although the terms are others by the time of the
    lock."""
    coupon = coupon_on(valid_days=1)
    editor, settled = db_new(), []
    receives = batch_make(coupon, ["a", "b"]) + batch_make(coupon, ["c"], 3, at_ms=AT_MS + 5)
    editor.execute("BEGIN")
    editor.query("coupon_edit", coupon, '{"valid_days": 5}')
    settler = threading.Thread(target=lambda: settled.extend(db.settle(*receives)))
    settler.start()
    wait_until(lambda: owner.is_blocked(db.pid))
    editor.execute("COMMIT")
    settler.join()
    assert settled == ["issued"] * 3
    stored = owner.execute(
        "SELECT DISTINCT (extract(epoch FROM received_at) * 1000)::bigint,"
        " (extract(epoch FROM valid_from) * 1000)::bigint,"
        " (extract(epoch FROM valid_to) * 1000)::bigint FROM user_coupon WHERE coupon_id = %s",
        coupon,
    )
    row = receives_of(log(coupon))[0]
    told = zip(row["valid_at_ms"], row["valid_from_ms"], row["valid_to_ms"])
    assert row["valid_coupon"] == [coupon] * 2 and row["valid_days"] == []
    assert sorted(told) == sorted(stored)
    assert sorted(stored)[0] == (AT_MS, AT_MS, AT_MS + 86_400_000)


def test_issued_and_rejected_of_one_call(db, coupon_on, log):
    coupon = coupon_on(total=2)
    batch = batch_make(coupon, ["a", "b", "c"])
    bad = batch_make(coupon, ["d"], seq_first=4, slot=9)
    assert db.settle(*batch, *bad) == ["issued", "issued", "out_of_stock", "slot_invalid"]
    rows = log(coupon)
    issued, rejected = receives_of(rows), receives_of(rows, "coupon.rejected")
    assert [row["user_id"] for row in issued] == [["a", "b"]]
    assert [dict(zip(row["user_id"], row["reason"])) for row in rejected] == [
        {"c": "out_of_stock", "d": "slot_invalid"}
    ]
    assert rejected[0]["at_ms"] == [AT_MS] * 2
    db.settle(*batch, *bad)
    assert log(coupon) == rows


def test_the_rejection_of_an_unknown_coupon_is_no_event(db, coupon_id, log):
    coupon = coupon_id()
    assert db.settle(*batch_make(coupon, ["a"])) == ["unknown_coupon"]
    assert log(coupon) == []


def test_late_receives_of_older_generations(db, coupon_on, log):
    coupon = coupon_on(total=10)
    old = batch_make(coupon, ["a"])
    db.execute("UPDATE coupon SET generation = 2 WHERE id = %s", coupon)
    new = batch_make(coupon, ["b"], generation=2)
    assert db.settle(*old, *new) == ["issued"] * 2
    assert [row["user_id"] for row in receives_of(log(coupon))] == [["a", "b"]]


def test_lost_receives(db, coupon_on, log):
    coupon = coupon_on()
    receives = batch_make(coupon, ["a", "b"])
    fields = ("generation", "batch", "idx", "user", "slot", "at_ms")
    db.query("receive_lost", coupon, *(array_text(getattr(r, f) for r in receives) for f in fields))
    rows = receives_of(log(coupon), "coupon.rejected")
    assert [(row["user_id"], row["reason"]) for row in rows] == [
        (["a"], ["lost"]),
        (["b"], ["lost"]),
    ]


@pytest.mark.parametrize("returns", [True, False])
def test_a_void_is_one_event(db, coupon_on, log, returns):
    coupon = coupon_on(void_returns=returns)
    batch = batch_make(coupon, ["a"])
    db.settle(*batch)
    db.execute("SET couponmq.by = 'ann'")
    for result in ("voided", "again"):
        voided = db.query("coupon_void", coupon, batch[0].batch, 0, "a", "fraud")
        assert voided[0]["result"] == result
    row = log(coupon)[-1]
    assert [one["type"] for one in log(coupon)[1:]] == ["coupon.issued", "coupon.voided"]
    assert (row["num"], row["user_id"], row["slot"]) == (1, ["a"], [1])
    assert row["detail"] == [{"by": "ann", "why": "fraud", "returned": returns}]


def test_changes_of_a_campaign(db, coupon_on, log):
    coupon = coupon_on(total=5, begin_at="2100-01-01T00:00:00Z")
    db.execute("SET couponmq.by = 'ann'")
    db.execute("UPDATE coupon SET status = 'published' WHERE id = %s", coupon)
    db.query("coupon_edit", coupon, '{"user_limit": 2, "begin_at": null}')
    db.query("coupon_edit", coupon, '{"events_on": false}')
    db.query("coupon_edit", coupon, '{"name": "silent"}')
    details = [row["detail"][0] for row in log(coupon)]
    assert [(one["action"], one["from"], one["to"]) for one in details] == [
        ("create", None, "draft"),
        ("publish", "draft", "scheduled"),
        ("edit", "scheduled", "issuing"),
        ("edit", "issuing", "issuing"),
    ]
    assert details[0]["changes"]["total_num"] == [None, 5] and "id" not in details[0]["changes"]
    assert details[1]["changes"] == {} and details[1]["by"] == "ann"
    assert details[2]["changes"]["user_limit"] == [1, 2]
    assert details[2]["changes"]["begin_at"][1] is None
    assert details[3]["changes"] == {"events_on": [True, False]}
    assert [one["version"] for one in details] == [1, 1, 2, 3]


def test_the_history_before_there_were_events(db, owner, coupon_on):
    """Its terms have no events_on: that it is off now is no change."""
    coupon = coupon_on(events_on=False)
    owner.execute(
        "UPDATE campaign_history SET terms = terms - 'events_on' WHERE coupon_id = %s", coupon
    )
    db.query("coupon_edit", coupon, '{"name": "other"}')
    db.query("coupon_edit", coupon, '{"events_on": true}')
    changes = [
        json.loads(row["changes"] or "{}") for row in db.query("coupon_history", coupon, 0, None)
    ]
    assert changes[1:] == [{"name": ["test", "other"]}, {"events_on": [False, True]}]


def test_ids_are_in_the_order_of_the_commits_of_a_coupon(db, db_new, coupon_on, owner, log):
    """The second transaction began first, and waited for the lock of the coupon."""
    coupon, slow = coupon_on(), db_new()
    slow.execute("BEGIN")
    assert slow.settle(*batch_make(coupon, ["a"])) == ["issued"]
    waiting = threading.Thread(target=lambda: db.settle(*batch_make(coupon, ["b"])))
    waiting.start()
    wait_until(lambda: owner.is_blocked(db.pid))
    assert receives_of(log(coupon)) == []
    slow.execute("COMMIT")
    waiting.join()
    assert [row["user_id"] for row in receives_of(log(coupon))] == [["a"], ["b"]]


def test_a_row_that_commits_late_is_read_then(db, db_new, coupon_on, owner):
    """Rows of other coupons that were added later are read and removed meanwhile."""
    first, second, slow = coupon_on(), coupon_on(), db_new()
    owner.execute("DELETE FROM event_log")
    slow.execute("BEGIN")
    slow.settle(*batch_make(first, ["a"]))
    db.settle(*batch_make(second, ["b"]))
    (read,) = db.query("event_log_read", 10, 100)
    assert read["user_id"] == "{b}"
    db.query("event_log_remove", array_text([read["id"]]), "{}", "{}", "{}")
    slow.execute("COMMIT")
    (late,) = db.query("event_log_read", 10, 100)
    assert late["user_id"] == "{a}" and int(late["id"]) < int(read["id"])
    assert db.query("event_log_lag")[0]["events_num"] == "1"


def test_reading_is_bounded(db, coupon_on, owner):
    coupon = coupon_on()
    owner.execute("DELETE FROM event_log")
    for number in range(4):
        db.settle(
            *batch_make(coupon, [f"{number}-{i}" for i in range(10)], seq_first=1 + 10 * number)
        )

    def read(*limits):
        return [int(row["num"]) for row in db.query("event_log_read", *limits)]

    assert read(10, 1) == [10], "at least one"
    assert read(10, 20) == [10, 10] and read(10, 21) == [10, 10, 10] and read(3, 1000) == [10] * 3


def test_webhooks_get_the_events_of_removed_rows(db, owner, coupon_on):
    coupon = coupon_on()
    owner.execute("DELETE FROM event_log")
    db.settle(*batch_make(coupon, ["a"]))
    (row,) = db.query("event_log_read", 10, 100)
    assert db.query("event_webhooks") == [{"are_wanted": "f"}]
    owner.execute("BEGIN")
    owner.query("webhook_add", "https://e.com/", coupon, "{}", 100, 100)
    assert owner.query("event_webhooks") == [{"are_wanted": "t"}]
    events = array_text(['[{"id": "1"}]', '[{"id": "2"}]'])
    ids = array_text([row["id"]])
    owner.query("event_log_remove", ids, array_text([coupon] * 2), "{coupon.issued,x}", events)
    queued = "SELECT type, body::jsonb FROM webhook_delivery WHERE coupon_id = %s ORDER BY id"
    assert owner.execute(queued, coupon) == [
        ("coupon.issued", [{"id": "1"}]),
        ("x", [{"id": "2"}]),
    ]
    assert owner.execute("SELECT count(*) FROM event_log") == [(0,)]
    owner.execute("ROLLBACK")


def test_recovered_terms_and_rejections(db, owner, coupon_on, log):
    """What couponctl recover writes: a rejection and a void that PostgreSQL had lost."""
    coupon = coupon_on()
    terms = db.query("coupon_terms", "{%d}" % coupon)[0]["terms"]
    db.execute("UPDATE coupon SET events_on = false, version = 0 WHERE id = %s", coupon)
    db.query("recover_terms", coupon, terms)
    assert owner.execute("SELECT events_on FROM coupon WHERE id = %s", coupon) == [(True,)]
    assert db.query("recover_terms", coupon, terms) == [], "it has them"
    batch = uuid.uuid4()
    db.query(
        "recover_rejected",
        coupon,
        array_text([batch] * 2),
        "{0,1}",
        "{a,b}",
        "{1,1}",
        "{slot_taken,voided}",
        array_text([AT_MS] * 2),
        "{0,0}",
    )
    rows = log(coupon)
    assert [row["user_id"] for row in receives_of(rows, "coupon.rejected")] == [["a"]]
    assert [row["user_id"] for row in receives_of(rows, "coupon.voided")] == [["b"]]
