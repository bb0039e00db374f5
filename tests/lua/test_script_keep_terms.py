"""keep_terms.lua: the row of a coupon, for a PostgreSQL that is put back to an earlier moment."""
import pytest

from keeper_scripts import NUMBERS_BAD, refused, unchanged

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
