"""Exchange codes in settle() and coupon_void(): a code is used exactly where a user coupon has
it."""
import random

import pytest

from seed import SEED
from sql_db import array_text, batch_make
from stack import wait_until

SET = iter(range(10**15, 10**16))


@pytest.fixture
def code_set():
    """A number that no other test uses."""
    return next(SET) + random.randrange(10**6) * 10**9


def claim(coupon, user, code, key="", **fields):
    """A receive that claims a code."""
    (receive,) = batch_make(coupon, [user], key=f"{key}\t{code}", **fields)
    return receive


def codes(db, code_set):
    rows = db.execute(
        "SELECT serial, state, user_id, batch, idx FROM code WHERE set_id = %s ORDER BY serial",
        code_set,
    )
    return {row[0]: row[1:] for row in rows}


def used_by(receive):
    return ("used", str(receive.user), receive.batch, receive.idx)


UNUSED = ("unused", None, None, None)


def consistent(db, coupon):
    """A code is used exactly where a row has it, by the same receive."""
    of_rows = db.execute(
        "SELECT code, user_id, batch, idx FROM user_coupon WHERE coupon_id = %s AND code ~ '[.]'"
        " ORDER BY code",
        coupon,
    )
    of_codes = db.execute(
        "SELECT set_id || '.' || serial AS code, user_id, batch, idx FROM code"
        " WHERE coupon_id = %s AND state = 'used' ORDER BY code",
        coupon,
    )
    assert of_rows == of_codes
    ((issued, rows),) = db.execute(
        "SELECT issued_num, (SELECT count(*) FROM user_coupon WHERE coupon_id = id)"
        " FROM coupon WHERE id = %s",
        coupon,
    )
    assert issued == rows


def test_a_code_is_used_with_its_receive(db, coupon_new, code_set, revoke):
    coupon = coupon_new(limit=3)
    one, two = claim(coupon, "1", f"{code_set}.0"), claim(coupon, "2", f"{code_set}.5", key="k")
    plain, word = batch_make(coupon, ["3"])[0], claim(coupon, "4", code_set)
    assert db.settle(one, two, plain, word) == ["issued"] * 4
    assert codes(db, code_set) == {0: used_by(one), 5: used_by(two)}
    rows = db.execute(
        "SELECT user_id, key, code FROM user_coupon WHERE coupon_id = %s ORDER BY user_id", coupon
    )
    assert rows == [
        ("1", None, f"{code_set}.0"),
        ("2", "k", f"{code_set}.5"),
        ("3", None, None),
        ("4", None, str(code_set)),
    ]
    assert db.settle(one, two, plain, word) == ["repeated"] * 4
    assert revoke(coupon, code_set, f"{code_set}.5") == 0, "it is used"
    consistent(db, coupon)


def test_of_two_receives_with_a_code_one_gets_it(db, coupon_new, code_set):
    coupon = coupon_new(limit=3)
    first = claim(coupon, "1", f"{code_set}.0", seq_first=1)
    second = claim(coupon, "2", f"{code_set}.0", seq_first=2)
    same = claim(coupon, "1", f"{code_set}.0", seq_first=3, slot=2)
    assert db.settle(first) == ["issued"]
    assert db.settle(second) == ["code_used"]
    assert db.settle(second, same) == ["code_used", "code_used"]
    assert db.settle(first) == ["repeated"]
    consistent(db, coupon)
    assert codes(db, code_set) == {0: used_by(first)}


@pytest.mark.parametrize("coupons", [1, 2])
def test_in_one_call_the_lower_number_gets_it(db, coupon_new, code_set, coupons):
    coupon = coupon_new(limit=3)
    receives = [
        claim(coupon, str(n), f"{code_set}.{n // 2}", seq_first=10 - n) for n in range(1, 6)
    ]
    others = batch_make(coupon_new(), ["1"]) if coupons == 2 else []
    outcomes = db.settle(*receives, *others)
    # 1 | 2, 3 | 4, 5: of each pair the later one has the lower number
    assert outcomes == ["issued", "code_used", "issued", "code_used", "issued"] + [
        "issued" for _ in others
    ]
    consistent(db, coupon)
    assert db.execute("SELECT settled_num FROM coupon WHERE id = %s", coupon) == [(5,)]


@pytest.fixture
def revoke(db):
    def run(coupon, code_set, code, generation=1, seq=None):
        """Revokes a code, a word or a set. With `seq` Redis had it at that number."""
        kind = "word" if code == str(code_set) else "imported"
        db.execute(
            "INSERT INTO code_set (id, coupon_id, kind, created_by) VALUES (%s, %s, %s, 'x')"
            " ON CONFLICT DO NOTHING",
            code_set,
            coupon,
            kind,
        )
        if code is None:
            db.query("code_set_revoke", str(code_set))
        else:
            serial = 0 if kind == "word" else code.split(".")[1]
            db.query("code_revoke", "{%d}" % code_set, "{%s}" % serial, "{%d}" % coupon)
        ((num,),) = db.execute("SELECT revocation_num FROM coupon WHERE id = %s", coupon)
        if seq is not None:
            cut = (str(n) for n in (coupon, num - 1, num, generation, seq))
            db.query("code_revocation_cut", *cut)
        return num

    return run


def generation_set(db, coupon, generation):
    db.execute("UPDATE coupon SET generation = %s WHERE id = %s", generation, coupon)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", ["code", "word", "set", "set of a word"])
def test_a_revocation_rejects_only_what_came_after(db, coupon_new, code_set, revoke, kind, several):
    coupon = coupon_new(limit=9)
    generation_set(db, coupon, 2)
    codes_of = [str(code_set)] * 9 if "word" in kind else [f"{code_set}.{n}" for n in range(9)]
    if "set" in kind:
        db.execute(
            "INSERT INTO code_set (id, coupon_id, kind, created_by) VALUES (%s, %s, %s, 'x')",
            code_set,
            coupon,
            "word" if "word" in kind else "imported",
        )
        revoke(coupon, code_set, None, generation=2, seq=7)
    else:
        for code in dict.fromkeys(codes_of):
            revoke(coupon, code_set, code, generation=2, seq=7)
    others = batch_make(coupon_new(), ["1"]) if several else []
    cases = [(1, 99, "issued"), (2, 7, "issued"), (2, 8, "code_invalid"), (3, 1, "code_invalid")]
    receives = [
        claim(coupon, str(n), codes_of[n], seq_first=seq, generation=generation)
        for n, (generation, seq, _) in enumerate(cases)
    ]
    outcomes = [outcome for _, _, outcome in cases]
    assert db.settle(*receives, *others) == outcomes + ["issued" for _ in others]
    again = [{"issued": "repeated"}.get(outcome, outcome) for outcome in outcomes]
    assert db.settle(*receives) == again
    consistent(db, coupon)


def test_before_redis_has_told_nothing_of_the_generation_is_rejected(
    db, coupon_new, code_set, revoke
):
    coupon = coupon_new(limit=9)
    generation_set(db, coupon, 2)
    revoke(coupon, code_set, f"{code_set}.4")
    revoke(coupon, code_set, f"{code_set}.5")
    before = claim(coupon, "1", f"{code_set}.4", seq_first=10**9, generation=2)
    after = claim(coupon, "2", f"{code_set}.5", seq_first=1, generation=3)
    assert db.settle(before, after) == ["issued", "code_invalid"]
    assert db.settle(claim(coupon, "3", f"{code_set}.4", seq_first=7)) == ["code_used"]
    consistent(db, coupon)


def test_a_number_that_redis_told_of_a_later_copy_changes_nothing(db, coupon_new, code_set, revoke):
    coupon = coupon_new(limit=9)
    generation_set(db, coupon, 2)
    revoke(coupon, code_set, f"{code_set}.4", generation=3, seq=5)
    told = "SELECT generation, seq FROM code_revocation WHERE coupon_id = %s"
    assert db.execute(told, coupon) == [(2, None)]
    for seq in (5, 9):  # the second time Redis has accepted others since
        db.query("code_revocation_cut", coupon, 0, 1, 2, seq)
    assert db.execute(told, coupon) == [(2, 5)]


def test_a_revoked_code_that_its_receive_loses_is_revoked(db, coupon_new, code_set, revoke):
    coupon = coupon_new(total=1)
    revoke(coupon, code_set, f"{code_set}.4", generation=1, seq=9)
    revoke(coupon, code_set, f"{code_set}.5", generation=1, seq=9)
    taken = claim(coupon, "1", f"{code_set}.4", seq_first=1)
    surplus = claim(coupon, "2", f"{code_set}.5", seq_first=2)
    assert db.settle(taken, surplus) == ["issued", "out_of_stock"]
    assert codes(db, code_set) == {4: used_by(taken), 5: ("revoked", None, None, None)}
    db.execute(
        "SELECT * FROM coupon_void(%s::bigint, %s::uuid, %s::smallint, %s, '')",
        coupon,
        taken.batch,
        taken.idx,
        "1",
    )
    assert codes(db, code_set)[4][0] == "revoked"
    consistent(db, coupon)


def test_each_revocation_counts_as_a_change(db, coupon_new, code_set, revoke):
    """A revocation of a code and of a set: the count tells Redis and a PostgreSQL that was put back
    apart."""
    coupon, counts = coupon_new(), "SELECT sum(num) FROM change_count"
    revoke(coupon, code_set, f"{code_set}.4")
    for code in (f"{code_set}.5", None):
        before = db.execute(counts)
        revoke(coupon, code_set, code)
        assert db.execute(counts) > before


def test_a_void_that_redis_still_has_gives_its_code_back(db, coupon_new, code_set, revoke):
    """PostgreSQL was put back to before it."""
    coupon = coupon_new(limit=2)
    revoke(coupon, code_set, f"{code_set}.4", generation=1, seq=9)
    one, two = claim(coupon, "1", f"{code_set}.4"), claim(coupon, "2", f"{code_set}.5")
    assert db.settle(one, two) == ["issued"] * 2
    both = (
        array_text([one.batch, two.batch]),
        array_text([one.idx, two.idx]),
        "{1,2}",
        "{1,1}",
        "{voided,voided}",
        "{1,2}",
        "{1,1}",
    )
    assert {row["ord"] for row in db.query("recover_rejected", coupon, *both)} == {"1", "2"}
    assert db.rows(coupon) == [] and db.query("recover_rejected", coupon, *both) == []
    assert [codes(db, code_set)[n][0] for n in (4, 5)] == ["revoked", "unused"]
    consistent(db, coupon)


def test_revocations_are_numbered(db, coupon_new, code_set, revoke):
    coupon = coupon_new()
    assert revoke(coupon, code_set, f"{code_set}.1") == 1
    assert revoke(coupon, code_set, f"{code_set}.1") == 1  # repeated, it changes nothing
    assert revoke(coupon, code_set, f"{code_set}.2") == 2
    assert revoke(coupon, code_set, None) == revoke(coupon, code_set, None) == 3
    rows = db.execute(
        "SELECT num, generation, seq FROM code_revocation WHERE coupon_id = %s ORDER BY num", coupon
    )
    assert [row[0] for row in rows] == [1, 2, 3]
    db.execute("BEGIN")
    db.query("rebuild_revoked", str(coupon), "1")
    assert {row["code"] for row in db.query("rebuild_fetch_revoked")} == {
        f"{code_set}.2",
        str(code_set),
    }
    db.execute("ROLLBACK")


def test_a_revocation_waits_for_the_one_before(db, db_new, coupon_new, code_set, background):
    """They are committed in the order of their numbers."""
    first, second, coupon = db_new(), db_new(), coupon_new()
    first.execute("BEGIN")
    first.query("code_revoke", "{%d}" % code_set, "{1}", "{%d}" % coupon)
    waits = background(second.query, "code_revoke", "{%d}" % code_set, "{2}", "{%d}" % coupon)
    wait_until(lambda: db.is_blocked(second.pid))
    first.execute("COMMIT")
    waits.result()
    rows = first.execute(
        "SELECT serial, revocation_num FROM code WHERE set_id = %s ORDER BY serial", code_set
    )
    assert rows == [(1, 1), (2, 2)]


def test_a_rejection_uses_no_code(db, coupon_new, code_set):
    coupon = coupon_new(total=1)
    taken = batch_make(coupon, ["1"])
    assert db.settle(*taken) == ["issued"]
    assert db.settle(claim(coupon, "1", f"{code_set}.0", seq_first=2)) == ["slot_taken"]
    assert db.settle(claim(coupon, "2", f"{code_set}.1", seq_first=3)) == ["out_of_stock"]
    assert db.settle(claim(coupon, "3", f"{code_set}.2", seq_first=4, slot=9)) == ["slot_invalid"]
    unknown = claim(2**62 + random.randrange(10**9), "3", f"{code_set}.3")
    assert db.settle(unknown) == ["unknown_coupon"]
    assert codes(db, code_set) == {n: UNUSED for n in range(4)}
    consistent(db, coupon)
    assert db.settle(claim(coupon_new(), "7", f"{code_set}.1")) == ["code_used"]
    assert codes(db, code_set)[1] == UNUSED


def test_an_imported_code_keeps_its_row(db, coupon_new, code_set):
    coupon = coupon_new(total=1)
    text = f"IMPORTED{code_set}"
    db.execute(
        "INSERT INTO code (set_id, serial, coupon_id, text, state, metadata)"
        " VALUES (%s, 2, %s, %s, 'unused', '{\"a\": 1}')",
        code_set,
        coupon,
        text,
    )
    receive = claim(coupon, "1", f"{code_set}.2")
    assert db.settle(receive) == ["issued"]
    assert db.execute("SELECT text, metadata, state FROM code WHERE set_id = %s", code_set) == [
        (text, {"a": 1}, "used")
    ]


@pytest.mark.parametrize(
    "state, reason",
    [
        ({"state": "used"}, "code_used"),
        ({"state": "used", "user_id": "1", "used_at": "2026-01-01"}, "code_used"),
        ({"state": "revoked", "revoked_at": "2026-01-01", "revocation_num": 0}, "code_invalid"),
    ],
)
def test_a_code_that_was_used_or_revoked_when_it_was_imported(
    db, coupon_new, code_set, state, reason
):
    coupon = coupon_new(total=2)
    row = {"set_id": code_set, "serial": 2, "coupon_id": coupon, "text": f"I{code_set}", **state}
    db.execute(
        f"INSERT INTO code ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})",
        *row.values(),
    )
    before = codes(db, code_set)
    one, other = claim(coupon, "1", f"{code_set}.2"), claim(coupon, "2", f"{code_set}.0")
    assert db.settle(one, other) == [reason, "issued"]
    assert codes(db, code_set)[2] == before[2]


def void(db, receive):
    ((result, returned, _),) = db.execute(
        "SELECT * FROM coupon_void(%s, %s, %s::smallint, %s, NULL)",
        receive.coupon,
        receive.batch,
        receive.idx,
        str(receive.user),
    )
    return result, returned


@pytest.mark.parametrize("returns", [True, False])
def test_a_voided_receive_gives_its_code_back_or_keeps_it(db, coupon_new, code_set, returns):
    coupon = coupon_new(limit=2)
    db.execute("UPDATE coupon SET void_returns = %s WHERE id = %s", returns, coupon)
    receive = claim(coupon, "1", f"{code_set}.0")
    assert db.settle(receive) == ["issued"]
    assert void(db, receive) == ("voided", returns)
    assert void(db, receive) == ("again", returns)
    consistent(db, coupon)
    other = claim(coupon, "2", f"{code_set}.0", seq_first=2)
    assert db.settle(other) == (["issued"] if returns else ["code_used"])
    # a late copy of the message changes nothing
    assert db.settle(receive) == (["voided"] if returns else ["repeated"])
    consistent(db, coupon)


def test_a_late_copy_of_a_voided_receive_leaves_the_code_free(db, coupon_new, code_set):
    coupon = coupon_new(limit=2)
    receive = claim(coupon, "1", f"{code_set}.0")
    db.settle(receive)
    void(db, receive)
    assert db.settle(receive) == ["voided"]
    assert codes(db, code_set) == {0: UNUSED}
    assert db.settle(claim(coupon, "2", f"{code_set}.0", seq_first=2)) == ["issued"]


def test_a_late_receive_has_its_code(db, coupon_new, code_set):
    coupon = coupon_new(limit=2)
    db.execute("UPDATE coupon SET generation = 3 WHERE id = %s", coupon)
    assert db.settle(claim(coupon, "1", f"{code_set}.0", key="k", generation=2)) == ["issued"]
    rows = db.execute("SELECT key FROM coupon_late WHERE coupon_id = %s", coupon)
    assert rows == [(f"k\t{code_set}.0",)]


def test_the_rows_of_a_rebuild_have_the_code(db, coupon_new, code_set):
    coupon = coupon_new(limit=2)
    db.settle(claim(coupon, "1", f"{code_set}.0", key="k"), claim(coupon, "2", code_set))
    rows = {row["key"] for row in db.query("audit_rows", coupon)}
    assert rows == {f"k\t{code_set}.0", f"\t{code_set}"}


def test_a_call_that_waits_for_a_code(db, db_new, coupon_new, code_set, background):
    """The other transaction is rolled back: then the code is free."""
    coupon, other = coupon_new(limit=2), db_new()
    for end, outcome in (("ROLLBACK", "issued"), ("COMMIT", "code_used")):
        code = f"{code_set}.{end == 'COMMIT':d}"
        db.execute("BEGIN")
        assert db.settle(claim(coupon, f"a{end}", code)) == ["issued"]
        running = background(other.settle, claim(coupon, f"b{end}", code))
        wait_until(lambda: db.is_blocked(other.pid))
        db.execute(end)
        assert running.result() == [outcome]
    consistent(db, coupon)


def test_a_call_locks_codes_in_the_order_of_serials(db, db_new, coupon_new, code_set, background):
    """While it waits for the first it has not locked the second: the other transaction takes both,
    and neither is ended as a deadlock."""
    coupon, other = coupon_new(), db_new()
    first, second = f"{code_set}.9", f"{code_set}.10"
    db.execute("BEGIN")
    assert db.settle(claim(coupon, "1", first)) == ["issued"]
    running = background(
        other.settle, claim(coupon, "2", second), claim(coupon, "3", first, seq_first=2)
    )
    wait_until(lambda: db.is_blocked(other.pid))
    assert db.settle(claim(coupon, "4", second, seq_first=3)) == ["issued"]
    db.execute("COMMIT")
    assert running.result() == ["code_used"] * 2


def test_many_at_once_never_deadlock(db, db_new, coupon_new, code_set, background):
    rng = random.Random(SEED)
    coupons = [coupon_new(total=400, limit=5) for _ in range(3)]
    seq = iter(range(1, 10**6))

    def calls():
        for _ in range(25):
            yield [
                claim(
                    coupons[n],
                    str(rng.randrange(40)),
                    f"{code_set + n}.{rng.randrange(40)}",
                    slot=rng.randrange(1, 4),
                    seq_first=next(seq),
                )
                for n in rng.choices(range(3), k=12)
            ]

    shares = [list(calls()) for _ in range(3)]

    def run(one, batches):
        for batch in batches:
            one.settle_retrying(*batch)

    for running in [background(run, db_new(), batches) for batches in shares]:
        running.result()
    for coupon in coupons:
        consistent(db, coupon)
    assert sum(row[0] == "used" for row in codes(db, code_set).values()) > 20
