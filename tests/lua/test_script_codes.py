"""Exchange codes in each script: a code is claimed exactly where a record of a user has it."""
import random

import pytest
import redis

from keeper_scripts import load as load_now, load_held as load, verify
from script_coupon import (
    CODE_EXPIRED,
    CODE_INVALID,
    CODE_USED,
    ENDED,
    KEY_REUSED,
    LIMIT_REACHED,
    OUT_OF_STOCK,
    PAUSED,
    fence_of,
)
from seed import seeds
from ulid import ulid_make

A, B, C = ulid_make(), ulid_make(), ulid_make()
LONGEST = f"{2**63 - 1}.{2**63 - 1}"
BAD = ["1.", ".1", "0", "01", "1.2.3", "1.x", "x", "-1", "1 ", " 1", "1\t", "1.2\n", "9" * 40]


def receive(verdict, batch, index=0):
    return f"{verdict}:{batch}:{index}"


def claim(coupon, user, code, key="", **options):
    return coupon.issue((user, key, code), **options).verdicts[0]


def consistent(coupon):
    """The codes that have a user are exactly those of the users' records."""
    of_users = {
        record.split("\t")[1]: user
        for user, records in coupon.users().items()
        for record in records.split("\n")
        if "\t" in record and "." in record.split("\t")[1]
    }
    claimed = {c: u.rstrip(" ") for c, u in coupon.claimed().items() if u}
    assert claimed == of_users


def revoke(coupon, *codes, source=0, to=0, is_last=1, generation=None):
    if generation is None:
        generation = coupon.get("generation") or 1
    return coupon.run("revoke", coupon.run_id, generation, source, to, is_last, *codes)


def fill_revoked(coupon, *codes, generation=3):
    keys = coupon.fill_keys(generation)
    assert coupon.run("fill", fence_of(5), "revoked", 0, 60000, 0, *codes, keys=keys) == 0


def refused(coupon, error, call, *args, **options):
    before = coupon.snapshot()
    with pytest.raises(redis.ResponseError, match="^couponmq: (" + error + ")|^" + error):
        call(*args, **options)
    assert coupon.snapshot() == before


# issue.lua


def test_a_code_is_claimed_once(coupon):
    coupon.put(limit=5)
    answer = coupon.issue(("1", "", "7.0"), ("2", "k", "7.1"), ("3", "", ""), batch=A)
    assert answer.verdicts == [1, 1, 1]
    assert answer.message["receives"] == [["1", 1, "", "7.0"], ["2", 1, "k", "7.1"], ["3", 1, ""]]
    assert coupon.users() == {"1": f"1:{A}:0:\t7.0", "2": f"1:{A}:1:k\t7.1", "3": f"1:{A}:2:"}
    assert coupon.claimed() == {"7.0": "1", "7.1": "2"}
    assert claim(coupon, "2", "7.0") == CODE_USED
    assert claim(coupon, "1", "7.0") == receive(1, A)
    assert claim(coupon, "1", "7.0", key="other") == receive(1, A)
    assert claim(coupon, "2", "7.1", key="k") == receive(1, A, 1)
    assert coupon.get("stock") == "97"
    consistent(coupon)


def test_a_key_is_of_one_code(coupon):
    """Another code, none, or one where there was none: it is refused, before everything else."""
    coupon.put(limit=9, total=9)
    assert claim(coupon, "1", "7.0", key="k", batch=A) == 1
    assert claim(coupon, "2", "7.2") == 1
    before = coupon.snapshot()
    assert claim(coupon, "1", "7.1", key="k") == KEY_REUSED
    assert claim(coupon, "1", "9", key="k") == KEY_REUSED
    assert claim(coupon, "1", "7.2", key="k") == KEY_REUSED
    assert coupon.issue(("1", "k")).verdicts == [KEY_REUSED]
    assert coupon.issue(("1", "k", "7.1"), ("1", "k", ""), ("1", "k", "7.0")).verdicts == [
        KEY_REUSED,
        KEY_REUSED,
        receive(1, A),
    ]
    assert coupon.snapshot() == before
    coupon.set(status="paused")
    assert claim(coupon, "1", "7.1", key="k") == KEY_REUSED
    coupon.set(status="open")
    assert coupon.issue(("1", "plain")).verdicts == [2]
    assert claim(coupon, "1", "7.1", key="plain") == KEY_REUSED
    assert claim(coupon, "1", "9", key="word", batch=B) == 3
    assert claim(coupon, "1", "9", key="word") == receive(3, B)
    assert claim(coupon, "1", "8", key="word") == KEY_REUSED
    assert claim(coupon, "3", "7.1", key="k") == 1, "of another user it is another key"
    consistent(coupon)


def test_a_code_twice_in_a_call(coupon):
    coupon.put(limit=2)
    answer = coupon.issue(
        ("1", "", "7.0"), ("2", "", "7.0"), ("1", "", "7.0"), ("1", "", ""), batch=A
    )
    assert answer.verdicts == [1, CODE_USED, receive(1, A), 2]
    assert coupon.users() == {"1": f"1:{A}:0:\t7.0\n2:{A}:1:"}
    consistent(coupon)


def test_a_refusal_uses_no_code(coupon):
    coupon.put(limit=1, total=2)
    assert claim(coupon, "1", "7.0", batch=A) == 1
    assert claim(coupon, "1", "7.1") == LIMIT_REACHED
    assert claim(coupon, "2", "7.1") == 1
    assert claim(coupon, "3", "7.2") == OUT_OF_STOCK
    coupon.set(status="paused")
    assert claim(coupon, "3", "7.2") == PAUSED
    assert claim(coupon, "3", "7.1") == CODE_USED
    assert claim(coupon, "1", "7.0") == receive(1, A)
    coupon.set(status="closed")
    assert coupon.issue(("3", "", "7.2"), ("3", "", ""), ("1", "", "7.0")).verdicts == [
        ENDED,
        ENDED,
        receive(1, A),
    ]
    assert coupon.claimed() == {"7.0": "1", "7.1": "2"}


def test_a_word_is_for_everybody_up_to_the_limit(coupon):
    coupon.put(limit=2)
    assert [claim(coupon, "1", "9") for _ in range(3)] == [1, 2, LIMIT_REACHED]
    answer = coupon.issue(("2", "", "9"), batch=A)
    assert answer.message["receives"] == [["2", 1, "", "9"]]
    assert coupon.users()["2"] == f"1:{A}:0:\t9"
    assert coupon.claimed() == {}


def test_a_code_with_an_end_of_its_own(coupon):
    """By Redis' clock. It does not matter to a receive that was accepted before."""
    coupon.put(limit=9)
    past, later = 1, coupon.time_ms() + 3_600_000
    assert claim(coupon, "1", f"7.0 {later}", batch=A) == 1
    assert coupon.users() == {"1": f"1:{A}:0:\t7.0"} and coupon.claimed() == {"7.0": "1"}
    assert claim(coupon, "1", f"7.0 {past}") == receive(1, A)
    assert claim(coupon, "2", f"7.0 {past}") == CODE_USED
    assert claim(coupon, "2", f"7.1 {coupon.time_ms()}") == CODE_EXPIRED
    assert claim(coupon, "2", "7.1 0") == CODE_EXPIRED
    answer = coupon.issue(
        ("2", "", f"7.1 {past}"), ("2", "", "7.2"), ("3", "", f"9 {past}"), ("3", "", f"9 {later}")
    )
    assert answer.verdicts == [CODE_EXPIRED, 1, CODE_EXPIRED, 1]
    assert [one[0] for one in answer.message["receives"]] == ["2", "3"]
    assert answer.message["receives"][1][3] == "9", "the end is no part of the code"
    revoke(coupon, "7.4")
    assert claim(coupon, "4", f"7.4 {past}") == CODE_INVALID
    coupon.set(status="paused")
    assert claim(coupon, "4", f"7.5 {past}") == CODE_EXPIRED
    assert claim(coupon, "4", f"7.5 {later}") == PAUSED
    consistent(coupon)


@pytest.mark.parametrize(
    "code", ["7.0 ", "7.0 x", "7.0 -1", "7.0 01", f"7.0 {2**53}", "7.0  1", " 1", "x 1"]
)
def test_an_end_that_is_none(coupon, code):
    coupon.put()
    refused(coupon, "code: ", coupon.issue, ("1", "", code))


def test_revoked(coupon):
    coupon.put(limit=9)
    assert claim(coupon, "1", "7.0", batch=A) == 1
    assert revoke(coupon, "7.0", "7.1", "8") == ["ok", 1, 1]
    assert coupon.claimed() == {"7.0": "1 ", "7.1": "", "8": "", "*": ""}
    assert revoke(coupon, "7.0", "7.1", "8", to=1) == ["ok", 1, 1]
    assert coupon.claimed() == {"7.0": "1 ", "7.1": "", "8": "", "*": ""}
    assert claim(coupon, "1", "7.1") == CODE_INVALID
    assert claim(coupon, "1", "8.4") == CODE_INVALID
    assert claim(coupon, "1", "8") == CODE_INVALID
    assert claim(coupon, "1", "7.0") == receive(1, A)
    assert claim(coupon, "1", "7.2") == 1 + 1
    coupon.set(status="paused")
    assert claim(coupon, "2", "7.1") == CODE_INVALID
    consistent(coupon)


def test_revoked_of_a_coupon_that_redis_does_not_have(coupon):
    assert revoke(coupon, "7.0", to=1) == "missing"
    assert coupon.snapshot() == {}


def test_how_far_redis_has_the_revocations(coupon):
    coupon.put(generation=4, seq=9)
    assert revoke(coupon, "7.0", to=3) == ["ok", 4, 9]
    assert coupon.get("revocation") == "3"
    assert revoke(coupon, "7.1", source=2, to=2) == ["ok", 4, 9]
    assert revoke(coupon, "7.1", source=3, to=4, is_last=0) == ["ok", 4, 9]
    assert coupon.get("revocation") == "3"
    before = coupon.snapshot()
    assert revoke(coupon, "7.2", source=4, to=5) == "behind"
    assert revoke(coupon, "7.2", source=3, to=5, generation=3) == "behind"  # another copy
    assert coupon.snapshot() == before
    assert revoke(coupon, source=3, to=5) == ["ok", 4, 9]
    assert coupon.get("revocation") == "5"


def test_what_redis_may_have_lost_is_not_told(coupon):
    coupon.put(generation=4, seq=9, run_id="1" * 40)
    assert revoke(coupon, "7.0", to=1) == ["ok"]
    coupon.run("hold", 5, 4)
    assert revoke(coupon, "7.1", source=1, to=2) == ["ok"]
    assert coupon.claimed() == {"7.0": "", "7.1": ""}
    assert coupon.get("revocation") == "2"


def test_revoked_during_a_rebuild(coupon):
    """What was filled lacks it; so it is not put in place."""
    coupon.put(fence=5, generation=2)
    coupon.run("hold", 5, 2)
    fill_revoked(coupon, "7.0")
    assert revoke(coupon, "7.1", source=1, to=2) == "behind"
    assert revoke(coupon, "7.0", "7.1", to=2) == ["ok"]  # it is held
    for lower in (0, 1):
        assert load_now(coupon, revocation=lower) == "revoked"
    assert coupon.get("generation") == "2"
    fill_revoked(coupon, "7.1")
    assert load_now(coupon, revocation=2)[0] == "placed"
    assert (coupon.get("generation"), coupon.get("revocation")) == ("3", "2")
    assert coupon.claimed() == {"7.0": "", "7.1": "", "*": ""}
    assert claim(coupon, "1", "7.1") == CODE_INVALID


def test_revoked_while_redis_has_only_a_placeholder(coupon):
    coupon.run("hold", 5, 2)
    # Nothing follows the first call, because there is nothing to mark.
    assert revoke(coupon, "7.0", source=6, to=7, is_last=0) == "missing"
    assert coupon.claimed() == {}
    fill_revoked(coupon)
    assert load_now(coupon, revocation=6) == "revoked"
    assert load_now(coupon, revocation=7)[0] == "placed"


def test_revoked_and_redis_emptied_during_a_rebuild(coupon):
    coupon.run("hold", 5, 2)
    coupon.delete()
    assert revoke(coupon, "7.0", to=1) == "missing"
    assert load_now(coupon) == "gone"


def test_filled_codes_that_have_expired(coupon):
    coupon.run("hold", 5, 2)
    assert load_now(coupon, revocation=1) == "gone"
    fill_revoked(coupon)
    assert load_now(coupon, revocation=1)[0] == "placed"


def test_verify_needs_the_revocations(coupon):
    coupon.put(run_id="0" * 40, seq=7)
    assert verify(coupon, revocation=1) == "behind"
    revoke(coupon, "7.0", to=1)
    assert verify(coupon, revocation=1) == "verified"
    coupon.set(run_id="0" * 40, revocation="x")
    refused(coupon, "coupon: its", verify, coupon)


def test_revoked_once_its_receive_loses_it(coupon):
    coupon.put(limit=1)
    assert claim(coupon, "1", "7.0", batch=A) == 1
    revoke(coupon, "7.0", to=1)
    assert claim(coupon, "2", "7.0") == CODE_USED
    assert claim(coupon, "1", "7.0") == receive(1, A)
    coupon.run("slot_free", "1", 1, A, 0, "free")
    assert coupon.claimed() == {"7.0": ""}
    assert claim(coupon, "2", "7.0") == CODE_INVALID


def test_revoke_bad_arguments(coupon):
    coupon.put()
    for bad in BAD:
        refused(coupon, "code: ", revoke, coupon, "7.0", bad)
    refused(coupon, "ARGV: ", coupon.run, "revoke", 1, 0)
    refused(coupon, "ARGV: ", revoke, coupon, *(1025 * ["7.0"]))
    refused(coupon, "generation: ", revoke, coupon, "7.0", generation=0)
    refused(coupon, "from: ", revoke, coupon, "7.0", source="x")
    refused(coupon, "to: ", revoke, coupon, "7.0", to=-1)
    refused(coupon, "is_last: ", revoke, coupon, "7.0", is_last=2)
    refused(coupon, "run_id: ", coupon.run, "revoke", "x", 1, 0, 1, 1)
    coupon.redis.set(coupon.codes, "x")
    refused(coupon, "coupon:.*: not a hash", revoke, coupon, "7.0")


@pytest.mark.parametrize("code", ["1", "7.0", LONGEST])
def test_codes_of_any_length(coupon, code):
    coupon.put(limit=1)
    assert claim(coupon, "1", code, key="k" * 255, batch=A) == 1
    assert coupon.users() == {"1": f"1:{A}:0:{'k' * 255}\t{code}"}
    assert coupon.run("slot_free", "1", 1, A, 0, "free") == ["ok", 100, 0, "free"]
    assert coupon.claimed() == {} and coupon.users() == {}


@pytest.mark.parametrize("code", BAD)
def test_bad_code(coupon, code):
    coupon.put()
    refused(coupon, "code: ", coupon.issue_raw, ("1", "", "7.0"), ("2", "", code))


def test_part_with_codes_needs_its_keys(coupon):
    coupon.put()
    refused(coupon, "KEYS: ", coupon.issue_raw, ("1", "", "7.0"), keys=coupon.keys)
    keys = [*coupon.keys, coupon.known]
    refused(coupon, "KEYS: ", coupon.issue_raw, ("1", "", "7.0"), keys=keys)
    refused(coupon, "KEYS: ", coupon.issue_raw, "1", keys=[*coupon.keys, coupon.codes])
    for count in ("1", "1k", "1kc", "2c"):
        refused(coupon, "count|ARGV|KEYS", coupon.issue_raw, ("1", "", "7.0"), count=count)


def test_codes_of_another_type(coupon):
    coupon.put()
    coupon.redis.set(coupon.codes, "x")
    refused(coupon, "codes: WRONGTYPE", coupon.issue_raw, ("1", "", "7.0"))
    assert coupon.issue("1").verdicts == [1]


@pytest.mark.parametrize("tail", ["\t", "\t1.", "\t1.2.3", "\tx", "\t1\t2", "k\t01"])
def test_malformed_code_in_a_record(coupon, tail):
    coupon.put()
    coupon.redis.hset(coupon.keys[1], "1", f"1:{A}:0:{tail}")
    refused(coupon, "users: malformed", coupon.issue_raw, "1")


# slot_free.lua


@pytest.mark.parametrize("what, stock", [("free", 100), ("drop", 99), ("void", 100), ("keep", 99)])
def test_a_freed_code(coupon, what, stock):
    coupon.put(limit=1)
    claim(coupon, "1", "7.0", batch=A)
    assert coupon.run("slot_free", "1", 1, A, 0, what)[1] == stock
    consistent(coupon)
    assert claim(coupon, "2", "7.0") == (CODE_USED if what == "keep" else 1)
    assert coupon.run("slot_free", "1", 1, A, 0, what)[3] == ("keep" if what == "keep" else "other")
    consistent(coupon)


def test_a_slot_given_to_another_receive(coupon):
    coupon.put(limit=2)
    claim(coupon, "1", "7.0", batch=A)
    assert coupon.run("slot_free", "1", 1, A, 0, f"give 1:{B}:3:k\t7.5") == ["ok", 99, 0, "give"]
    assert coupon.claimed() == {"7.5": "1"}
    claim(coupon, "1", "7.0", batch=C)
    assert coupon.run("slot_free", "1", 2, C, 0, f"give 2:{B}:4:") == ["ok", 98, 0, "give"]
    assert coupon.claimed() == {"7.5": "1"}
    consistent(coupon)


def test_a_code_that_another_record_of_the_user_has(coupon):
    coupon.put(limit=2, stock=98)
    coupon.redis.hset(coupon.keys[1], "1", f"1:{A}:0:\t7.0\n2:{B}:0:\t7.0")
    coupon.redis.hset(coupon.codes, "7.0", "1")
    coupon.run("slot_free", "1", 2, B, 0, "free")
    assert coupon.claimed() == {"7.0": "1"}
    coupon.run("slot_free", "1", 1, A, 0, "free")
    assert coupon.claimed() == {}


def test_a_code_that_another_user_has(coupon):
    coupon.put(stock=99)
    coupon.redis.hset(coupon.keys[1], "1", f"1:{A}:0:\t7.0")
    coupon.redis.hset(coupon.codes, "7.0", "2")
    coupon.run("slot_free", "1", 1, A, 0, "free")
    assert coupon.claimed() == {"7.0": "2"}


def test_users_with_thousands_of_codes(coupon):
    """Lua's stack has no room for all of them in one command."""
    users, slots = [str(n) for n in range(60)], range(1, 101)
    taken = len(users) * len(slots)
    coupon.put(limit=100, total=10000, stock=10000 - taken)
    for n, user in enumerate(users):
        lines = [f"{slot}:{A}:{slot}:\t7.{n * 100 + slot}" for slot in slots]
        coupon.redis.hset(coupon.keys[1], user, "\n".join(lines))
        coupon.redis.hset(coupon.codes, mapping={f"7.{n * 100 + slot}": user for slot in slots})
    receives = [part for user in users for part in (user, 5, A, 5, "free")]
    assert coupon.run("slot_free", *receives)[3:] == len(users) * ["free"]
    assert int(coupon.get("stock")) + coupon.taken() == 10000
    assert coupon.taken() == taken - len(users)
    consistent(coupon)


def test_a_kept_code_that_another_user_has(coupon):
    """PostgreSQL gave it to user 2; the receive of user 1 is rejected next."""
    coupon.put(limit=2, stock=97)
    coupon.redis.hset(coupon.keys[1], "1", f"1:{A}:0:\t7.0\n2:{B}:0:\t7.1")
    coupon.redis.hset(coupon.keys[1], "2", f"1:{C}:0:\t7.0")
    coupon.redis.hset(coupon.codes, mapping={"7.0": "2", "7.1": "1"})
    coupon.run("slot_free", "1", 2, B, 0, "free")
    assert coupon.claimed() == {"7.0": "2"}
    coupon.run("slot_free", "1", 1, A, 0, "free")
    assert coupon.claimed() == {"7.0": "2"}
    consistent(coupon)


def test_a_late_receive_with_a_revoked_code(coupon):
    coupon.put(generation=2, reserved=2, stock=98, limit=1)
    revoke(coupon, "7.0", to=1)
    assert late(coupon, 1, 1, 1, "1", 1, A, 0, "\t7.0", "issued")[0] == "ok"
    assert coupon.claimed() == {"7.0": "1 "}
    assert late(coupon, 2, 1, 2, "1", 1, B, 0, "\t7.1", "issued")[0] == "ok"
    assert coupon.claimed() == {"7.0": "", "7.1": "1"}


# fill.lua, place.lua, late.lua, expire.lua


def fill(coupon, what, *pairs, room=100, past=0):
    keys = coupon.fill_keys(3)
    return coupon.run("fill", fence_of(5), what, room, 60000, past, *pairs, keys=keys)


@pytest.mark.parametrize("what", ["issued", "single"])
def test_a_rebuild_has_the_codes(coupon, what):
    coupon.redis.hset(coupon.fill_keys(3)[2], "8", "")
    assert fill(coupon, what, "1", f"1:{A}:0:\t7.0", "2", f"1:{A}:1:k\t9", "3", f"1:{A}:2:") == 3
    assert fill(coupon, "flight", "4", f"1:{B}:0:\t7.0", "5", f"1:{B}:1:\t7.1", past=3) == 1
    assert fill(coupon, "flight", "6", f"1:{B}:2:\t7.1", past=4) == 0
    assert fill(coupon, "flight", "6", f"1:{B}:2:\t7.2", "7", f"1:{B}:3:\t7.2", past=4) == 1
    # accepted before they were revoked
    fill_revoked(coupon, "7.1", "7.2", "8", "7.3")
    assert fill(coupon, "flight", "7", f"1:{B}:5:\t7.3", past=5) == 1
    fill_revoked(coupon, "7.0", "7.3")
    coupon.redis.hset(coupon.codes, "7.9", "1")
    assert load(coupon, issued=3)[0] == "placed"
    marked = {"7.0": "1 ", "7.1": "5 ", "7.2": "6 ", "7.3": "7 ", "8": "", "*": ""}
    assert coupon.claimed() == marked
    assert coupon.redis.pttl(coupon.codes) == -1
    consistent(coupon)


def test_a_rebuild_without_codes_removes_those_of_before(coupon):
    coupon.redis.hset(coupon.codes, "7.9", "1")
    assert load(coupon)[0] == "placed"
    assert coupon.claimed() == {}


def late(coupon, *outcome):
    return coupon.run("late", fence_of(5), *outcome)


def test_a_late_receive_gets_its_code(coupon):
    coupon.put(generation=2, reserved=2, stock=98, limit=1)
    claim(coupon, "9", "7.0", batch=B)
    assert late(coupon, 1, 1, 1, "1", 1, A, 0, "\t7.0", "issued")[0] == "ok"
    assert coupon.users()["1"] == f"1:{A}:0:\t7.0"
    assert coupon.claimed() == {"7.0": "1"}
    # PostgreSQL has rejected the other one
    coupon.run("slot_free", "9", 1, B, 0, "free")
    assert coupon.claimed() == {"7.0": "1"}
    consistent(coupon)


@pytest.mark.parametrize("is_given", [False, True])
def test_a_code_of_a_voided_receive_that_another_user_had(coupon, is_given):
    """PostgreSQL then issues that of user 9."""
    coupon.put(generation=2, reserved=1, stock=99, limit=1)
    claim(coupon, "9", "7.0", batch=B)
    if is_given:
        claim(coupon, "1", "7.1", batch=C)
        coupon.run("slot_free", "1", 1, C, 0, f"give 1:{A}:0:\t7.0")
    late(coupon, 1, 1, 1, "1", 1, A, 0, "\t7.0", "issued")
    assert (coupon.get("displaced"), coupon.get("rebuild")) == ("1", None)
    assert coupon.run("slot_free", "1", 1, A, 0, "void")[3] == "rebuild"
    assert coupon.claimed() == {"7.0": "1"} and coupon.get("rebuild") == "1"
    assert claim(coupon, "2", "7.0") == CODE_USED


@pytest.mark.parametrize("by", ["late", "give"])
def test_a_code_that_another_user_had_is_lost_with_a_slot(coupon, by):
    """The receive of user 1 was voided, and its slot is another one's in PostgreSQL already."""
    coupon.put(generation=2, reserved=2, stock=98, limit=1)
    claim(coupon, "9", "7.0", batch=B)
    late(coupon, 1, 1, 1, "1", 1, A, 0, "\t7.0", "issued")
    if by == "late":
        late(coupon, 2, 1, 2, "1", 1, C, 0, "", "issued")
    else:
        coupon.run("slot_free", "1", 1, A, 0, f"give 1:{C}:0:")
    assert coupon.users()["1"] == f"1:{C}:0:" and coupon.get("rebuild") == "1"


def test_a_late_receive_takes_the_slot_of_one_with_its_code_in_another_slot(coupon):
    coupon.put(generation=2, reserved=2, stock=98, limit=2)
    claim(coupon, "1", "7.0", batch=B)
    late(coupon, 1, 1, 1, "1", 2, A, 1, "\t7.0", "issued")
    late(coupon, 2, 1, 2, "1", 1, A, 0, "", "issued")
    assert coupon.users()["1"].split("\n") == [f"2:{A}:1:\t7.0", f"1:{A}:0:"]
    assert coupon.claimed() == {"7.0": "1"}
    consistent(coupon)


def test_a_late_receive_replaces_one_with_a_code(coupon):
    coupon.put(generation=2, reserved=1, stock=99, limit=1)
    claim(coupon, "1", "7.0", batch=B)
    assert late(coupon, 1, 1, 1, "1", 1, A, 0, "k\t7.3", "issued")[0] == "ok"
    assert coupon.claimed() == {"7.3": "1"}
    consistent(coupon)


@pytest.mark.parametrize("seed", seeds(1))
def test_random_requests_and_releases(coupon, seed):
    rng = random.Random(seed)
    coupon.put(limit=3, total=60, stock=60)
    for _ in range(400):
        if rng.random() < 0.6:
            requests = [
                (
                    str(rng.randrange(9)),
                    rng.choice(["", "", "", f"k{rng.randrange(9)}"]),
                    rng.choice(["", "9", f"7.{rng.randrange(40)}"]),
                )
                for _ in range(rng.randrange(1, 6))
            ]
            coupon.issue(*requests)
        elif coupon.users():
            user, records = rng.choice(sorted(coupon.users().items()))
            slot, batch, index = rng.choice(records.split("\n")).split(":")[:3]
            give = f"give {slot}:{ulid_make()}:0:\t8.{rng.randrange(10**9)}"
            what = rng.choice(["free", "void", "keep", give])
            coupon.run("slot_free", user, slot, batch, index, what)
        consistent(coupon)
        assert int(coupon.get("stock")) + coupon.taken() == 60


def test_a_full_redis_claims_nothing(private_coupon):
    coupon = private_coupon
    coupon.put()
    coupon.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="OOM|command not allowed"):
            claim(coupon, "1", "7.0")
    finally:
        coupon.redis.config_set("maxmemory", 0)
    assert coupon.claimed() == {} and coupon.users() == {}
