"""ask.lua: coupons that clients ask for in vain."""

import pytest

from keeper_scripts import refused, unchanged

MOST = 10_000


def ask(coupon, asked="1001"):
    return coupon.run("ask", asked, keys=["couponmq:asked"])


@pytest.fixture
def coupon(private_coupon):
    private_coupon.keys.append("couponmq:asked")
    private_coupon.redis.delete("couponmq:asked")
    return private_coupon


def test_noted_once_and_for_a_while(coupon):
    assert ask(coupon) == ask(coupon) == ask(coupon, str(2**63 - 1)) == 1
    assert coupon.redis.smembers("couponmq:asked") == {"1001", str(2**63 - 1)}
    assert 0 < coupon.redis.pttl("couponmq:asked") <= 10_000


def test_no_more_than_the_bound(coupon):
    coupon.redis.sadd("couponmq:asked", *range(1, MOST + 1))
    unchanged(coupon, 0, ask, asked="20000")


@pytest.mark.parametrize("wrong", ("", "0", "01", "-1", "1.5", "x", "1" * 20))
def test_what_is_no_id(coupon, wrong):
    refused(coupon, "id: ", ask, asked=wrong)


def test_a_key_of_another_type(coupon):
    coupon.redis.set("couponmq:asked", "x")
    refused(coupon, "couponmq:asked: ", ask)
