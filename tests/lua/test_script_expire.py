"""expire.lua: the keys of a closed coupon expire, all at the same time."""
import pytest

from keeper_scripts import CLOSED, expire, refused, unchanged


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
