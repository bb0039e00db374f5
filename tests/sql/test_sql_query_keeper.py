"""The statements of the keeper: coupons and their ends, rejected receives that are given back, and
the gateways that it waits for."""

import uuid
from uuid import uuid4

import pytest

from sql_db import array_text, batch_make, Receive, users_make

RUN_ID = "1" * 40  # of Redis


# Coupons


def test_keeper_fence_rises(db):
    db.execute("BEGIN")
    first = int(db.query("keeper_fence", RUN_ID)[0]["fence"])
    assert int(db.query("keeper_fence", RUN_ID)[0]["fence"]) == first + 1
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
    """The fence of a keeper that was just elected; all changes of the test are rolled back."""
    db.execute("BEGIN")
    yield int(db.query("keeper_fence", RUN_ID)[0]["fence"])
    db.execute("ROLLBACK")


def closed_new(db, coupon_new, fence, users=("1", "2"), **terms):
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
    first, second, third = batch_make(coupon, ["1", "2", "3"], generation=1)
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
    (late,) = batch_make(coupon, ["9"], seq_first=5, generation=1)
    db.settle(late)
    assert not settled_set(db, coupon, fence, 2, 0), "3 and 4 are owed"


def test_settled_set_wants_all_given_back(db, coupon_new, fence):
    coupon = closed_new(db, coupon_new, fence, total=1)
    assert not settled_set(db, coupon, fence, 1, 2)
    db.execute("UPDATE receive_rejected SET freed_at = now() WHERE coupon_id = %s", coupon)
    assert settled_set(db, coupon, fence, 1, 2)


def test_a_late_outcome_unsettles(db, coupon_new, fence):
    coupon = closed_new(db, coupon_new, fence)
    assert settled_set(db, coupon, fence, 1, 2) and expires_set(db, coupon, fence)
    db.settle(*batch_make(coupon, ["1"], generation=1))
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
    fence = db.query("keeper_fence", RUN_ID)[0]["fence"]
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
        "revocation_num": "0",
    }
    locked = db.query("coupon_lock", paused)[0]
    only_locked = {"own_end_ms": "1893456000000", "valid_to_ms": "0", "zone": "UTC", "begin": None}
    only_locked["end"] = "2030-01-01T00:00:00+00:00"
    assert locked.items() >= only_locked.items() and locked.pop("now_ms").isdecimal()
    assert mine[1].items() >= {(n, v) for n, v in locked.items() if n not in only_locked}
    assert [
        int(row["id"])
        for row in db.query("coupon_page", 0, 9, array_text([paused, settled, closed, 1]))
    ] == [paused, closed]
    db.execute("ROLLBACK")


def test_coupon_page_tells_what_is_not_given_back(db, coupon_new):
    coupon = coupon_new(total=1)
    db.query("coupon_status_set", coupon, "published")
    db.settle(*batch_make(coupon, ["1", "2"]))
    assert db.query("coupon_page", 0, 1, array_text([coupon]))[0]["is_pending"] == "t"
    db.execute("UPDATE receive_rejected SET freed_at = now() WHERE coupon_id = %s", coupon)
    assert db.query("coupon_page", 0, 1, array_text([coupon]))[0]["is_pending"] == "f"


def test_coupon_ended_set_is_guarded(db, coupon_new):
    draft, published, paused, endless, later = (
        coupon_new(end=end) for end in (*["2020-01-01T00:00:00Z"] * 3, None, "2100-01-01T00:00:00Z")
    )
    validity = {"valid_from": "2019-01-01T00:00:00Z", "valid_to": "2020-01-01T00:00:00Z"}
    useless = coupon_new(end="2100-01-01T00:00:00Z", **validity)
    db.execute("BEGIN")
    fence = int(db.query("keeper_fence", RUN_ID)[0]["fence"])
    for coupon in (published, paused, endless, later, useless):
        db.query("coupon_status_set", coupon, "published")
    db.query("coupon_status_set", paused, "paused")
    assert db.query("coupon_ended_set", published, 2, fence - 1) == [
        {"is_elected": "f", "is_closed": "f"}
    ]
    for coupon, version in ((published, 1), (draft, 1), (1, 1), (endless, 2), (later, 2)):
        assert db.query("coupon_ended_set", coupon, version, fence) == [
            {"is_elected": "t", "is_closed": "f"}
        ]
    for coupon, version in ((published, 2), (paused, 3), (useless, 2)):
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
    fence = int(db.query("keeper_fence", RUN_ID)[0]["fence"])
    assert db.query("coupon_generation_open", coupon, 0, 0, fence) == [{"generation": "1"}]
    db.settle(*batch_make(coupon, ["1", "2"], generation=1))
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
    fence = db.query("keeper_fence", RUN_ID)[0]["fence"]
    db.settle(*batch_make(coupon, ["1"], generation=8))
    assert db.query("coupon_generation_open", coupon, 0, 0, fence) == [{"generation": "9"}]
    assert db.generations(coupon) == {8: (1, 1)}
    assert db.query("coupon_generation_open", coupon, 9, 20, fence) == [
        {"generation": "21"}
    ], "above that of Redis"
    db.execute("ROLLBACK")


# Rejected receives


def slot_free_pending(db, *coupons, page=256):
    """The pending receives of these coupons, read in pages; those of other coupons are skipped."""
    found, after = [], (min(coupons) - 1, uuid.UUID(int=0), 0)
    while rows := db.query("slot_free_pending", *after, page):
        assert len(rows) <= page
        found += rows
        after = tuple(rows[-1][name] for name in ("coupon_id", "batch", "idx"))
    return [row for row in found if int(row["coupon_id"]) in coupons]


def slot_free_done(db, *receives, run_id=RUN_ID):
    columns = (
        array_text(getattr(one, field) for one in receives) for field in ("coupon", "batch", "idx")
    )
    db.query("slot_free_done", *columns, run_id)


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
    assert slot_free_pending(db, coupon, full, nowhere) == expected
    assert slot_free_pending(db, coupon, full, nowhere, page=1) == expected
    db.execute("ROLLBACK")


@pytest.mark.usefixtures("fence")
def test_freed_ones_are_not_pending(db, coupon_new):
    coupon = coupon_new(total=1)
    batch = batch_make(coupon, users_make(1, 12))
    db.settle(*batch)
    left = sorted(str(one.idx) for one in batch[1:])
    slot_free_done(db, batch[0], *batch[3:6])  # the first was issued
    for one in batch[3:6]:
        left.remove(str(one.idx))
    assert sorted(row["idx"] for row in slot_free_pending(db, coupon)) == left
    when = (
        "SELECT idx, freed_at FROM receive_rejected WHERE coupon_id = %s AND freed_at IS"
        " NOT NULL ORDER BY idx"
    )
    marked = db.execute(when, coupon)
    assert [row[0] for row in marked] == [one.idx for one in batch[3:6]]
    slot_free_done(db, *batch[3:6])
    assert db.execute(when, coupon) == marked
    assert db.settle(*batch[3:6]) == ["out_of_stock"] * 3
    assert len(db.tombstones(coupon)) == 10


@pytest.mark.usefixtures("fence")
def test_what_another_process_of_redis_freed_is_pending(db, coupon_new):
    coupon = coupon_new(total=1)
    first, second = batch_make(coupon, ["1", "2"])
    db.settle(first, second)
    slot_free_done(db, second, run_id="2" * 40)
    assert [row["idx"] for row in slot_free_pending(db, coupon)] == [str(second.idx)]
    slot_free_done(db, second)
    assert not slot_free_pending(db, coupon)


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
    db.execute("BEGIN")
    db.query("keeper_fence", RUN_ID)
    slot_free_done(db, *batch)
    marked = "SELECT freed_at IS NOT NULL FROM receive_rejected WHERE coupon_id = %s AND idx = 2"
    assert db.execute(marked, coupon) == [(True,)]
    db.execute("ROLLBACK")
    other.execute("ROLLBACK")
    db.execute("RESET lock_timeout")


# Gateways


def alive(db, gateway, place="here", is_new=False):
    db.query("gateway_alive", gateway, place, "true" if is_new else "false")


def gone(db, gateway):
    db.query("gateway_gone", gateway)


def known(db):
    rows = db.query("gateway_rows", 100)
    return {row["id"]: row["coalesce"] == "t" for row in rows}


def later(db, interval):
    """Time passes: everything was that much earlier."""
    db.execute(
        "UPDATE gateway SET seen_at = seen_at - %s::interval, gone_at = gone_at - %s::interval",
        interval,
        interval,
    )


@pytest.fixture
def two(db):
    db.execute("DELETE FROM gateway")
    return str(uuid4()), str(uuid4())


def test_alive_until_it_ends(db, two):
    one, other = two
    alive(db, one, is_new=True)
    alive(db, other, "there", is_new=True)
    assert known(db) == {one: False, other: False}
    gone(db, one)
    gone(db, uuid4())
    assert known(db) == {one: True, other: False}


def test_the_next_one_at_its_place_takes_over_unless_it_calls_again(db, two):
    one, other = two
    alive(db, one, is_new=True)
    alive(db, other, is_new=True)
    assert known(db) == {one: False, other: False}, "two gateways may be given one place"
    later(db, "5 s")
    alive(db, one)
    later(db, "5 s")
    assert known(db) == {one: False, other: False}
    alive(db, str(uuid4()), is_new=True)
    alive(db, other)
    later(db, "8 s")
    assert known(db)[one] and not known(db)[other]


def test_one_that_has_ended_stays_gone_when_the_clock_is_set_back(db, two):
    one, other = two
    alive(db, one, is_new=True)
    alive(db, other, "there", is_new=True)
    gone(db, one)
    later(db, "-1 hour")
    assert known(db) == {one: True, other: False}
    assert [row["id"] for row in db.query("gateway_running")] == [other]


def test_it_returns_after_it_was_taken_for_gone(db, two):
    one, _ = two
    alive(db, one)
    gone(db, one)
    alive(db, one)
    assert known(db) == {one: False}


def test_after_a_day_of_silence_it_is_gone_and_a_day_later_removed(db, two):
    one, other = two
    alive(db, one)
    later(db, "23 hours")
    alive(db, other, "there")
    assert known(db) == {one: False, other: False}
    later(db, "2 hours")
    alive(db, other, "there")
    assert known(db) == {one: True, other: False}
    later(db, "25 hours")
    alive(db, other, "there")
    assert known(db) == {other: False}
