"""The programs of earlier versions, whose users are numbers, or that pass codes together with the
keys, on the tables and functions of this one."""

import random
import uuid

import psycopg
import pytest
from seed import SEED
from sql_db import DbBefore, DbJoined, Receive, array_text, batch_make
from stack import wait_until


@pytest.fixture
def before_new(database, connections):
    def make(version=DbBefore):
        connections.append(version(database[0]))
        return connections[-1]

    return make


@pytest.fixture
def before(before_new):
    return before_new()


def lost(db, coupon, receives):
    fields = ("generation", "batch", "idx", "user", "slot", "at_ms")
    columns = (array_text(getattr(one, field) for one in receives) for field in fields)
    return db.query("receive_lost", coupon, *columns)


def places(receives):
    """Parameters of the statements that look up some receives."""
    fields = ("user", "slot", "batch", "idx")
    return [array_text(getattr(one, field) for one in receives) for field in fields]


def looked_up(db, coupon, receives):
    """All that the statements with users say of these receives."""
    return (
        [db.query("receive_outcome", coupon, r.user, r.batch, r.idx) for r in receives],
        [db.query("user_outcomes", coupon, user) for user in sorted({r.user for r in receives})],
        db.query("lost_candidates", coupon, *places(receives)),
        db.query("audit_outcomes", coupon, *places(receives)),
    )


def stored(db, coupon):
    """The late outcomes without the coupon's id."""
    late = db.execute(
        "SELECT num, generation, seq, user_id, slot, batch, idx, key, reason FROM coupon_late"
        " WHERE coupon_id = %s ORDER BY num",
        coupon,
    )
    counted = db.counts(coupon), db.generations(coupon)
    return db.rows(coupon), db.tombstones(coupon), late, counted


def calls_random(rng, coupon, codes):
    """Some receives, and calls that settle them, some repeatedly."""
    receives = [
        Receive(
            coupon,
            str(rng.choice([1, 7, 9, 10, 42, 100, 2**53 - 1, 2**63 - 1])),
            uuid.UUID(int=rng.getrandbits(128)),
            rng.randrange(3),
            slot=rng.choice([1, 1, 2, 3]),
            generation=rng.choice([1, 2]),
            seq=seq,
            key=rng.choice(["", "", "k"]) + rng.choice(codes),
        )
        for seq in range(1, 31)
    ]
    calls = [rng.sample(receives, rng.choice([1, 1, 5, 12])) for _ in range(20)]
    return receives, calls


@pytest.mark.parametrize(
    "version, codes",
    [(DbBefore, [""]), (DbJoined, ["", "\tSET", *(f"\tSET.{n}" for n in range(12))])],
)
def test_it_gets_the_same_results(db, before_new, coupon_new, version, codes):
    def history(connection):
        """Everything that it reads and leaves behind, of the same history on another coupon and
        with another set of codes."""
        rng = random.Random(SEED)
        coupon = coupon_new(total=8, limit=2, days=1)
        code_set = str(random.randrange(10**17, 10**18))
        own_codes = [code.replace("SET", code_set) for code in codes]
        db.execute("UPDATE coupon SET generation = 2 WHERE id = %s", coupon)
        db.execute("INSERT INTO coupon_generation VALUES (%s, 1, 0, 0)", coupon)
        receives, calls = calls_random(rng, coupon, own_codes)
        outcomes = [connection.settle_retrying(*call) for call in calls]
        read = looked_up(connection, coupon, receives)
        given_up = lost(connection, coupon, receives)
        used = db.execute(
            "SELECT serial, state, user_id, batch, idx FROM code WHERE set_id = %s ORDER BY 1",
            code_set,
        )
        after = looked_up(connection, coupon, receives)
        told = outcomes, read, given_up, after, used, stored(db, coupon)
        return repr(told).replace(code_set, "SET")

    assert history(before_new(version)) == history(db)


def test_a_receive_has_one_outcome_whoever_settles_it(db, before, coupon_new):
    coupon = coupon_new(total=3)
    ours, theirs = batch_make(coupon, ["1", "2"]), batch_make(coupon, ["3", "4"], seq_first=3)
    assert (db.settle(*ours), before.settle(*ours)) == (["issued"] * 2, ["repeated"] * 2)
    assert before.settle(*theirs) == ["issued", "out_of_stock"]
    assert db.settle(*theirs) == ["repeated", "out_of_stock"]
    assert db.counts(coupon)[0] == 3
    assert db.audit(coupon) == []


def test_copies_in_opposite_order_never_deadlock(db_new, before_new, coupon_new, background):
    """Users that have another order as numbers than as text."""
    ours, theirs = db_new(), before_new()
    for _ in range(20):
        batch = batch_make(coupon_new(), [str(n) for n in range(1, 101)])
        running = background(theirs.settle_retrying, *reversed(batch))
        outcomes = zip(ours.settle_retrying(*batch), running.result()[::-1], strict=True)
        assert {tuple(sorted(pair)) for pair in outcomes} == {("issued", "repeated")}


@pytest.mark.parametrize(
    "sql_state, users", [("22", "{}"), ("22", None), ("23", "{NULL}"), ("22", "{x}")]
)
def test_arrays_that_it_refused_are_refused(before, coupon_new, sql_state, users):
    arrays = [f"{{{value}}}" for value in (coupon_new(), 0, 1, uuid.uuid4(), 0, 1, 1, '""', 1)]
    arrays[5] = users
    with pytest.raises(psycopg.Error) as caught:
        before.query("settle", *arrays)
    assert caught.value.sqlstate[:2] == sql_state


def test_a_number_is_its_decimal_text(db, coupon_new):
    coupon = coupon_new()
    db.settle(*batch_make(coupon, ["42", "042", "42.0", "user"]))
    where = "SELECT user_id FROM user_coupon WHERE coupon_id = %s AND"
    assert db.execute(f"{where} user_id = 42", coupon) == [("42",)]
    assert db.execute(f"{where} user_id = 42::bigint", coupon) == [("42",)]
    assert db.execute(f"{where} user_id IN (41, 42)", coupon) == [("42",)]
    assert db.execute(f"{where} user_id = ANY ('{{41,42}}'::bigint[])", coupon) == [("42",)]
    assert db.execute(f"{where} user_id = '042'", coupon) == [("042",)], "as before: text"


# During the migration


@pytest.fixture
def unmigrated(empty, connections):
    """A connection of the version before to its tables, with coupon 1001."""
    empty.migrate_to(9)
    empty.execute("INSERT INTO coupon (id, name, total_num, user_limit) VALUES (1001, 'x', 9, 1)")
    connections.append(DbBefore(empty.url))
    return connections[-1]


def test_its_prepared_statements_survive_the_migration(empty, unmigrated):
    """Also those whose plans are kept."""
    issued, again, late = batch_make(1001, ["7", "7", "8"])
    names = ("settle", "receive_outcome", "user_outcomes", "lost_candidates")
    for name in names:
        unmigrated.prepare(name)

    def read():
        return (
            unmigrated.settle(issued, again),
            unmigrated.query("receive_outcome", 1001, "7", issued.batch, 0),
            unmigrated.query("user_outcomes", 1001, "7"),
            unmigrated.query("lost_candidates", 1001, *places([late, issued, again])),
        )

    unmigrated.settle(issued)
    before = [read() for _ in range(7)][-1]
    empty.functions_printed()
    assert [read() for _ in range(7)] == [before] * 7
    assert unmigrated.settle(late) == ["issued"]


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("users", [["8"], ["8", "9"], ["8", "7", "9"]])
def test_its_call_waits_for_the_migration(empty, unmigrated, background, users, is_known):
    """The old body of the function runs on the new tables: its result is right, or it is an error,
    after which a worker retries."""
    unmigrated.prepare("settle")
    unmigrated.settle(*batch_make(1001, ["7"]))
    if is_known:
        unmigrated.settle(*batch_make(1001, users, generation=5))
    receives = batch_make(1001, users, seq_first=2)
    pid = unmigrated.pid
    with psycopg.connect(empty.url) as holder:
        holder.execute("LOCK TABLE schema_migration IN EXCLUSIVE MODE")  # the last that it needs
        process = empty.start()
        blocked = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        wait_until(lambda: empty.execute(blocked, holder.info.backend_pid))
        call = background(unmigrated.settle, *receives)
        wait_until(
            lambda: empty.execute("SELECT pid FROM pg_locks WHERE pid = %s AND NOT granted", pid)
        )
    assert process.wait(timeout=120) == 0
    taken = users if is_known else ["7"]
    expected = ["slot_taken" if user in taken else "issued" for user in users]
    try:
        assert call.result() == expected
    except psycopg.errors.UndefinedFunction:
        assert unmigrated.settle(*receives) == expected
    assert unmigrated.audit(1001) == []
