"""What the scripts of the keeper have in common: the fence, and the checks of types, keys and
arguments."""
import pytest
import redis

from keeper_scripts import (
    BIG,
    CLOSED,
    LOAD,
    TERMS,
    VERIFY,
    expire,
    keys_of,
    load,
    refused,
    terms,
    unchanged,
    verify,
)
from ulid import ulid_make

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


def test_fence_of_what_is_no_coupon(coupon):
    unchanged(coupon, "missing", lambda c: c.run("fence", 5))
    coupon.redis.set(coupon.keys[0], "x")
    refused(coupon, coupon.keys[0], lambda c: c.run("fence", 5))
    coupon.put(fence="")
    refused(coupon, "coupon: ", lambda c: c.run("fence", 5))
    for wrong in ("-1", "x", "", BIG + 1):
        refused(coupon, "fence: ", lambda c: c.run("fence", wrong))


def test_a_keeper_that_slept_writes_nothing(coupon):
    coupon.put(run_id="0" * 40, seq=7, fence=1)
    assert verify(coupon, fence=9) == "verified"
    unchanged(coupon, "fenced", verify, fence=8, run_id="1" * 40)
    unchanged(coupon, "fenced", load, fence=8)


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
