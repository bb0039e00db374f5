"""coupon.expiring: who is told, when, and how often."""

import threading
import time

import pytest
from sql_db import Operation, batch_make
from stack import wait_until

DAY_MS = 86_400_000
TELL_S = 3 * 86400
MOST = 2  # user coupons of a part


@pytest.fixture(autouse=True)
def nobody_else(owner):
    """Other campaigns are not due, and the log is not full of other tests' events."""
    yield
    for table in ("expiry_notice", "expiry_part", "expiry_late", "event_log"):
        owner.execute(f"DELETE FROM {table}")


@pytest.fixture
def coupon_telling(db, coupon_id, owner):
    """coupon_telling(): a published campaign whose user coupons are valid for 30 days; three days
    before their end they are told."""
    owner.execute("DELETE FROM event_log")

    def make(total=100, **terms):
        coupon = coupon_id()
        terms = {"events_on": True, "valid_days": 30, "tell_before": TELL_S, **terms}
        db.coupon_create(coupon, total, **terms)
        db.status_put(coupon, "published")
        return coupon

    return make


def ago_ms(days):
    return int(time.time() * 1000) - int(days * DAY_MS)


def issue(db, coupon, *users, days=0.0, **fields):
    """Receives that were accepted so many days ago."""
    batch = batch_make(coupon, users, at_ms=ago_ms(days), **fields)
    assert set(db.settle(*batch)) == {"issued"}
    return batch


def told(owner, coupon):
    """The users who were told, in the order of the log."""
    rows = owner.execute(
        "SELECT user_id FROM event_log WHERE type = 'coupon.expiring'"
        " AND coupon = ARRAY[%s::bigint] ORDER BY id",
        coupon,
    )
    return [user for (users,) in rows for user in users]


def due(db, after=0):
    return [int(row["id"]) for row in db.query("expiring_due", after)]


def steps(db, coupon, most=MOST):
    """Goes on until the pass is over. Returns how many each part had."""
    told_num = []
    while True:
        (row,) = db.query("expiring_tell", coupon, most)
        told_num.append(int(row["told_num"]))
        if row["goes_on"] == "f":
            return [num for num in told_num if num]


def test_who_is_told(db, owner, coupon_telling):
    coupon = coupon_telling()
    issue(db, coupon, "early", days=26.9)
    issue(db, coupon, "due", days=27.1)
    issue(db, coupon, "last", days=29.9)
    issue(db, coupon, "ended", days=30.1)
    assert due(db) == [coupon]
    assert steps(db, coupon) == [2]
    assert told(owner, coupon) == ["last", "due"], "in the order of their ends"
    assert due(db) == []
    # Time passes: the others come within three days of their ends, and nobody is told again.
    owner.execute(
        "UPDATE user_coupon SET received_at = received_at - interval '12 hours',"
        " valid_to = valid_to - interval '12 hours' WHERE coupon_id = %s",
        coupon,
    )
    owner.execute(
        "UPDATE expiry_notice SET next_at = now(), told_to = told_to - interval '12 hours'"
        " WHERE coupon_id = %s",
        coupon,
    )
    assert due(db) == [coupon]
    assert steps(db, coupon) == [1]
    assert told(owner, coupon) == ["last", "due", "early"]


def test_what_an_event_has(db, owner, coupon_telling):
    """In the order of the ends: each array is."""
    coupon = coupon_telling()
    (one,) = issue(db, coupon, "a", days=28, key="k")
    (two,) = issue(db, coupon, "b", days=29)
    steps(db, coupon)
    (row,) = owner.execute(
        "SELECT num, batch, idx, slot, key, at_ms, detail FROM event_log"
        " WHERE type = 'coupon.expiring' AND coupon = ARRAY[%s::bigint]",
        coupon,
    )
    assert row[:6] == (2, [two.batch, one.batch], [0, 0], [1, 1], ["", "k"], [two.at_ms, one.at_ms])
    stored = owner.execute(
        "SELECT to_char(valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),"
        " to_char(valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
        " FROM user_coupon WHERE coupon_id = %s ORDER BY valid_to",
        coupon,
    )
    assert [(detail["valid_from"], detail["valid_to"]) for detail in row[6]] == stored
    assert [len(detail) for detail in row[6]] == [2, 2]


def test_a_pass_of_many_steps_tells_each_once(db, owner, coupon_telling):
    """They end at one time, so that users and slots are the order."""
    coupon = coupon_telling(user_limit=2)
    users = [f"user-{n:02}" for n in range(7)]
    at_ms = ago_ms(28)
    for slot in (1, 2):
        batch = [one.but(at_ms=at_ms) for one in batch_make(coupon, users, slot=slot)]
        assert set(db.settle(*batch)) == {"issued"}
    assert steps(db, coupon) == [MOST] * 7
    assert told(owner, coupon) == [user for user in users for _ in range(2)]


def test_rows_of_the_log_are_of_a_thousand(db, owner, coupon_telling):
    coupon = coupon_telling(total=2500)
    issue(db, coupon, *(f"{n:04}" for n in range(2500)), days=28)
    assert steps(db, coupon, 20000) == [2500]
    rows = owner.execute(
        "SELECT num, cardinality(user_id) FROM event_log WHERE type = 'coupon.expiring'"
        " AND coupon = ARRAY[%s::bigint] ORDER BY id",
        coupon,
    )
    assert rows == [(1000, 1000), (1000, 1000), (500, 500)]
    assert told(owner, coupon) == [f"{n:04}" for n in range(2500)]


def test_used_and_voided_coupons_are_not_told(db, owner, coupon_telling):
    coupon = coupon_telling(void_returns=False)
    used, voided, held, back = issue(db, coupon, "used", "voided", "held", "back", days=28)
    db.use(Operation("use", "o1", (used,)), Operation("hold", "o2", (held,)))
    db.use(Operation("use", "o3", (back,)))
    db.use(Operation("rollback", "o3", (back,)))
    db.query("coupon_void", coupon, voided.batch, voided.idx, "voided", None)
    steps(db, coupon)
    assert told(owner, coupon) == ["back", "held"]


def test_one_that_is_received_later_than_that_is_not_told(db, owner, coupon_telling):
    """The end of all is a date; coupon.issued has told it."""
    end = time.time() + 2 * 86400
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
    coupon = coupon_telling(valid_days=None, valid_from="2026-01-01T00:00:00Z", valid_to=stamp)
    issue(db, coupon, "before", days=1.1)
    issue(db, coupon, "after", days=0.9)
    steps(db, coupon)
    assert told(owner, coupon) == ["before"]


@pytest.mark.parametrize("moment", ["before the pass has read", "after that", "after the pass"])
def test_what_is_settled_late_is_told_by_settle(moment, db, owner, coupon_telling):
    """It had been accepted before; the pass is about to read it, or has gone by its end."""
    coupon = coupon_telling()
    issue(db, coupon, "a", "b", "c", days=28)
    if moment == "after the pass":
        steps(db, coupon)
    elif moment == "after that":
        read(db, coupon)
    else:
        db.query("expiring_tell", coupon, MOST)
    before = told(owner, coupon)
    issue(db, coupon, "late", days=28)
    issue(db, coupon, "new", days=1)
    assert told(owner, coupon) == [*before, "late"]
    steps(db, coupon)
    assert sorted(told(owner, coupon)) == ["a", "b", "c", "late"]
    assert owner.execute("SELECT count(*) FROM expiry_late") == [(0,)]


def test_settle_in_the_midst_of_the_begin_of_a_pass(db, db_new, owner, coupon_telling):
    """It has inserted its row and waits for the coupon: when it has it, the pass has begun."""
    coupon = coupon_telling()
    issue(db, coupon, "a", days=28)
    other = db_new()
    other.execute("BEGIN")
    other.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", coupon)
    settling = threading.Thread(target=lambda: issue(db, coupon, "late", days=28))
    settling.start()
    wait_until(lambda: owner.is_blocked(db.pid))
    (row,) = other.query("expiring_tell", coupon, MOST)
    assert (row["told_num"], row["goes_on"]) == ("0", "t")
    other.execute("COMMIT")
    settling.join(60)
    assert told(owner, coupon) == ["late"]
    steps(db, coupon)
    assert told(owner, coupon) == ["late", "a"]


def test_the_begin_of_a_pass_waits_for_settle(db, db_new, owner, coupon_telling):
    """The one that had the coupon first is read by the pass."""
    coupon = coupon_telling()
    other, beginning = db_new(), db_new()
    other.execute("BEGIN")
    other.settle(*batch_make(coupon, ["a"], at_ms=ago_ms(28)))
    began = threading.Thread(target=lambda: beginning.query("expiring_tell", coupon, MOST))
    began.start()
    wait_until(lambda: owner.is_blocked(beginning.pid))
    other.execute("COMMIT")
    began.join(60)
    assert told(owner, coupon) == []
    steps(db, coupon)
    assert told(owner, coupon) == ["a"]


def test_only_one_session_is_at_it(db, db_new, coupon_telling):
    coupon = coupon_telling()
    steps(db, coupon)
    other = db_new()
    other.execute("BEGIN")
    other.query("expiring_tell", coupon, MOST)
    assert db.query("expiring_tell", coupon, MOST) == []
    other.execute("ROLLBACK")


def test_a_campaign_without_it_is_left_alone(db, owner, coupon_telling, coupon_id):
    without, off = coupon_telling(tell_before=None), coupon_id()
    db.coupon_create(off, 10, valid_days=30)
    issue(db, without, "a", days=28)
    assert due(db) == []
    assert db.query("expiring_tell", without, MOST) == []
    assert told(owner, without) == []
    assert owner.execute("SELECT count(*) FROM expiry_notice WHERE coupon_id = %s", without) == [
        (0,)
    ]


def test_when_the_next_pass_is_due(db, owner, coupon_telling):
    coupon = coupon_telling()

    def next_s():
        (row,) = owner.execute(
            "SELECT extract(epoch FROM CASE WHEN isfinite(next_at) THEN next_at - now() END)"
            " FROM expiry_notice WHERE coupon_id = %s",
            coupon,
        )
        return None if row[0] is None else float(row[0])

    steps(db, coupon)
    assert 86000 < next_s() <= 86400, "receives may come: after a day at the latest"
    issue(db, coupon, "a", days=26.5)
    db.query("coupon_edit", coupon, '{"name": "other terms"}')
    assert due(db) == [], "these change no end"
    owner.execute("UPDATE expiry_notice SET next_at = now()")
    steps(db, coupon)
    assert 42000 < next_s() <= 43200, "when it is three days before the first end"
    issue(db, coupon, "b", days=26.9999)
    owner.execute("UPDATE expiry_notice SET next_at = now()")
    steps(db, coupon)
    assert 2500 < next_s() <= 2592, "not before a hundredth of the time"
    # It is over, and everybody has been told.
    owner.execute("UPDATE user_coupon SET valid_to = now() WHERE coupon_id = %s", coupon)
    owner.execute("UPDATE coupon SET status = 'closed', settled_at = now() WHERE id = %s", coupon)
    owner.execute("UPDATE expiry_notice SET next_at = now() WHERE coupon_id = %s", coupon)
    steps(db, coupon)
    assert next_s() is None and due(db) == []
    owner.execute("UPDATE coupon SET issued_num = 3 WHERE id = %s", coupon)
    owner.execute("UPDATE coupon SET settled_at = now() WHERE id = %s", coupon)
    assert due(db) == [coupon], "there is a new outcome"


def test_nobody_is_told_after_the_end(db, owner, coupon_telling):
    """The pass had begun, and could not go on."""
    coupon = coupon_telling()
    issue(db, coupon, "a", "b", days=28)
    db.query("expiring_tell", coupon, MOST)
    owner.execute(
        "UPDATE user_coupon SET valid_to = now() - interval '1 s' WHERE coupon_id = %s"
        " AND user_id = 'a'",
        coupon,
    )
    owner.execute("UPDATE expiry_notice SET pass_from = now() - interval '1 h'")
    steps(db, coupon)
    assert told(owner, coupon) == ["b"]


def read(db, coupon):
    """The steps of a pass until it has read."""
    for _ in range(2):
        (row,) = db.query("expiring_tell", coupon, MOST)
        assert (row["told_num"], row["goes_on"]) == ("0", "t")


def test_one_that_is_voided_after_it_was_read(db, owner, coupon_telling):
    """Its slot has another receive, which is told when its own time comes."""
    coupon = coupon_telling()
    (old,) = issue(db, coupon, "a", days=28)
    read(db, coupon)
    db.query("coupon_void", coupon, old.batch, old.idx, "a", None)
    issue(db, coupon, "a", seq_first=2)
    steps(db, coupon)
    assert told(owner, coupon) == []


def test_telling_waits_for_a_void(db, db_new, owner, coupon_telling):
    coupon = coupon_telling(void_returns=False)
    old, _ = issue(db, coupon, "a", "b", days=28)
    read(db, coupon)
    other = db_new()
    other.execute("BEGIN")
    other.query("coupon_void", coupon, old.batch, old.idx, "a", None)
    telling = threading.Thread(target=lambda: db.query("expiring_tell", coupon, MOST))
    telling.start()
    wait_until(lambda: owner.is_blocked(db.pid))
    other.execute("COMMIT")
    telling.join(60)
    assert told(owner, coupon) == ["b"]


def test_campaigns_take_turns(db, coupon_telling):
    first, second = sorted((coupon_telling(), coupon_telling()))
    assert (due(db), due(db, first), due(db, second)) == ([first], [second], [])


def test_a_draft_is_not_due(db, coupon_id):
    coupon = coupon_id()
    db.coupon_create(coupon, 5, events_on=True, valid_days=30, tell_before=TELL_S)
    assert due(db) == []


def test_of_several_coupons_settled_late(db, owner, coupon_telling):
    """One call; of each its own, and none of one that does not ask for it."""
    one, two, without = coupon_telling(), coupon_telling(), coupon_telling(tell_before=None)
    for coupon in (one, two):
        steps(db, coupon)
    receives = [
        batch_make(coupon, [user], at_ms=ago_ms(28))[0]
        for coupon, user in ((one, "a"), (two, "b"), (without, "c"))
    ]
    assert set(db.settle(*receives)) == {"issued"}
    rows = owner.execute(
        "SELECT coupon, user_id, batch FROM event_log WHERE type = 'coupon.expiring'"
    )
    (row,) = rows
    assert sorted(zip(*row)) == sorted((one.coupon, one.user, one.batch) for one in receives[:2])


def test_what_is_settled_late_and_has_ended_is_not_told(db, owner, coupon_telling):
    coupon = coupon_telling()
    steps(db, coupon)
    issue(db, coupon, "a", days=31)
    assert told(owner, coupon) == []


def test_a_shorter_time(db, owner, coupon_telling):
    """All end on one day. Those whom the longer time did not reach have theirs; nobody is told
    again, and nobody when the coupon is issued."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2 * 86400))
    terms = {"valid_days": None, "valid_from": "2026-01-01T00:00:00Z", "valid_to": end}
    coupon = coupon_telling(tell_before=7 * 86400, **terms)
    issue(db, coupon, "long before", days=6)
    issue(db, coupon, "before", days=2)
    steps(db, coupon)
    assert told(owner, coupon) == ["long before"]
    db.query("coupon_edit", coupon, f'{{"tell_before": {TELL_S}}}')
    steps(db, coupon)
    assert told(owner, coupon) == ["long before", "before"]
    # And once more.
    issue(db, coupon, "late", days=0.5)
    db.query("coupon_edit", coupon, f'{{"tell_before": {2 * 86400 + 3600}}}')
    steps(db, coupon)
    assert told(owner, coupon) == ["long before", "before", "late"]
    issue(db, coupon, "later", days=6.5)
    issue(db, coupon, "now")
    assert told(owner, coupon) == ["long before", "before", "late", "later"]


def test_a_time_that_was_far_too_long(db, owner, coupon_telling):
    """Set by mistake, it has told many; others are told as if it had never been."""
    coupon = coupon_telling(tell_before=29 * 86400)
    issue(db, coupon, "a", days=2)
    steps(db, coupon)
    assert told(owner, coupon) == ["a"]
    db.query("coupon_edit", coupon, f'{{"tell_before": {TELL_S}}}')
    steps(db, coupon)
    issue(db, coupon, "b")
    assert told(owner, coupon) == ["a"], "and not b as soon as it has it"
    owner.execute(
        "UPDATE user_coupon SET received_at = now() - interval '20 days',"
        " valid_to = now() + interval '1 day' WHERE coupon_id = %s AND user_id = 'b'",
        coupon,
    )
    owner.execute("UPDATE expiry_notice SET next_at = now(), told_to = now()")
    steps(db, coupon)
    assert told(owner, coupon) == ["a", "b"]


def test_a_change_of_the_time_tells_nobody_twice(db, owner, coupon_telling):
    coupon = coupon_telling()
    issue(db, coupon, "a", days=28)
    issue(db, coupon, "b", days=24)
    steps(db, coupon)
    db.query("coupon_edit", coupon, f'{{"tell_before": {7 * 86400}}}')
    assert due(db) == [coupon]
    steps(db, coupon)
    assert told(owner, coupon) == ["a", "b"]
    db.query("coupon_edit", coupon, f'{{"tell_before": {TELL_S}}}')
    steps(db, coupon)
    assert told(owner, coupon) == ["a", "b"]


def test_nothing_is_due_while_the_log_is_full(db, owner, coupon_telling):
    coupon = coupon_telling()
    for n in range(100):
        db.query("coupon_edit", coupon, f'{{"name": "{n}"}}')
    assert due(db) == []
    owner.execute("DELETE FROM event_log WHERE id = (SELECT min(id) FROM event_log)")
    owner.execute("DELETE FROM event_log WHERE id = (SELECT min(id) FROM event_log)")
    owner.execute("DELETE FROM event_log WHERE id = (SELECT min(id) FROM event_log)")
    assert due(db) == [coupon]
