"""The scripts of the keeper that open, close and correct a coupon: what they have in common, and
verify.lua, expire.lua, keep_terms.lua, repair.lua, ask.lua, refused.lua and refused_take.lua."""

import pytest
import redis

from keeper_scripts import (
    BIG,
    CLOSED,
    expire,
    keys_of,
    LOAD,
    load,
    NUMBERS_BAD,
    refused,
    terms,
    TERMS,
    unchanged,
    VERIFY,
    verify,
)
from script_coupon import fence_of
from ulid import ulid_make


# What the scripts of the keeper have in common


# The fence


def test_fence_only_rises(coupon):
    coupon.put(fence=5)
    before = coupon.redis.hgetall(coupon.keys[0])
    unchanged(coupon, "fenced", lambda c: c.run("fence", 4))
    unchanged(coupon, "current", lambda c: c.run("fence", 5))
    assert coupon.run("fence", 7) == "raised"
    assert coupon.redis.hgetall(coupon.keys[0]) == {**before, "fence": "7"}


def test_fence_shuts_out_the_keeper_before(coupon):
    coupon.put(fence=5, run_id="f" * 40)
    coupon.run("fence", 6)
    unchanged(coupon, "fenced", verify, fence=5, seq_seen=0)
    unchanged(coupon, "fenced", terms, fence=5)
    unchanged(coupon, "fenced", load, fence=5)
    for script in ("hold", "expire", "late"):
        unchanged(coupon, "fenced", KEEPERS[script], fence=fence_of(5))


def test_fence_of_what_is_no_coupon(coupon):
    unchanged(coupon, "missing", lambda c: c.run("fence", 5))
    coupon.redis.set(coupon.keys[0], "x")
    refused(coupon, coupon.keys[0], lambda c: c.run("fence", 5))
    coupon.put(fence="")
    refused(coupon, "coupon: ", lambda c: c.run("fence", 5))
    for wrong in ("-1", "x", "", BIG + 1):
        refused(coupon, "fence: ", lambda c: c.run("fence", wrong))


def fill_args(coupon):
    record = f"1:{ulid_make()}:0:"
    return ("issued", 10, 60000, 0, "1", record), coupon.fill_keys(2)


def late_args():
    return (1, 0, 0, "5", 1, ulid_make(), 0, "", "issued")


KEEPERS = {
    "place": lambda c, fence: load(c, fence=fence),
    "verify": lambda c, fence: verify(c, fence=fence),
    "terms": lambda c, fence: terms(c, fence=fence),
    "fence": lambda c, fence: c.run("fence", fence),
    "hold": lambda c, fence: c.run("hold", fence, 1),
    "expire": lambda c, fence: expire(c, fence=fence),
    "fill": lambda c, fence: c.run("fill", fence, *fill_args(c)[0], keys=fill_args(c)[1]),
    "late": lambda c, fence: c.run("late", fence, *late_args()),
}
WORDS = ("placed", "verified", "applied", "raised", "held", "expires", "ok", 1)


@pytest.mark.parametrize("script", KEEPERS)
def test_a_keeper_whose_lock_may_be_lost_writes_nothing(coupon, script):
    """Its lease is over, or has not begun by a clock that was set back."""
    coupon.put(**(CLOSED if script == "expire" else {"seq": 7, "fence": 5}))
    if script == "place":
        coupon.run("hold", 5, 1)
    seconds, us = coupon.redis.time()
    now = seconds * 1000 + us // 1000
    wanted = -1 if script == "fill" else "fenced"
    for window in (f"{now - 5000}:{now}", f"{now + 60000}:{now + 65000}"):
        unchanged(coupon, wanted, KEEPERS[script], f"9:{window}")
    reply = KEEPERS[script](coupon, f"9:{now}:{now + 60000}")
    assert (reply[0] if isinstance(reply, list) else reply) in WORDS


@pytest.mark.parametrize("fence", ["5:0", "5:0:x", "5::9", ":", "5:0:9:9", ":0:9", "5:0:9 "])
def test_malformed_fence_of_the_keeper(coupon, fence):
    refused(coupon.put(), "fence: ", lambda c: c.run("hold", fence, 1))


def test_malformed_fence(coupon):
    coupon.put(seq=7, fence="x")
    refused(coupon, "coupon: its fence", verify)


# Types, keys and arguments


@pytest.mark.parametrize(
    "script, which",
    [(script, which) for script in (verify, terms) for which in (0, 1, 2)] + [(load, 0), (load, 2)],
)
def test_wrong_type(coupon, script, which):
    coupon.put(seq=7)
    coupon.redis.delete(coupon.keys[which])
    coupon.redis.set(coupon.keys[which], "x")
    refused(coupon, coupon.keys[which] + ": not a hash", script)


@pytest.mark.parametrize(
    "script, defaults", [("place", LOAD), ("verify", VERIFY), ("terms", TERMS)]
)
def test_wrong_keys(coupon, script, defaults):
    coupon.put(seq=7)
    args = [coupon.run_id if a is None else a for a in defaults.values()]
    k = coupon.keys
    rest = keys_of(coupon, script)[3:]
    for keys in (
        [],
        k[:2],
        k + rest + k[:1],
        [k[1], k[0], k[2]] + rest,
        [k[0], "coupon:{1}:users", k[2]] + rest,
        ["coupon:{}", "coupon:{}:users", "coupon:{}:outbox"] + rest,
        ["coupon:1", "coupon:1:users", "coupon:1:outbox"] + rest,
    ):
        refused(coupon, "KEYS: ", lambda c: c.run(script, *args, keys=keys))
    refused(coupon, "ARGV: ", lambda c: c.run(script, keys=k + rest))
    refused(coupon, "ARGV: ", lambda c: c.run(script, *args[:-1], keys=k + rest))


def test_an_error_tells_its_script(coupon):
    with pytest.raises(redis.ResponseError, match=r"^couponmq: limit: .* \(terms\.lua\)"):
        terms(coupon, limit=0)


# verify.lua


def test_verify(coupon):
    coupon.put(run_id="0" * 40, seq=7)
    assert verify(coupon) == "verified"
    assert (coupon.get("run_id"), coupon.get("fence")) == (coupon.run_id, "5")
    assert coupon.issue("1").verdicts == [1]


def test_verify_changes_nothing_else(coupon):
    coupon.put(run_id="0" * 40, seq=9)
    before = coupon.redis.hgetall(coupon.keys[0])
    assert verify(coupon) == "verified"
    assert coupon.redis.hgetall(coupon.keys[0]) == {**before, "run_id": coupon.run_id, "fence": "5"}


@pytest.mark.parametrize(
    "changes", [{"seq_seen": 8}, {"generation": 2}, {"generation": 2, "seq_seen": 0}]
)
def test_verify_behind(coupon, changes):
    coupon.put(run_id="0" * 40, seq=7)
    unchanged(coupon, "behind", verify, **changes)


def test_verify_of_an_older_generation_is_behind(coupon):
    coupon.put(run_id="0" * 40, seq=7, generation=2)
    unchanged(coupon, "behind", verify, generation=1)


def test_verify_behind_what_gateways_told(coupon):
    coupon.put(run_id="0" * 40, seq=7)
    assert coupon.run("report", 1, 8, "", keys=[coupon.keys[0], coupon.seen]) == 1
    unchanged(coupon, "behind", verify)
    coupon.set(seq=8)
    assert verify(coupon) == "verified"
    assert not coupon.redis.exists(coupon.seen)


def test_verify_behind_late_outcomes(coupon):
    coupon.put(run_id="0" * 40, seq=7, late=3)
    unchanged(coupon, "behind", verify, late=4)
    assert verify(coupon, late=3) == "verified"


def test_verify_never_opens_a_placeholder(coupon):
    assert coupon.run("hold", 5, 1) == "held"
    unchanged(coupon, "behind", verify, seq_seen=0)


def test_verify_missing(coupon):
    unchanged(coupon, "missing", verify)


def test_verify_fenced(coupon):
    coupon.put(run_id="0" * 40, seq=7, fence=6)
    unchanged(coupon, "fenced", verify)
    unchanged(coupon, "fenced", verify, seq_seen=99)
    assert verify(coupon, fence=6) == "verified"


@pytest.mark.parametrize("name", ["fence", "generation", "seq_seen"])
@pytest.mark.parametrize("value", NUMBERS_BAD)
def test_verify_bad_number(coupon, name, value):
    coupon.put(seq=7)
    refused(coupon, f"{name}: ", verify, **{name: value})


@pytest.mark.parametrize(
    "changes, sentence",
    [({"generation": 0}, "generation: "), ({"run_id": "x"}, "run_id: "), ({"extra": 1}, "ARGV: ")],
)
def test_verify_bad_argument(coupon, changes, sentence):
    coupon.put(seq=7)
    refused(coupon, sentence, verify, **changes)


# expire.lua


def test_expire_gives_all_keys_the_same_end(coupon):
    coupon.put(**CLOSED)
    coupon.redis.hset(coupon.keys[1], "1", "x")
    coupon.redis.hset(coupon.keys[0] + ":seen", "1", "7")
    coupon.redis.sadd(coupon.dead, "batch")
    coupon.redis.rpush(coupon.settled, "batch:1")
    coupon.redis.rpush(coupon.rejected, "batch:0:1:slot_taken:42")
    coupon.redis.set(coupon.terms, "1 {}")
    before = coupon.time_ms()
    assert expire(coupon, fence=6) == "expires"
    ends = {coupon.redis.execute_command("PEXPIRETIME", key) for key in coupon.snapshot()}
    assert len(coupon.snapshot()) == 7 and len(ends) == 1
    assert before + 60000 <= ends.pop() <= coupon.time_ms() + 60000
    assert coupon.get("fence") == "6"


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "open"},
        {"status": "paused"},
        {"generation": 3},
        {"seq": 4},
        {"seq": 2},
        {"reserved": 1},
    ],
)
def test_expire_not_while_it_is_busy(coupon, fields):
    coupon.put(**{**CLOSED, **fields})
    unchanged(coupon, "busy", expire)


def test_expire_not_while_anything_is_in_flight(coupon):
    coupon.put(**CLOSED)
    coupon.redis.hset(coupon.keys[2], "batch", "body")
    unchanged(coupon, "busy", expire)
    coupon.redis.delete(coupon.keys[2])
    coupon.redis.sadd(coupon.keys[0] + ":known", "batch:0")
    unchanged(coupon, "busy", expire)
    coupon.redis.delete(coupon.keys[0] + ":known")
    assert expire(coupon) == "expires"


def test_expire_is_fenced(coupon):
    unchanged(coupon, "missing", expire)
    coupon.put(**CLOSED)
    unchanged(coupon, "fenced", expire, fence=4)


@pytest.mark.parametrize(
    "changes", [{"fence": "x"}, {"generation": 0}, {"seq": -1}, {"keep_ms": 0}, {"extra": 1}]
)
def test_expire_bad_argument(coupon, changes):
    sentence = "ARGV: " if "extra" in changes else f"{next(iter(changes))}: "
    refused(coupon.put(**CLOSED), sentence, expire, **changes)


def test_expire_bad_keys(coupon):
    coupon.put(**CLOSED)
    refused(coupon, "KEYS: ", expire, keys=coupon.keys)
    refused(coupon, "KEYS: ", expire, keys=[*coupon.keys, coupon.known, coupon.seen, coupon.dead])
    for key in (coupon.known, coupon.dead, coupon.settled, coupon.rejected):
        coupon.redis.set(key, "x")
        refused(coupon, key, expire)
        coupon.redis.delete(key)
    coupon.redis.sadd(coupon.terms, "x")
    refused(coupon, coupon.terms, expire)


# keep_terms.lua


ROW = '{"id": 1, "name": "a \\u00e4 \\" b"}'


def keep(coupon, fence=5, version=3, row=ROW, keys=None):
    return coupon.run("keep_terms", fence, version, row, keys=keys or [coupon.terms])


def test_kept_as_it_is(coupon):
    assert keep(coupon) == "kept"
    assert coupon.redis.get(coupon.terms) == f"3 {ROW}"


def test_newer_and_the_same_replace(coupon):
    keep(coupon)
    assert keep(coupon, version=3, row="{}") == "kept"
    assert keep(coupon, version=10, row='{"a": 1}') == "kept"
    assert coupon.redis.get(coupon.terms) == '10 {"a": 1}'


def test_an_older_version_never_replaces(coupon):
    keep(coupon, version=10)
    unchanged(coupon, "current", keep, version=9)


def test_what_is_malformed_is_replaced(coupon):
    for text in ("", "x", " 3 {}", "-1 {}"):
        coupon.redis.set(coupon.terms, text)
        assert keep(coupon, version=1) == "kept"


def test_the_expiry_time_stays(coupon):
    keep(coupon)
    coupon.redis.pexpire(coupon.terms, 60000)
    assert keep(coupon, version=4) == "kept"
    assert 0 < coupon.redis.pttl(coupon.terms) <= 60000


def test_a_keeper_without_its_lock_writes_nothing(coupon):
    keep(coupon)
    unchanged(coupon, "fenced", keep, fence="5:0:1", version=4)


@pytest.mark.parametrize("wrong", NUMBERS_BAD)
def test_version(coupon, wrong):
    refused(coupon, "version: ", keep, version=wrong)


def test_other_keys(coupon):
    refused(coupon, "KEYS: ", keep, keys=[coupon.keys[0]])
    refused(coupon, "KEYS: ", keep, keys=[coupon.terms, coupon.terms])
    coupon.redis.hset(coupon.terms, "a", "b")
    refused(coupon, coupon.terms, keep)


# repair.lua


COMPARED = {
    "fence": fence_of(5),
    "generation": 2,
    "seq": 9,
    "total": 100,
    "stock": 60,
    "reserved": 7,
    "lost": 0,
    "late": 3,
    "known": 2,
}
RIGHT = {"right_stock": 88, "right_reserved": 3}


def repair(coupon, **changes):
    keys = [*coupon.keys, coupon.known]
    return coupon.run("repair", *{**COMPARED, **RIGHT, **changes}.values(), keys=keys)


@pytest.fixture
def compared(coupon):
    coupon.put(generation=2, seq=9, total=100, stock=60, reserved=7, late=3, fence=5)
    coupon.redis.sadd(coupon.known, "a", "b")
    return coupon


def test_repair_sets_both_and_nothing_else(compared):
    before = compared.redis.hgetall(compared.keys[0])
    assert repair(compared) == "right"
    right = {**before, "stock": "88", "reserved": "3"}
    assert compared.redis.hgetall(compared.keys[0]) == right
    assert compared.issue("1").verdicts == [1], "it is open"


@pytest.mark.parametrize("name", list(COMPARED)[1:])
def test_repair_of_what_has_changed(compared, name):
    unchanged(compared, "changed", repair, **{name: COMPARED[name] + 1})


def test_repair_after_a_receive(compared):
    assert compared.issue("1").verdicts == [1]
    unchanged(compared, "changed", repair)


def test_repair_without_a_coupon(coupon):
    unchanged(coupon, "missing", repair)


def test_repair_of_a_former_keeper(compared):
    unchanged(compared, "fenced", repair, fence=fence_of(4))
    unchanged(compared, "fenced", repair, fence="5:0:1")


@pytest.mark.parametrize("name", [*list(COMPARED)[1:], "right_stock", "right_reserved"])
@pytest.mark.parametrize("value", NUMBERS_BAD)
def test_repair_bad_number(compared, name, value):
    refused(compared, f"{name.removeprefix('right_')}: ", repair, **{name: value})


# ask.lua


MOST = 10_000


def ask(coupon, asked="1001"):
    return coupon.run("ask", asked, keys=["couponmq:asked"])


@pytest.fixture
def asking(private_coupon):
    private_coupon.keys.append("couponmq:asked")
    private_coupon.redis.delete("couponmq:asked")
    return private_coupon


def test_ask_noted_once_and_for_a_while(asking):
    assert ask(asking) == ask(asking) == ask(asking, str(2**63 - 1)) == 1
    assert asking.redis.smembers("couponmq:asked") == {"1001", str(2**63 - 1)}
    assert 0 < asking.redis.pttl("couponmq:asked") <= 10_000


def test_ask_no_more_than_the_bound(asking):
    asking.redis.sadd("couponmq:asked", *range(1, MOST + 1))
    unchanged(asking, 0, ask, asked="20000")


@pytest.mark.parametrize("wrong", ("", "0", "01", "-1", "1.5", "x", "1" * 20))
def test_ask_what_is_no_id(asking, wrong):
    refused(asking, "id: ", ask, asked=wrong)


def test_ask_a_key_of_another_type(asking):
    asking.redis.set("couponmq:asked", "x")
    refused(asking, "couponmq:asked: ", ask)


# refused.lua, refused_take.lua


REFUSED = "couponmq:refused"


def refuse(coupon, *pairs):
    return coupon.run("refused", *pairs, keys=[REFUSED])


def taken(coupon):
    reply = coupon.run("refused_take", keys=[REFUSED])
    return dict(zip(reply[::2], map(int, reply[1::2])))


@pytest.fixture
def refusing(private_coupon):
    private_coupon.keys.append(REFUSED)
    private_coupon.redis.delete(REFUSED)
    return private_coupon


def writes(coupon):
    return coupon.redis.info("persistence")["rdb_changes_since_last_save"]


def test_refused_is_summed_until_it_is_taken(refusing):
    """It also says how much was written, so that the keeper can tell it from other writes."""
    before = writes(refusing)
    assert refuse(refusing, "1001:ended", 2**32 - 1, "1002:ended", 5) == 2
    assert refuse(refusing, "1001:out_of_stock", 1, "1001:ended", 3) == 2
    found = taken(refusing)
    assert writes(refusing) - before == found.pop("writes") + 1
    assert found == {"1001:ended": 2**32 + 2, "1002:ended": 5, "1001:out_of_stock": 1}
    before = writes(refusing)
    assert taken(refusing) == {} and writes(refusing) == before


def test_refused_no_more_than_the_bound(refusing):
    refusing.redis.hset(REFUSED, mapping={f"{n}:ended": 1 for n in range(1, MOST)})
    assert refuse(refusing, "20000:ended", 1, "20001:ended", 1, "7:ended", 1) == 2
    assert refusing.redis.hmget(REFUSED, "20000:ended", "20001:ended", "7:ended") == [
        "1",
        None,
        "2",
    ]


@pytest.mark.parametrize(
    "sentence, pairs",
    [
        ("ARGV: 0 arguments", ()),
        ("field: not COUPON:ANSWER", ("1001", 1)),
        ("field: not COUPON:ANSWER", ("01:ended", 1)),
        ("field: not COUPON:ANSWER", ("writes", 1)),
        ("number: not an integer", ("1001:ended",)),
        *(("number: not an integer", ("1001:ended", bad)) for bad in [*NUMBERS_BAD, 0, 2**32]),
    ],
)
def test_refused_what_is_no_refusal(refusing, sentence, pairs):
    refused(refusing, sentence, lambda c: refuse(c, "7:ended", 1, *pairs) if pairs else refuse(c))


def test_refused_a_key_of_another_type(refusing):
    refusing.redis.set(REFUSED, "x")
    refused(refusing, f"{REFUSED}: not a hash", refuse, "7:ended", 1)
    refused(refusing, f"{REFUSED}: not a hash", taken)
