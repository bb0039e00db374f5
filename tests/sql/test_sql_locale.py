"""Users in a database whose own collation does not order them byte by byte: locks are taken in byte
order, and the indexes are used."""

import random
import uuid

import psycopg
import pytest
from fresh import database_migrated
from seed import SEED
from sql_db import QUERIES, array_text, batch_make
from stack import wait_until
from user_ids import user_ids_random

ROWS = 10000
TABLES = ("user_coupon", "receive_rejected")


@pytest.fixture(scope="module")
def database(stack):
    """In the place of conftest's."""
    try:
        with database_migrated(
            stack, "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'und'"
        ) as urls:
            yield urls
    except psycopg.errors.FeatureNotSupported as error:
        pytest.skip(f"PostgreSQL was built without ICU: {error}")


@pytest.fixture(scope="module")
def filled(database):
    """A coupon with ROWS user coupons and as many rejections, of users 1 to ROWS."""
    with psycopg.connect(database[1], autocommit=True) as owner:
        (coupon,) = owner.execute(
            "INSERT INTO coupon (id, name, total_num, issued_num, user_limit) VALUES"
            " (coupon_id_next(), 'filled', %s, %s, 3) RETURNING id",
            (ROWS + 2, ROWS),
        ).fetchone()
        owner.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, batch, idx, received_at,"
            " valid_from, key) SELECT n::text, %s, 1, gen_random_uuid(), 0, now(), now(), 'k'"
            " FROM generate_series(1, %s) AS n",
            (coupon, ROWS),
        )
        owner.execute(
            "INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,"
            " received_at) SELECT %s, gen_random_uuid(), 0, n::text, 2, 'slot_taken', now()"
            " FROM generate_series(1, %s) AS n",
            (coupon, ROWS),
        )
        owner.execute("ANALYZE coupon, user_coupon, receive_rejected")
    return coupon


@pytest.mark.parametrize("first, second", ["Ba", "Z_", ("User", "user"), ("B-1", "a-1")])
def test_a_call_locks_users_in_byte_order(db, db_new, coupon_new, background, first, second):
    """While it waits for the first it has not locked the second: the other transaction takes both,
    and neither is ended as a deadlock."""
    assert first < second
    assert db.execute("SELECT %s::text > %s", first, second) == [(True,)], "not by the locale"
    coupon = coupon_new()
    one, two = batch_make(coupon, [first, second])
    db.execute("BEGIN")
    assert db.settle(one) == ["issued"]
    other = db_new()
    copy = background(other.settle, two, one)
    wait_until(lambda: db.is_blocked(other.pid))
    assert db.settle(two) == ["issued"]
    db.execute("COMMIT")
    assert copy.result() == ["repeated", "repeated"]


def test_copies_in_opposite_order_never_deadlock(db_new, coupon_new, background):
    rng = random.Random(SEED)
    one, two = db_new(), db_new()
    for total in [200] * 15 + [35] * 15:
        coupon = coupon_new(total=total)
        batch = batch_make(coupon, user_ids_random(rng, 60))
        running = background(two.settle_retrying, *reversed(batch))
        first = one.settle_retrying(*batch)
        second = running.result()[::-1]
        issued = min(total, 60)
        for position, outcomes in enumerate(zip(first, second, strict=True)):
            if position < issued:
                assert sorted(outcomes) == ["issued", "repeated"]
            else:
                assert outcomes == ("out_of_stock", "out_of_stock")
        assert [row[0] for row in one.rows(coupon)] == sorted(one.user for one in batch[:issued])
        assert one.audit(coupon) == []


# Plans

BATCHES = array_text([uuid.UUID(int=1)] * 2)
PARAMS = {  # ID: the coupon
    "receive_outcome": ("{ID,ID}", "{42,43}", BATCHES, "{0,0}"),
    "receive_committed": ("{ID,ID}", "{42,43}", BATCHES, "{0,0}"),
    "user_outcomes": ("{ID,ID}", "{42,43}"),
    "lost_candidates": ("ID", "{42,43}", "{1,1}", BATCHES, "{0,0}"),
    "audit_outcomes": ("ID", "{42,43}", "{1,1}", BATCHES, "{0,0}"),
}


def scans(plan):
    """The plan's nodes that read a table."""
    found = [plan] if plan.get("Relation Name", "").startswith(TABLES) else []
    return found + [scan for part in plan.get("Plans", ()) for scan in scans(part)]


def explained(db, text, *params):
    """The scans of a prepared statement, with its parameters as text."""
    db.execute("DEALLOCATE ALL")
    db.execute(f"PREPARE statement AS {text}")
    values = ", ".join(f"'{value}'" for value in params)
    (((plan,),),) = db.execute(f"EXPLAIN (FORMAT JSON) EXECUTE statement ({values})")
    return scans(plan["Plan"])


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("name", PARAMS)
def test_look_ups_use_the_index(db, filled, name, mode):
    db.execute(f"SET plan_cache_mode = {mode}")
    params = [text.replace("ID", str(filled)) for text in PARAMS[name]]
    found = explained(db, QUERIES[name], *params)
    assert {scan["Relation Name"][: len(TABLES[0])] for scan in found} >= {TABLES[0]}
    for scan in found:
        condition = scan.get("Index Cond", "")
        assert "user_id =" in condition or "batch =" in condition, scan


def test_settling_reads_by_index(db, filled):
    """Its decisions, look-ups of keys and deletions read a few rows for each user, of 10,000."""
    users = [str(n) for n in range(1, 31)]
    reads = (
        "SELECT sum(seq_scan), sum(coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
        " WHERE relname ~ '^(user_coupon|receive_rejected)'"
    )
    db.execute("BEGIN")
    db.execute("UPDATE coupon SET generation = 2 WHERE id = %s", filled)
    taken = batch_make(filled, users, generation=2)
    doubled = batch_make(filled, users, generation=2, slot=2, key="k")
    surplus = batch_make(filled, users, generation=2, slot=3)
    assert db.settle(*taken) == ["slot_taken"] * 30
    assert db.settle(*doubled) == ["key_taken"] * 30
    assert db.settle(*surplus) == ["issued"] * 2 + ["out_of_stock"] * 28
    assert db.settle(surplus[0]) == ["repeated"]
    ((seq_scans, fetched),) = db.execute(reads)
    db.execute("ROLLBACK")
    assert seq_scans == 0
    assert fetched < 30 * 30
