"""place.lua of a coupon that was never in Redis."""
import pytest
import redis

from keeper_scripts import BIG, NUMBERS_BAD, PLACED, load, load_held, refused, unchanged


def test_load_sets_everything(coupon):
    assert load_held(coupon) == PLACED
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
        "revocation": "0",
    }
    assert list(coupon.snapshot()) == coupon.keys[:1]


def test_loaded_coupon_is_issued(coupon):
    load_held(coupon, begin=0, end=0)
    a = coupon.issue("1")
    assert (a.verdicts, a.generation, a.seq, a.stock) == ([1], 3, 1, 99)


def test_load_never_refills(coupon):
    load_held(coupon, begin=0, end=0, total=2)
    coupon.issue("1", "2")
    unchanged(coupon, "current", load)
    unchanged(coupon, "current", load, fence=6, generation=2)
    assert coupon.issue("3").verdicts == [-2]


def test_load_is_fenced(coupon):
    load_held(coupon, fence=5)
    unchanged(coupon, "fenced", load, fence=4)
    unchanged(coupon, "fenced", load, fence=4, generation=9)
    unchanged(coupon, "current", load, fence=5)


def test_load_without_memory(private_coupon):
    client = private_coupon.redis
    before = private_coupon.snapshot()
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="command not allowed when used memory"):
            load_held(private_coupon)
        assert private_coupon.snapshot() == before
    finally:
        client.config_set("maxmemory", 0)
    assert load_held(private_coupon) == PLACED


def test_load_needs_what_is_issued(coupon):
    unchanged(coupon, "gone", load, issued=1)
    coupon.run("hold", 5, 1)
    unchanged(coupon, "gone", load, issued=1)


def test_load_needs_the_hold(coupon):
    """Redis was emptied meanwhile: a revocation has left no trace."""
    unchanged(coupon, "gone", load)
    coupon.put(fence=5)
    unchanged(coupon, "gone", load)
    coupon.run("hold", 5, 1)
    assert load(coupon) == PLACED


@pytest.mark.parametrize(
    "changes",
    [{"total": 0}, {"total": BIG}, {"limit": 100}, {"status": "closed"}, {"fence": 0}],
)
def test_load_at_the_bounds(coupon, changes):
    assert load_held(coupon, **changes)[0] == "placed"


@pytest.mark.parametrize(
    "name",
    ["fence", "version", "total", "begin", "end", "limit", "issued", "late", "revocation"],
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
