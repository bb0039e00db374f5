"""verify.lua, terms.lua, fence.lua, expire.lua, place.lua of a new coupon, and the keeper's
lock."""
import pytest
import redis

from ulid import ulid_make

BIG = 2**53 - 1
LOAD = {
    "fence": 5,
    "run_id": None,
    "generation": 3,
    "version": 2,
    "status": "open",
    "total": 100,
    "begin": 1000,
    "end": 2000,
    "limit": 2,
    "issued": 0,
    "late": 0,
}
PLACED = ["placed", 100, 0, 0, 0]
VERIFY = {"fence": 5, "run_id": None, "generation": 1, "seq_seen": 7, "late": 0}
TERMS = {"version": 2, "status": "open", "total": 100, "begin": 0, "end": 0, "limit": 1}


def run(coupon, script, defaults, **changes):
    args = {**defaults, **changes}
    if "run_id" in args and args["run_id"] is None:
        args["run_id"] = coupon.run_id
    keys = keys_of(coupon, script, args.get("generation"))
    return coupon.run(script, *args.values(), keys=keys)


def keys_of(coupon, script, generation=LOAD["generation"]):
    fill = f"{coupon.keys[0]}:fill:{generation}"
    more = {
        "verify": [coupon.seen],
        "place": [coupon.known, coupon.seen, fill + ":users", fill + ":known"],
    }
    return coupon.keys + more.get(script, [])


def load(coupon, **changes):
    """What the keeper does with a coupon that was never in Redis."""
    return run(coupon, "place", LOAD, **changes)


def verify(coupon, **changes):
    return run(coupon, "verify", VERIFY, **changes)


def terms(coupon, **changes):
    return run(coupon, "terms", TERMS, **changes)


def unchanged(coupon, expected, run, *args, **changes):
    before = coupon.snapshot()
    assert run(coupon, *args, **changes) == expected
    assert coupon.snapshot() == before


def refused(coupon, sentence, run, *args, **changes):
    before = coupon.snapshot()
    with pytest.raises(redis.ResponseError) as e:
        run(coupon, *args, **changes)
    assert str(e.value).startswith(f"couponmq: {sentence}"), str(e.value)
    assert coupon.snapshot() == before


# load


def test_load_sets_everything(coupon):
    assert load(coupon) == PLACED
    assert coupon.redis.hgetall(coupon.keys[0]) == {
        "status": "open",
        "total": "100",
        "stock": "100",
        "reserved": "0",
        "begin": "1000",
        "end": "2000",
        "limit": "2",
        "generation": "3",
        "seq": "0",
        "fence": "5",
        "run_id": coupon.run_id,
        "version": "2",
        "late": "0",
    }
    assert list(coupon.snapshot()) == coupon.keys[:1]


def test_loaded_coupon_is_issued(coupon):
    load(coupon, begin=0, end=0)
    a = coupon.issue("1")
    assert (a.verdicts, a.generation, a.seq, a.stock) == ([1], 3, 1, 99)


def test_load_never_refills(coupon):
    load(coupon, begin=0, end=0, total=2)
    coupon.issue("1", "2")
    unchanged(coupon, "current", load)
    unchanged(coupon, "current", load, fence=6, generation=2)
    assert coupon.issue("3").verdicts == [-2]


def test_load_is_fenced(coupon):
    load(coupon, fence=5)
    unchanged(coupon, "fenced", load, fence=4)
    unchanged(coupon, "fenced", load, fence=4, generation=9)
    unchanged(coupon, "current", load, fence=5)


def test_load_without_memory(private_coupon):
    client = private_coupon.redis
    before = private_coupon.snapshot()
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="command not allowed when used memory"):
            load(private_coupon)
        assert private_coupon.snapshot() == before
    finally:
        client.config_set("maxmemory", 0)
    assert load(private_coupon) == PLACED


def test_load_needs_what_is_issued(coupon):
    unchanged(coupon, "gone", load, issued=1)


@pytest.mark.parametrize(
    "changes",
    [{"total": 0}, {"total": BIG}, {"limit": 100}, {"status": "closed"}, {"fence": 0}],
)
def test_load_at_the_bounds(coupon, changes):
    assert load(coupon, **changes)[0] == "placed"


NUMBERS_BAD = ["", "-1", "1.5", "01", "00", "1e3", "0x1", " 1", "nan", "x", BIG + 1, "9" * 30]


@pytest.mark.parametrize(
    "name",
    ["fence", "version", "total", "begin", "end", "limit", "issued", "late"],
)
@pytest.mark.parametrize("value", NUMBERS_BAD)
def test_load_bad_number(coupon, name, value):
    refused(coupon, f"{name}: ", load, **{name: value})


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"generation": 0}, "generation: "),
        ({"version": 0}, "version: "),
        ({"limit": 0}, "limit: "),
        ({"limit": 101}, "limit: "),
        ({"status": "draft"}, "status: "),
        ({"status": ""}, "status: "),
        ({"run_id": "x"}, "run_id: "),
        ({"run_id": "A" * 40}, "run_id: "),
        ({"extra": 1}, "ARGV: "),
    ],
)
def test_load_bad_argument(coupon, changes, sentence):
    refused(coupon, sentence, load, **changes)


# verify


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
    assert coupon.run("report", 1, 8, keys=[coupon.keys[0], coupon.seen]) == 1
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


def test_a_keeper_that_slept_writes_nothing(coupon):
    coupon.put(run_id="0" * 40, seq=7, fence=1)
    assert verify(coupon, fence=9) == "verified"
    unchanged(coupon, "fenced", verify, fence=8, run_id="1" * 40)
    unchanged(coupon, "fenced", load, fence=8)


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


# terms


def test_terms_apply(coupon):
    coupon.put(total=100, stock=60, reserved=10, version=1, limit=1, seq=4)
    before = coupon.redis.hgetall(coupon.keys[0])
    assert (
        terms(coupon, version=2, status="paused", total=150, begin=5, end=9, limit=3) == "applied"
    )
    assert coupon.redis.hgetall(coupon.keys[0]) == {
        **before,
        "version": "2",
        "status": "paused",
        "total": "150",
        "stock": "110",
        "begin": "5",
        "end": "9",
        "limit": "3",
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_terms_only_move_forward(coupon, version):
    coupon.put(version=3)
    unchanged(coupon, "current", terms, version=version, total=500)


def test_terms_skip_a_version(coupon):
    coupon.put(version=3)
    assert terms(coupon, version=10, total=7) == "applied"
    unchanged(coupon, "current", terms, version=9)
    assert (coupon.get("total"), coupon.get("version")) == ("7", "10")


def test_terms_never_below_what_is_taken(coupon):
    coupon.put(total=10, limit=1)
    coupon.issue("1", "2", "3")
    coupon.set(reserved=2, stock=5)
    unchanged(coupon, ["taken", 5], terms, total=4)
    assert terms(coupon, total=5) == "applied"
    assert coupon.get("stock") == "0"
    assert coupon.issue("4").verdicts == [-2]
    assert terms(coupon, version=3, total=6) == "applied"
    assert coupon.issue("4", "5").verdicts == [1, -2]


def test_terms_missing(coupon):
    unchanged(coupon, "missing", terms)


@pytest.mark.parametrize(
    "fields", [{"total": 5, "stock": 6}, {"stock": "-1"}, {"stock": "x"}, {"version": ""}]
)
def test_terms_of_a_corrupt_coupon(coupon, fields):
    coupon.put(**fields)
    refused(coupon, "coupon: ", terms, version=9)


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("version", "version"),
        ("total", "total"),
        ("begin", "begin"),
        ("end", "end"),
        ("limit", "limit"),
    ],
)
@pytest.mark.parametrize("value", NUMBERS_BAD)
def test_terms_bad_number(coupon, name, sentence, value):
    refused(coupon.put(), f"{sentence}: ", terms, **{name: value})


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"version": 0}, "version: "),
        ({"limit": 0}, "limit: "),
        ({"limit": 101}, "limit: "),
        ({"status": "draft"}, "status: "),
        ({"fence": "x"}, "fence: "),
        ({"fence": 1, "extra": 1}, "ARGV: "),
    ],
)
def test_terms_bad_argument(coupon, changes, sentence):
    refused(coupon.put(), sentence, terms, **changes)


def test_terms_of_a_keeper_are_fenced(coupon):
    coupon.put(version=1, fence=5)
    unchanged(coupon, "fenced", terms, fence=4)
    assert terms(coupon, fence=5) == "applied"
    assert terms(coupon, version=3, fence=6) == "applied"
    assert terms(coupon, version=4) == "applied", "couponctl's"
    coupon.set(fence="")
    refused(coupon, "coupon: ", terms, version=9, fence=7)


# fence


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


def test_fence_of_what_is_no_coupon(coupon):
    unchanged(coupon, "missing", lambda c: c.run("fence", 5))
    coupon.redis.set(coupon.keys[0], "x")
    refused(coupon, coupon.keys[0], lambda c: c.run("fence", 5))
    coupon.put(fence="")
    refused(coupon, "coupon: ", lambda c: c.run("fence", 5))
    for wrong in ("-1", "x", "", BIG + 1):
        refused(coupon, "fence: ", lambda c: c.run("fence", wrong))


# expire

EXPIRE = {"fence": 5, "generation": 2, "seq": 3, "keep_ms": 60000}
CLOSED = {"status": "closed", "generation": 2, "seq": 3, "fence": 5}


def expire(coupon, keys=None, **changes):
    keys = (
        [*coupon.keys, coupon.keys[0] + ":known", coupon.keys[0] + ":seen"]
        if keys is None
        else keys
    )
    return coupon.run("expire", *{**EXPIRE, **changes}.values(), keys=keys)


def test_expire_gives_all_keys_the_same_end(coupon):
    coupon.put(**CLOSED)
    coupon.redis.hset(coupon.keys[1], "1", "x")
    coupon.redis.hset(coupon.keys[0] + ":seen", "1", "7")
    before = coupon.time_ms()
    assert expire(coupon, fence=6) == "expires"
    ends = {coupon.redis.execute_command("PEXPIRETIME", key) for key in coupon.snapshot()}
    assert len(coupon.snapshot()) == 3 and len(ends) == 1
    assert before + 60000 <= ends.pop() <= coupon.time_ms() + 60000
    assert coupon.get("fence") == "6"
    coupon.redis.delete(coupon.keys[0] + ":seen")


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
    coupon.redis.set(coupon.keys[0] + ":known", "x")
    refused(coupon, coupon.keys[0] + ":known", expire)
    coupon.redis.delete(coupon.keys[0] + ":known")


# All three


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


def fill_args(coupon):
    fill = f"{coupon.keys[0]}:fill:2"
    record = f"1:{ulid_make()}:0:"
    return ("issued", 10, 60000, 0, "1", record), [fill + ":users", fill + ":known"]


def late_args(coupon):
    outcome = (1, 0, 0, "5", 1, ulid_make(), 0, "", "issued")
    return outcome, [*coupon.keys[:2], coupon.known]


KEEPERS = {
    "place": lambda c, fence: load(c, fence=fence),
    "verify": lambda c, fence: verify(c, fence=fence),
    "terms": lambda c, fence: terms(c, fence=fence),
    "fence": lambda c, fence: c.run("fence", fence),
    "hold": lambda c, fence: c.run("hold", fence, 1),
    "expire": lambda c, fence: expire(c, fence=fence),
    "fill": lambda c, fence: c.run("fill", fence, *fill_args(c)[0], keys=fill_args(c)[1]),
    "late": lambda c, fence: c.run("late", fence, *late_args(c)[0], keys=late_args(c)[1]),
}


@pytest.mark.parametrize("script", KEEPERS)
def test_a_keeper_whose_lock_may_be_lost_writes_nothing(coupon, script):
    """Its lease is over, or has not begun by a clock that was set back."""
    coupon.put(**(CLOSED if script == "expire" else {"seq": 7, "fence": 5}))
    seconds, us = coupon.redis.time()
    now = seconds * 1000 + us // 1000
    wanted = -1 if script == "fill" else "fenced"
    for window in (f"{now - 5000}:{now}", f"{now + 60000}:{now + 65000}"):
        unchanged(coupon, wanted, KEEPERS[script], f"9:{window}")
    reply = KEEPERS[script](coupon, f"9:{now}:{now + 60000}")
    assert (reply[0] if isinstance(reply, list) else reply) in WORDS


WORDS = ("placed", "verified", "applied", "raised", "held", "expires", "ok", 1)


@pytest.mark.parametrize("fence", ["5:0", "5:0:x", "5::9", ":", "5:0:9:9", ":0:9", "5:0:9 "])
def test_malformed_fence_of_the_keeper(coupon, fence):
    refused(coupon.put(), "fence: ", lambda c: c.run("hold", fence, 1))


def test_malformed_fence(coupon):
    coupon.put(seq=7, fence="x")
    refused(coupon, "coupon: its fence", verify)


def test_an_error_tells_its_script(coupon):
    with pytest.raises(redis.ResponseError, match=r"^couponmq: limit: .* \(terms\.lua\)"):
        terms(coupon, limit=0)


# The keeper's lock. Its name is random here, so that a keeper of the same Redis is not disturbed.


@pytest.fixture
def lock(coupon):
    coupon.keys.append("couponmq:keeper:" + coupon.id)
    coupon.lock = coupon.keys[-1]
    return coupon


LEASE_MOST = 600000


def expires_at(coupon):
    return coupon.redis.execute_command("PEXPIRETIME", coupon.lock)


def take(coupon, *args):
    return coupon.run("keeper_take", *args, keys=[coupon.lock])


def renew(coupon, *args):
    return coupon.run("keeper_renew", *args, keys=[coupon.lock])


def release(coupon, *args):
    return coupon.run("keeper_release", *args, keys=[coupon.lock])


def test_take(lock):
    assert take(lock, "me", 5000, LEASE_MOST) == expires_at(lock)
    assert lock.redis.get(lock.lock) == "me"
    assert 0 < lock.redis.pttl(lock.lock) <= 5000
    assert take(lock, "you", 5000, LEASE_MOST) == 0 and lock.redis.get(lock.lock) == "me"


@pytest.mark.parametrize("left_ms", [None, LEASE_MOST + 60000])
def test_take_what_would_last_longer_than_any_lease(lock, left_ms):
    """As after a step back of Redis' clock."""
    lock.redis.set(lock.lock, "dead", px=left_ms)
    assert take(lock, "me", 5000, LEASE_MOST) == expires_at(lock)
    assert lock.redis.get(lock.lock) == "me"
    assert 0 < lock.redis.pttl(lock.lock) <= 5000


def test_renew_by_the_owner(lock):
    lock.redis.set(lock.lock, "me", px=5000)
    assert renew(lock, "me", 60000) == expires_at(lock)
    assert 50000 < lock.redis.pttl(lock.lock) <= 60000
    assert lock.redis.get(lock.lock) == "me"


def test_renew_counts_milliseconds(lock):
    lock.redis.set(lock.lock, "me")
    renew(lock, "me", 900)
    assert 0 < lock.redis.pttl(lock.lock) <= 900


def test_release_by_the_owner(lock):
    lock.redis.set(lock.lock, "me", px=60000)
    assert release(lock, "me") == 1
    assert not lock.redis.exists(lock.lock)


@pytest.mark.parametrize("token", ["you", "m", "me2", "ME"])
def test_not_the_owner(lock, token):
    lock.redis.set(lock.lock, "me")
    unchanged(lock, 0, renew, token, 60000)
    unchanged(lock, 0, release, token)
    assert lock.redis.get(lock.lock) == "me"


def test_lock_is_gone(lock):
    unchanged(lock, 0, renew, "me", 60000)
    unchanged(lock, 0, release, "me")


def test_lock_bad_arguments(lock):
    lock.redis.set(lock.lock, "me")
    for ttl in ("", "0", "-1", "1.5", "1e3", "01", "x", "86400001", "9" * 30):
        refused(lock, "ttl_ms: ", renew, "me", ttl)
        refused(lock, "ttl_ms: ", take, "me", ttl, LEASE_MOST)
        refused(lock, "most_ms: ", take, "me", 1000, ttl)
    for token in ("", "a b", "\n", "\xff", "x" * 129):
        refused(lock, "token: ", renew, token, 1000)
        refused(lock, "token: ", take, token, 1000, LEASE_MOST)
        refused(lock, "token: ", release, token)
    for args in ((), ("me",), ("me", 1, 2)):
        refused(lock, "1 key and 2 arguments", renew, *args)
    refused(lock, "1 key and 3 arguments", take, "me", 1000)
    for args in ((), ("me", 1)):
        refused(lock, "1 key and 1 argument", release, *args)


def test_lock_of_another_type(lock):
    lock.redis.hset(lock.lock, "me", "me")
    for call in (
        lambda c: take(c, "me", 1000, LEASE_MOST),
        lambda c: renew(c, "me", 1000),
        lambda c: release(c, "me"),
    ):
        refused(lock, lock.lock + ": WRONGTYPE", call)
