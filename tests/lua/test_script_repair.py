"""repair.lua: numbers are put right that are still those that were compared."""
import pytest

from keeper_scripts import NUMBERS_BAD, refused, unchanged
from script_coupon import fence_of

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
