"""The statements of sql/query, as the programs run them."""

import re
import time
import uuid

import psycopg
import pytest
from sql_db import MIGRATIONS, QUERIES, Receive, array_text, batch_make
from stack import wait_until

OWNER_ONLY = {"migration_init", "migration_record", "function_state", "function_record"}


NOT_TO_PREPARE = {
    "rebuild_begin",
    "rebuild_patience",
    "rebuild_rows",
    "rebuild_fetch",
    "rebuild_end",
}  # a transaction's


@pytest.mark.parametrize("name", sorted(set(QUERIES) - OWNER_ONLY - NOT_TO_PREPARE))
def test_prepares_in_the_programs_role(db, name):
    db.execute(f"PREPARE {name} AS {QUERIES[name]}")


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_is_one_statement_that_says_what_it_is_for(name):
    assert QUERIES[name].startswith("-- ")
    assert ";" not in re.sub(r"--.*", "", QUERIES[name])


def test_migrations_are_numbered_without_a_gap():
    assert [int(path.name[:4]) for path in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_migration_record(owner):
    owner.execute("BEGIN")
    owner.query("migration_init")
    owner.query("migration_record", 9999, "later")
    assert owner.query("migration_list")[-1] == {"version": "9999", "name": "later"}
    owner.execute("ROLLBACK")


def test_receive_outcome(db, coupon_new):
    coupon = coupon_new(total=1, days=1)
    issued, rejected = batch_make(coupon, [1, 2])
    db.settle(issued, rejected)
    assert db.query("receive_outcome", coupon, 1, issued.batch, 0) == [
        {
            "state": "issued",
            "slot": "1",
            "reason": None,
            "valid_from": "2023-11-14T22:13:20.123Z",
            "valid_to": "2023-11-15T22:13:20.123Z",
        }
    ]
    assert db.query("receive_outcome", coupon, 2, issued.batch, 1) == [
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
        (coupon, 2, issued.batch, 0),
        (coupon, 1, issued.batch, 1),
        (coupon, 1, uuid.uuid4(), 0),
        (coupon - 1, 1, issued.batch, 0),
        (coupon, 1, rejected.batch, 1),
    ]:
        assert db.query("receive_outcome", *wrong) == []


def test_user_outcomes(db, coupon_new):
    coupon = coupon_new(limit=2)
    batch = uuid.uuid4()
    db.settle(
        Receive(coupon, 1, batch, 0, slot=2, key="k"),
        Receive(coupon, 1, batch, 1),
        Receive(coupon, 2, batch, 3),
        Receive(coupon, 1, batch, 2),
    )
    rows = db.query("user_outcomes", coupon, 1)
    assert [(r["state"], r["slot"], r["idx"], r["reason"], r["key"]) for r in rows] == [
        ("issued", "1", "1", None, ""),
        ("issued", "2", "0", None, "k"),
        ("rejected", "1", "2", "slot_taken", ""),
    ]
    assert {r["batch"] for r in rows} == {str(batch)}
    assert db.query("user_outcomes", coupon, 3) == []


def test_user_outcomes_are_bounded(db, coupon_new):
    coupon = coupon_new(limit=100)
    batch = uuid.uuid4()
    db.settle(*(Receive(coupon, 1, batch, slot, slot=slot) for slot in range(1, 301)))
    rows = db.query("user_outcomes", coupon, 1)
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


def test_keeper_fence_rises(db):
    db.execute("BEGIN")
    first = int(db.query("keeper_fence")[0]["fence"])
    assert int(db.query("keeper_fence")[0]["fence"]) == first + 1
    db.execute("ROLLBACK")


def settled_set(db, coupon, fence, generation=0, seq=0, highs=(), elected=True):
    """Whether it was marked; highs: {generation: seq}."""
    arrays = array_text(dict(highs)), array_text(dict(highs).values())
    row = db.query("coupon_settled_set", coupon, fence, generation, seq, *arrays)[0]
    assert row["is_elected"] == ("t" if elected else "f")
    return row["is_settled"] == "t"


def expires_set(db, coupon, fence, keep_ms=1000, elected=True):
    row = db.query("coupon_expires_set", coupon, fence, keep_ms)[0]
    assert row["is_elected"] == ("t" if elected else "f")
    return row["is_recorded"] == "t"


@pytest.fixture
def fence(db):
    """Of a keeper that was just elected; all changes of the test are rolled back."""
    db.execute("BEGIN")
    yield int(db.query("keeper_fence")[0]["fence"])
    db.execute("ROLLBACK")


def closed_new(db, coupon_new, fence, users=(1, 2), **terms):
    """A closed coupon whose receives of generation 1 are settled."""
    coupon = coupon_new(**terms)
    db.query("coupon_status_set", coupon, "published")
    assert db.query("coupon_generation_open", coupon, 0, 0, fence) == [{"generation": "1"}]
    if users:
        db.settle(*batch_make(coupon, users, generation=1))
    db.query("coupon_status_set", coupon, "closed")
    return coupon


def test_settled_set_is_guarded(db, coupon_new, fence):
    coupon, published = closed_new(db, coupon_new, fence), coupon_new()
    db.query("coupon_status_set", published, "published")
    assert not settled_set(db, coupon, fence - 1, 1, 2, elected=False)
    assert not settled_set(db, published, fence)
    for generation, seq in ((1, 1), (1, 3), (0, 2), (2, 2)):
        assert not settled_set(db, coupon, fence, generation, seq)
    assert settled_set(db, coupon, fence, 1, 2)
    assert settled_set(db, coupon, fence, 1, 2), "it is"
    assert not expires_set(db, coupon, fence - 1, elected=False)
    assert not expires_set(db, closed_new(db, coupon_new, fence), fence), "not settled"
    assert expires_set(db, coupon, fence)


def test_settled_set_wants_every_number_settled(db, coupon_new, fence):
    """The second of three is in flight."""
    coupon = closed_new(db, coupon_new, fence, users=())
    first, second, third = batch_make(coupon, [1, 2, 3], generation=1)
    db.settle(first, third)
    assert not settled_set(db, coupon, fence, 1, 3) and not settled_set(db, coupon, fence, 1, 2)
    db.settle(second)
    assert settled_set(db, coupon, fence, 1, 3)


def test_settled_set_wants_older_generations_settled(db, coupon_new, fence):
    coupon = closed_new(db, coupon_new, fence)
    assert db.query("coupon_generation_open", coupon, 1, 0, fence) == [{"generation": "2"}]
    assert not settled_set(db, coupon, fence, 2, 0, {1: 3}), "Redis has a third one"
    assert not settled_set(
        db, coupon, fence, 2, 0, {1: 2, 7: 1}
    ), "and a generation without settled receives"
    assert settled_set(db, coupon, fence, 2, 0, {1: 2, 7: 0}) and settled_set(
        db, coupon, fence, 2, 0
    )
    (late,) = batch_make(coupon, [9], seq_first=5, generation=1)
    db.settle(late)
    assert not settled_set(db, coupon, fence, 2, 0), "3 and 4 are owed"


def test_settled_set_wants_all_given_back(db, coupon_new, fence):
    coupon = closed_new(db, coupon_new, fence, total=1)
    assert not settled_set(db, coupon, fence, 1, 2)
    db.execute("UPDATE receive_rejected SET released_at = now() WHERE coupon_id = %s", coupon)
    assert settled_set(db, coupon, fence, 1, 2)


def test_a_late_outcome_unsettles(db, coupon_new, fence):
    coupon = closed_new(db, coupon_new, fence)
    assert settled_set(db, coupon, fence, 1, 2) and expires_set(db, coupon, fence)
    db.settle(*batch_make(coupon, [1], generation=1))
    marks = "SELECT settled_at IS NOT NULL, expires_at IS NOT NULL FROM coupon WHERE id = %s"
    assert db.execute(marks, coupon) == [(False, True)]
    assert [row["is_settled"] for row in db.query("coupon_page", 0, 1, array_text([coupon]))] == [
        "f"
    ]
    assert coupon not in [
        int(row["id"]) for row in db.query("coupon_expiring_page", "-infinity", 0, 100_000)
    ]


def test_coupon_expiring_page(db, coupon_new, fence):
    coupons = [closed_new(db, coupon_new, fence) for _ in range(5)]
    for coupon, keep_ms in zip(coupons, (3000, 1000, 2000, -1000, 2000)):
        assert settled_set(db, coupon, fence, 1, 2) and expires_set(db, coupon, fence, keep_ms)
    found, after = [], ("-infinity", 0)
    while page := [row for row in db.query("coupon_expiring_page", *after, 2)]:
        found += page
        after = page[-1]["expires_at"], page[-1]["id"]
    first, second, third, gone, fourth = coupons
    assert [int(row["id"]) for row in found if int(row["id"]) in coupons] == [
        second,
        *sorted([third, fourth]),
        first,
    ]
    assert {(row["generation"], row["seq_seen"]) for row in found if int(row["id"]) in coupons} == {
        ("1", "2")
    }


def test_coupon_page_has_what_the_keeper_must_watch(db, coupon_new):
    ids = sorted(coupon_new(total=7, limit=2, end="2030-01-01T00:00:00Z") for _ in range(5))
    draft, published, paused, closed, settled = ids
    db.execute("BEGIN")
    fence = db.query("keeper_fence")[0]["fence"]
    for coupon in ids[1:]:
        db.query("coupon_status_set", coupon, "published")
    db.query("coupon_status_set", paused, "paused")
    for coupon in (closed, settled):
        db.query("coupon_status_set", coupon, "closed")
    assert settled_set(db, settled, fence) and expires_set(db, settled, fence)

    watched = []
    after = ids[0] - 1
    while page := db.query("coupon_page", after, 2, None):
        assert len(page) <= 2
        watched += page
        after = page[-1]["id"]
    mine = [row for row in watched if int(row["id"]) in ids]
    assert [int(row["id"]) for row in mine] == [published, paused, closed]
    assert mine[0] == {
        "id": str(published),
        "status": "published",
        "version": "2",
        "total_num": "7",
        "issued_num": "0",
        "user_limit": "2",
        "begin_ms": "0",
        "end_ms": "1893456000000",
        "generation": "0",
        "seq_seen": "0",
        "settled_num": "0",
        "rebuild_asked": "0",
        "rebuild_done": "0",
        "is_pending": "f",
        "is_settled": "f",
        "is_late": "f",
    }
    assert mine[1].items() >= db.query("coupon_lock", paused)[0].items()
    assert [
        int(row["id"])
        for row in db.query("coupon_page", 0, 9, array_text([paused, settled, closed, 1]))
    ] == [paused, closed]
    db.execute("ROLLBACK")


def test_coupon_page_tells_what_is_not_given_back(db, coupon_new):
    coupon = coupon_new(total=1)
    db.query("coupon_status_set", coupon, "published")
    db.settle(*batch_make(coupon, [1, 2]))
    assert db.query("coupon_page", 0, 1, array_text([coupon]))[0]["is_pending"] == "t"
    db.execute("UPDATE receive_rejected SET released_at = now() WHERE coupon_id = %s", coupon)
    assert db.query("coupon_page", 0, 1, array_text([coupon]))[0]["is_pending"] == "f"


def test_coupon_ended_set_is_guarded(db, coupon_new):
    draft, published, paused, endless, later = (
        coupon_new(end=end) for end in (*["2020-01-01T00:00:00Z"] * 3, None, "2100-01-01T00:00:00Z")
    )
    db.execute("BEGIN")
    fence = int(db.query("keeper_fence")[0]["fence"])
    for coupon in (published, paused, endless, later):
        db.query("coupon_status_set", coupon, "published")
    db.query("coupon_status_set", paused, "paused")
    assert db.query("coupon_ended_set", published, 2, fence - 1) == [
        {"is_elected": "f", "is_closed": "f"}
    ]
    for coupon, version in ((published, 1), (draft, 1), (1, 1), (endless, 2), (later, 2)):
        assert db.query("coupon_ended_set", coupon, version, fence) == [
            {"is_elected": "t", "is_closed": "f"}
        ]
    for coupon, version in ((published, 2), (paused, 3)):
        assert db.query("coupon_ended_set", coupon, version, fence) == [
            {"is_elected": "t", "is_closed": "t"}
        ]
        assert db.execute("SELECT status, version FROM coupon WHERE id = %s", coupon) == [
            ("closed", version + 1)
        ]
        assert db.query("coupon_ended_set", coupon, version + 1, fence) == [
            {"is_elected": "t", "is_closed": "f"}
        ]
    db.execute("ROLLBACK")


def test_generation_next_is_guarded(db, coupon_new):
    coupon = coupon_new()
    db.execute("BEGIN")
    fence = int(db.query("keeper_fence")[0]["fence"])
    assert db.query("coupon_generation_open", coupon, 0, 0, fence) == [{"generation": "1"}]
    db.settle(*batch_make(coupon, [1, 2], generation=1))
    assert db.query("coupon_generation_open", coupon, 0, 0, fence) == []
    assert db.query("coupon_generation_open", coupon, 1, 0, fence - 1) == []
    assert db.query("coupon_generation_open", 1, 0, 0, fence) == []
    assert db.counts(coupon) == (2, 2, 2)
    assert db.query("coupon_generation_open", coupon, 1, 0, fence) == [{"generation": "2"}]
    assert db.counts(coupon) == (2, 0, 0)
    assert db.generations(coupon) == {1: (2, 2)}
    db.execute("ROLLBACK")


def test_generation_is_above_every_one_ever_seen(db, coupon_new):
    """As after the restore of a backup: messages are of a generation that the coupon does not
    have."""
    coupon = coupon_new()
    db.execute("BEGIN")
    fence = db.query("keeper_fence")[0]["fence"]
    db.settle(*batch_make(coupon, [1], generation=8))
    assert db.query("coupon_generation_open", coupon, 0, 0, fence) == [{"generation": "9"}]
    assert db.generations(coupon) == {8: (1, 1)}
    assert db.query("coupon_generation_open", coupon, 9, 20, fence) == [
        {"generation": "21"}
    ], "above that of Redis"
    db.execute("ROLLBACK")


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
    db.settle(*batch_make(coupon, [1, 2]), *batch_make(coupon, [3], seq_first=9, generation=4))
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
    db.settle(*batch_make(coupon, [1, 2]))

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
    db.settle(*batch_make(coupon, [1]))
    assert announced() == []
    db.query("coupon_status_set", coupon, "closed")
    assert announced() == [str(coupon)]


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
    holder = Receive(coupon, 1, uuid.uuid4(), 5, key="its: key")
    db.settle(holder)
    rejected = [
        Receive(coupon, 1, uuid.uuid4(), 9, key="k"),
        Receive(coupon, 2, uuid.uuid4(), 0, slot=2),
        *batch_make(full, [1, 2])[1:],
        Receive(nowhere, 1, uuid.uuid4(), 0),
    ]
    db.settle(Receive(full, 7, uuid.uuid4(), 0))
    assert db.settle(*rejected) == ["slot_taken", "slot_invalid", "out_of_stock", "unknown_coupon"]
    expected = [
        {
            "coupon_id": str(one.coupon),
            "batch": str(one.batch),
            "idx": str(one.idx),
            "user_id": str(one.user),
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
    batch = batch_make(coupon, range(1, 12))
    db.settle(*batch)
    left = sorted(str(one.idx) for one in batch[1:])
    release_done(db, batch[0], *batch[3:6])  # the first was issued
    for one in batch[3:6]:
        left.remove(str(one.idx))
    assert sorted(row["idx"] for row in release_pending(db, coupon)) == left
    assert db.query("coupon_show", coupon)[0]["unreleased_num"] == str(len(left))
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
    batch = batch_make(coupon, [1, 2, 3])
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


def test_the_programs_may_change_nothing_else_of_a_rejection(db):
    for column in (
        "coupon_id",
        "batch",
        "idx",
        "user_id",
        "slot",
        "reason",
        "received_at",
        "rejected_at",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(f"UPDATE receive_rejected SET {column} = {column} WHERE false")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        db.execute("DELETE FROM receive_rejected WHERE false")


def test_audits_find_what_is_wrong(db, owner, coupon_new, coupon_id):
    coupon, nowhere = coupon_new(total=3, limit=2), coupon_id()
    batch = batch_make(coupon, [1, 2, 3, 4])
    db.settle(*batch)
    assert db.audit(coupon) == []
    owner.execute("BEGIN")
    add = (
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " VALUES (%s, %s, %s, %s, %s, now(), now())"
    )
    owner.execute(add, 7, nowhere, 1, 0, uuid.uuid4())
    assert owner.audit(nowhere) == [
        (
            "audit_stock",
            {"coupon_id": str(nowhere), "total_num": None, "issued_num": None, "row_num": "1"},
        )
    ]
    owner.execute(add, 1, coupon, 2, batch[3].idx, batch[3].batch)  # the rejected one
    owner.execute(
        add, 1, coupon, 3, batch[2].idx, batch[2].batch
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
        batch = uuid.UUID(int=(made_ms << 80) + user)
        return Receive(coupon, user, batch, 0, seq=user, at_ms=at_ms, **fields)

    db.settle(receive(1, 5000, 5100), receive(2, 6000, 6100), receive(3, 99000, 5500))
    assert db.query("audit_overtaken", coupon, 5000) == [{"newest_ms": "6000"}]
    assert db.query("audit_overtaken", coupon, 6100) == [{"newest_ms": None}]
    assert db.settle(receive(4, 7000, 7100, slot=9)) == ["slot_invalid"]
    assert db.query("audit_overtaken", coupon, 5000) == [{"newest_ms": "7000"}]
