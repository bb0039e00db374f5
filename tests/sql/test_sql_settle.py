"""settle(), one branch at a time, one connection."""

import datetime
import uuid

import psycopg
import pytest
from sql_db import AT_MS, Receive, batch_make, users_make
from user_ids import HOSTILE

UTC = datetime.timezone.utc
AT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def by_user(receive):
    return receive.user


def test_new_receives_are_issued(db, coupon_new):
    coupon = coupon_new(total=10)
    batch = batch_make(coupon, ["7", "3", "9223372036854775807"])
    assert db.settle(*batch) == ["issued"] * 3
    assert db.rows(coupon) == [(r.user, 1, r.batch, r.idx) for r in (batch[1], batch[0], batch[2])]
    assert db.counts(coupon) == (3, 3, 3)
    assert db.tombstones(coupon) == []
    assert db.audit(coupon) == []


def test_no_receives_are_settled_too(db):
    assert db.settle() == []


def test_repeated_message_counts_once(db, coupon_new):
    coupon = coupon_new()
    batch = batch_make(coupon, ["1", "2", "3"])
    assert db.settle(*batch[:2]) == ["issued"] * 2
    assert db.settle(*batch) == ["repeated", "repeated", "issued"]
    assert db.settle(*batch) == ["repeated"] * 3
    assert db.counts(coupon) == (3, 3, 3)


def test_equal_elements_of_one_call_count_once(db, coupon_new):
    coupon = coupon_new()
    one, two = batch_make(coupon, ["1", "2"])
    assert db.settle(one, two, one, one) == ["issued", "issued", "repeated", "repeated"]
    assert db.counts(coupon) == (2, 2, 2)
    assert db.settle(one, one) == ["repeated", "repeated"]


def test_equal_rejected_elements_have_one_reason(db, coupon_new):
    coupon = coupon_new(limit=2)
    one = Receive(coupon, "1", uuid.uuid4(), 0, slot=3)
    assert db.settle(one, one) == ["slot_invalid"] * 2
    assert db.counts(coupon) == (0, 1, 1)


def test_slot_of_another_receive_is_taken(db, coupon_new):
    coupon = coupon_new()
    first, other = Receive(coupon, "1", uuid.uuid4(), 0), Receive(
        coupon, "1", uuid.uuid4(), 0, seq=2
    )
    assert db.settle(first) == ["issued"]
    assert db.settle(other) == ["slot_taken"]
    assert db.tombstones(coupon) == [("1", 1, other.batch, 0, "slot_taken")]
    assert db.counts(coupon) == (1, 2, 2)
    assert db.settle(other, first) == ["slot_taken", "repeated"]
    assert db.counts(coupon) == (1, 2, 2)


def test_of_two_receives_for_a_slot_the_first_wins(db, coupon_new):
    coupon = coupon_new()
    first = Receive(coupon, "1", uuid.UUID(int=2**128 - 1), 9, seq=20)
    other = Receive(coupon, "1", uuid.UUID(int=1), 0, seq=3)
    assert db.settle(first, other) == ["issued", "slot_taken"]
    assert db.rows(coupon) == [("1", 1, first.batch, 9)]


def test_index_alone_does_not_make_the_same_receive(db, coupon_new):
    coupon = coupon_new()
    batch = uuid.uuid4()
    assert db.settle(Receive(coupon, "1", batch, 0), Receive(coupon, "1", batch, 1)) == [
        "issued",
        "slot_taken",
    ]


def test_user_takes_slots_up_to_the_limit(db, coupon_new):
    coupon = coupon_new(limit=2)
    batch = uuid.uuid4()
    receives = [
        Receive(coupon, "1", batch, slot + 1, slot=slot, seq=slot + 2) for slot in (-1, 0, 1, 2, 3)
    ]
    assert db.settle(*receives) == [
        "slot_invalid",
        "slot_invalid",
        "issued",
        "issued",
        "slot_invalid",
    ]
    assert db.counts(coupon) == (2, 5, 5)
    assert db.settle(*receives) == [
        "slot_invalid",
        "slot_invalid",
        "repeated",
        "repeated",
        "slot_invalid",
    ]
    assert db.audit(coupon) == []


@pytest.mark.parametrize("others", [0, 1])
def test_a_slot_above_the_limit(db, coupon_new, others):
    """Nothing else is wrong with the call."""
    coupon = coupon_new(limit=2)
    beside = [Receive(coupon_new(), "1", uuid.uuid4(), 0) for _ in range(others)]
    assert db.settle(Receive(coupon, "1", uuid.uuid4(), 0, slot=3), *beside) == [
        "slot_invalid",
        *["issued"] * others,
    ]
    assert db.rows(coupon) == []


def test_unknown_coupon_is_rejected_for_ever(db, coupon_id, coupon_new):
    unknown, known = coupon_id(), coupon_new()
    late, fresh = Receive(unknown, "1", uuid.uuid4(), 0), Receive(unknown, "2", uuid.uuid4(), 0)
    assert db.settle(late, Receive(known, "1", uuid.uuid4(), 0)) == ["unknown_coupon", "issued"]
    assert db.generations(unknown) == {}
    db.coupon_create(unknown, 10)
    assert db.settle(late, fresh) == ["unknown_coupon", "issued"]
    assert db.audit(unknown) == []


@pytest.mark.parametrize("status", ["draft", "published", "paused", "closed"])
def test_status_does_not_matter(db, coupon_new, status):
    coupon = coupon_new()
    db.execute("BEGIN")
    db.status_put(coupon, status)
    assert db.settle(*batch_make(coupon, ["1"])) == ["issued"]
    db.execute("ROLLBACK")


def test_stock_ends_within_a_batch(db, coupon_new):
    coupon = coupon_new(total=3)
    assert db.settle(*batch_make(coupon, ["100"])) == ["issued"]
    batch = batch_make(coupon, ["5", "4", "3", "2"], seq_first=2)
    # By seq, whatever the order in the call or of the users.
    assert db.settle(*reversed(batch)) == ["out_of_stock", "out_of_stock", "issued", "issued"]
    assert [row[0] for row in db.rows(coupon)] == ["100", "4", "5"]
    assert db.counts(coupon) == (3, 5, 5)
    assert db.settle(*batch) == ["repeated", "repeated", "out_of_stock", "out_of_stock"]
    assert db.counts(coupon) == (3, 5, 5)
    assert db.audit(coupon) == []


def test_older_generation_is_served_before_a_newer_one(db, coupon_new):
    coupon = coupon_new(total=1)
    newer = Receive(coupon, "1", uuid.uuid4(), 0, generation=2, seq=1)
    older = Receive(coupon, "2", uuid.uuid4(), 0, generation=1, seq=900)
    assert db.settle(newer, older) == ["out_of_stock", "issued"]


def test_rejected_receive_stays_rejected_when_stock_comes_back(db, coupon_new):
    coupon = coupon_new(total=1)
    one, two = batch_make(coupon, ["1", "2"])
    assert db.settle(one, two) == ["issued", "out_of_stock"]
    db.query("coupon_total_set", coupon, 10)
    assert db.settle(two) == ["out_of_stock"]
    assert db.settle(two, *batch_make(coupon, ["3"])) == ["out_of_stock", "issued"]
    assert db.counts(coupon)[0] == 2


def test_issued_receive_stays_issued_when_the_stock_is_gone(db, coupon_new):
    coupon = coupon_new(total=1, limit=2)
    one, two = batch_make(coupon, ["1", "2"])
    assert db.settle(one) == ["issued"]
    assert db.settle(two, one) == ["out_of_stock", "repeated"]
    db.status_put(coupon, "closed")
    assert db.settle(one, two) == ["repeated", "out_of_stock"]
    assert db.rows(coupon) == [("1", 1, one.batch, one.idx)]
    assert db.audit(coupon) == []


def test_rejected_receive_does_not_hold_the_slot_against_the_next(db, coupon_new):
    coupon = coupon_new(total=0)
    rejected, rightful = Receive(coupon, "1", uuid.uuid4(), 0), Receive(
        coupon, "1", uuid.uuid4(), 0, seq=2
    )
    assert db.settle(rejected) == ["out_of_stock"]
    db.query("coupon_total_set", coupon, 1)
    assert db.settle(rejected, rightful) == ["out_of_stock", "issued"]


def test_second_receive_for_a_slot_that_is_undone_is_out_of_stock(db, coupon_new):
    coupon = coupon_new(total=0)
    one, other = Receive(coupon, "1", uuid.uuid4(), 0), Receive(coupon, "1", uuid.uuid4(), 0, seq=2)
    assert db.settle(one, other) == ["out_of_stock", "out_of_stock"]
    assert db.rows(coupon) == []


def test_counts_are_kept_per_generation(db, coupon_new):
    coupon = coupon_new(total=4)
    db.execute("UPDATE coupon SET generation = 3 WHERE id = %s", coupon)
    current = batch_make(coupon, ["1", "2"], seq_first=50, generation=3)
    old = batch_make(coupon, ["3", "4", "1"], seq_first=7, generation=2)
    assert db.settle(*old, *current) == ["issued", "issued", "issued", "slot_taken", "issued"]
    assert db.counts(coupon) == (4, 51, 2)
    assert db.generations(coupon) == {2: (9, 3)}
    late = batch_make(coupon, ["9"], seq_first=2, generation=2)
    assert db.settle(*late, *old) == ["out_of_stock", "repeated", "repeated", "repeated"]
    assert db.counts(coupon) == (4, 51, 2)
    assert db.generations(coupon) == {2: (9, 4)}


def test_two_generations_in_one_call(db, coupon_new):
    coupon = coupon_new(total=9)
    db.execute("UPDATE coupon SET generation = 3 WHERE id = %s", coupon)
    current = batch_make(coupon, ["1", "2"], seq_first=50, generation=3)
    old = batch_make(coupon, ["3", "4"], seq_first=70, generation=2)
    assert db.settle(*current, *old) == ["issued"] * 4
    assert db.counts(coupon) == (4, 51, 2)
    assert db.generations(coupon) == {2: (71, 2)}


def test_a_slot_of_a_receive_that_is_rejected_for_its_key(db, coupon_new):
    """Redis gave the slot out twice: settling both ends, whoever gets it."""
    coupon = coupon_new(limit=3)
    db.execute("UPDATE coupon SET generation = 2 WHERE id = %s", coupon)
    first, doubled, other = (
        one.but(slot=slot, key=key)
        for slot, key in ((1, "k"), (2, "k"), (2, ""))
        for one in batch_make(coupon, ["1"], generation=2)
    )
    assert db.settle(first) == ["issued"]
    assert db.settle(doubled, other) == ["key_taken", "slot_taken"]
    assert db.audit(coupon) == []


def test_many_coupons_in_one_call(db, coupon_new):
    coupons = [coupon_new(total=2) for _ in range(20)]
    receives = [r for coupon in coupons for r in batch_make(coupon, ["11", "12", "13"])]
    order = sorted(receives, key=lambda r: (r.user, r.batch))
    expected = {"11": "issued", "12": "issued", "13": "out_of_stock"}
    assert db.settle(*order) == [expected[r.user] for r in order]
    assert all(db.counts(coupon) == (2, 3, 3) for coupon in coupons)
    assert db.audit(*coupons) == []


@pytest.mark.parametrize(
    "key", ["a'b", 'a"b', "a\\b", "a,b", "{a}", "NULL", " a ", "x" * 64, "%s$1:;--", "\\\\'\"{},"]
)
def test_keys_of_any_printable_byte(db, coupon_new, key):
    coupon = coupon_new()
    assert db.settle(*batch_make(coupon, ["1"], key=key)) == ["issued"]
    assert db.execute("SELECT key FROM user_coupon WHERE coupon_id = %s", coupon) == [(key,)]


def test_no_key_is_null(db, coupon_new):
    coupon = coupon_new()
    db.settle(*batch_make(coupon, ["1"]))
    assert db.execute("SELECT key FROM user_coupon WHERE coupon_id = %s", coupon) == [(None,)]


@pytest.mark.parametrize(
    "terms, expected",
    [
        ({"days": 30}, (AT, AT + datetime.timedelta(days=30))),
        (
            {"valid_from": "2024-01-01T00:00:00Z", "valid_to": "2024-03-01T00:00:00+01:00"},
            (
                datetime.datetime(2024, 1, 1, tzinfo=UTC),
                datetime.datetime(2024, 2, 29, 23, tzinfo=UTC),
            ),
        ),
        ({}, (AT, None)),
    ],
)
def test_validity(db, coupon_new, terms, expected):
    coupon = coupon_new(**terms)
    # Across the end of summer time: a day of validity is 24 hours everywhere.
    db.execute("SET TimeZone = 'America/New_York'")
    db.settle(*batch_make(coupon, ["1"]))
    rows = db.execute(
        "SELECT received_at, valid_from, valid_to FROM user_coupon WHERE coupon_id = %s", coupon
    )
    assert rows == [(AT, *expected)]


def test_days_of_validity_do_not_follow_the_clocks(db, coupon_new):
    coupon = coupon_new(days=300)
    db.execute("SET TimeZone = 'America/New_York'")
    db.settle(*batch_make(coupon, ["1"]))
    assert db.execute(
        "SELECT extract(epoch FROM valid_to - valid_from)::bigint FROM user_coupon WHERE"
        " coupon_id = %s",
        coupon,
    ) == [(300 * 86400,)]


def test_tombstone_keeps_the_moment_of_the_receive(db, coupon_id):
    coupon = coupon_id()
    db.settle(*batch_make(coupon, ["1"]))
    assert db.execute("SELECT received_at FROM receive_rejected WHERE coupon_id = %s", coupon) == [
        (AT,)
    ]


def test_all_or_nothing(db, coupon_new):
    coupon = coupon_new()
    db.execute("BEGIN")
    assert db.settle(*batch_make(coupon, ["1"])) == ["issued"]
    db.execute("ROLLBACK")
    assert (db.rows(coupon), db.counts(coupon)) == ([], (0, 0, 0))


def test_inside_a_savepoint(db, coupon_new):
    coupon = coupon_new(total=1)
    batch = batch_make(coupon, ["1", "2"])
    db.execute("BEGIN")
    db.execute("SAVEPOINT one")
    assert db.settle(*batch) == ["issued", "out_of_stock"]
    db.execute("ROLLBACK TO one")
    assert db.settle(*batch) == ["issued", "out_of_stock"]
    db.execute("COMMIT")
    assert db.audit(coupon) == []


@pytest.mark.parametrize(
    "broken, sqlstate_class",
    [
        ({"user": ""}, "23"),
        ({"user": "u" * 65}, "23"),
        ({"idx": -1}, "23"),
        ({"idx": 40000}, "22"),
        ({"key": "x" * 256}, "23"),
        ({"at_ms": 2**62}, "22"),
        ({"batch": "no uuid"}, "22"),
        ({"coupon": "NULL"}, "22"),
    ],
)
def test_what_cannot_be_stored_is_an_error_that_bisects(db, coupon_new, broken, sqlstate_class):
    coupon = coupon_new(limit=5)
    good, bad = batch_make(coupon, ["1", "2"])
    with pytest.raises(psycopg.Error) as caught:
        db.settle(good, bad.but(**broken))
    assert caught.value.sqlstate[:2] == sqlstate_class
    assert db.rows(coupon) == []
    assert db.settle(good) == ["issued"]


@pytest.mark.parametrize("user", ["", "u" * 65, "ü" * 33])
@pytest.mark.parametrize("others", [0, 3])
def test_a_user_of_a_length_that_is_not_allowed(db, coupon_new, coupon_id, user, others):
    """Wherever it would be stored: as a user coupon, or as a rejection."""
    full, unknown = coupon_new(total=0), coupon_id()
    for coupon in (coupon_new(), full, unknown):
        batch = batch_make(coupon, [*users_make(0, others), user])
        with pytest.raises(psycopg.errors.CheckViolation):
            db.settle(*batch)
        assert db.rows(coupon) == db.tombstones(coupon) == []


def test_users_of_any_printable_byte(db, coupon_new):
    coupon = coupon_new(total=len(HOSTILE))
    batch = batch_make(coupon, HOSTILE)
    assert db.settle(*batch) == ["issued"] * len(HOSTILE)
    assert db.rows(coupon) == [(r.user, 1, r.batch, r.idx) for r in sorted(batch, key=by_user)]
    assert db.settle(*batch) == ["repeated"] * len(HOSTILE)
    again = batch_make(coupon, HOSTILE, seq_first=len(HOSTILE) + 1)
    assert db.settle(*again) == ["slot_taken"] * len(HOSTILE)
    assert [row[0] for row in db.tombstones(coupon)] == sorted(HOSTILE)
    for one in batch:
        outcomes = db.outcomes("user_outcomes", (coupon, one.user))
        assert [(row["state"], int(row["idx"])) for row in outcomes] == [
            ("issued", one.idx),
            ("rejected", one.idx),
        ]
    assert db.audit(coupon) == []


@pytest.mark.parametrize(
    "one, other", [("user", "User"), ("42", "042"), ("42", "42.0"), ("a", "a~"), ("null", "NULL")]
)
def test_ids_that_differ_in_one_byte_are_two_users(db, coupon_new, one, other):
    """Each has the limit and the keys for himself."""
    coupon = coupon_new(limit=1)
    db.execute("UPDATE coupon SET generation = 2 WHERE id = %s", coupon)
    first, second = batch_make(coupon, [one, other], generation=2, key="k")
    assert db.settle(first) == ["issued"]
    assert db.settle(second) == ["issued"]
    assert db.settle(*batch_make(coupon, [other, one], generation=2)) == ["slot_taken"] * 2
    assert db.outcomes("receive_outcome", (coupon, other, first.batch, first.idx)) == []


@pytest.mark.parametrize("issued", [-1, 11])
def test_a_wrong_count_is_refused(db, coupon_new, issued):
    """PostgreSQL refuses it, whichever program counts."""
    coupon = coupon_new(total=10)
    with pytest.raises(psycopg.errors.CheckViolation, match="coupon_never_oversold"):
        db.execute("UPDATE coupon SET issued_num = %s WHERE id = %s", issued, coupon)


def test_arrays_of_different_length_and_null_are_refused(db, coupon_new):
    coupon, batch = coupon_new(), uuid.uuid4()
    arrays = [f"{{{value}}}" for value in (coupon, 0, 1, batch, 0, 1, 1, '""', '""', AT_MS, '""')]
    for position in range(11):
        for wrong in ("{}", None, "{NULL}", '{"",""}'):
            if position in (7, 8) and wrong == "{NULL}" or position in (8, 10) and wrong == "{}":
                continue  # no key, no code; no codes, no traces at all
            with pytest.raises(psycopg.Error) as caught:
                db.query("settle", *arrays[:position], wrong, *arrays[position + 1 :])
            assert caught.value.sqlstate[:2] in ("22", "23"), (position, wrong, caught.value)
    assert db.rows(coupon) == []


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_only_read_committed(db, coupon_new, level):
    coupon = coupon_new()
    db.execute(f"BEGIN ISOLATION LEVEL {level}")
    with pytest.raises(psycopg.errors.InvalidTransactionState):
        db.settle(*batch_make(coupon, ["1"]))
    db.execute("ROLLBACK")


def test_settling_keeps_the_coupon_row_hot(db, coupon_new):
    """An update of the counts changes no index: otherwise the hot row's table and indexes would
    grow."""
    coupon = coupon_new(total=10**6)
    db.execute("BEGIN")
    before = db.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'coupon'"
    )[0]
    for seq, user in enumerate(users_make(1, 11), 1):
        db.settle(*batch_make(coupon, [user], seq_first=seq))
    after = db.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'coupon'"
    )[0]
    db.execute("COMMIT")
    assert (after[0] - before[0], after[1] - before[1]) == (10, 10)


def test_settling_reads_by_index_however_small_the_tables_are(db, coupon_new, coupon_id):
    """The plans are kept for the whole session while the tables grow."""
    one, other, unknown = coupon_new(total=20, limit=2), coupon_new(total=3), coupon_id()
    several = (
        batch_make(one, users_make(1, 11))
        + batch_make(other, users_make(1, 11))
        + batch_make(unknown, ["1"])
    )
    scans = "SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0"
    db.execute("BEGIN")
    for call in (
        several[:1],
        several[:10],
        several,
        batch_make(other, ["30"]),
        batch_make(one, ["40"], generation=7),
    ):
        for _ in range(2):
            db.settle(*call)
    assert db.execute(scans) == []
    db.execute("SELECT name FROM coupon")
    assert db.execute(scans) == [("coupon",)]
    db.execute("ROLLBACK")


def outcome_at(db, coupon):
    """The times of the coupon, and of each older generation."""
    (((current,)),) = db.execute("SELECT outcome_at FROM coupon WHERE id = %s", coupon)
    older = db.execute(
        "SELECT outcome_at FROM coupon_generation WHERE coupon_id = %s ORDER BY generation", coupon
    )
    return current, *(row[0] for row in older)


def test_the_time_of_the_last_outcome_is_recorded(db, coupon_new):
    coupon = coupon_new()
    assert outcome_at(db, coupon) == (None,)
    one, two = batch_make(coupon, ["1", "2"])
    db.settle(one)
    (first,) = outcome_at(db, coupon)
    assert first is not None
    db.settle(one)
    assert outcome_at(db, coupon) == (first,), "a repeated message is no progress"
    db.settle(Receive(coupon, "1", uuid.uuid4(), 0, seq=3))
    (second,) = outcome_at(db, coupon)
    assert second > first, "a rejection is an outcome"
    db.settle(Receive(coupon, "3", uuid.uuid4(), 0, generation=one.generation + 5))
    third, older = outcome_at(db, coupon)
    assert third > second and older > second
    db.settle(two)
    fourth, unchanged = outcome_at(db, coupon)
    assert fourth > third and unchanged == older
