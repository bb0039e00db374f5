"""keeper_take.lua, keeper_renew.lua and keeper_release.lua: the keeper's lock. Its name is random
here, so that a keeper of the same Redis is not disturbed."""
import pytest

from keeper_scripts import refused, unchanged


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
