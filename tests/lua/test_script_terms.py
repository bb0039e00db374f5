"""The terms of a coupon: place.lua of one that was never in Redis, and terms.lua."""

import pytest
import redis

from keeper_scripts import BIG, load, load_held, NUMBERS_BAD, PLACED, refused, terms, unchanged


# place.lua of a coupon that was never in Redis.


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


# terms.lua


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


@pytest.mark.parametrize("total, stock", [(4, 1), (5, 2), (7, 2)])
def test_a_greater_total_is_no_stock_before_a_rebuild_that_is_due(coupon, total, stock):
    coupon.put(total=5, stock=2, rebuild=1)
    assert terms(coupon, total=total, status="paused") == "applied"
    assert [coupon.get(name) for name in ("total", "stock", "status", "rebuild")] == [
        str(total),
        str(stock),
        "paused",
        "1",
    ]


@pytest.mark.parametrize("displaced, rebuild", [({}, None), ({"displaced": 1}, "1")])
def test_a_rebuild_stays_due_when_all_is_taken(coupon, displaced, rebuild):
    """A voided receive holds its slot until then."""
    coupon.put(total=5, stock=2, lost=1, rebuild=1, **displaced)
    assert terms(coupon, total=2) == "applied"
    assert (coupon.get("lost"), coupon.get("rebuild")) == (None, rebuild)


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
