"""verify.lua: a coupon is bound to the Redis process that has all of it."""
import pytest

from keeper_scripts import NUMBERS_BAD, refused, unchanged, verify


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
