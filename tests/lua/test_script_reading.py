"""user_state.lua and coupon_state.lua: the queries of the read operations."""
import pytest
import redis

OTHER_RUN = "0" * 40


def user_state(coupon, user, seen=(0, 0), run_id=None):
    before = coupon.snapshot()
    reply = coupon.run("user_state", user, run_id or coupon.run_id, *seen, keys=coupon.keys[:2])
    assert coupon.snapshot() == before
    return reply


def test_user_state_tells_the_records(coupon):
    coupon.put(limit=2)
    batch = coupon.issue(("42", "k"), "42").message["batch"]
    assert user_state(coupon, 42) == [f"1:{batch}:0:k\n2:{batch}:1:", "complete"]
    assert user_state(coupon, 43) == [None, "complete"]


@pytest.mark.parametrize(
    "seen, word",
    [
        ((1, 1), "complete"),
        ((0, 99), "complete"),
        ((1, 2), "behind"),
        ((2, 0), "behind"),
        ((2**53 - 1, 0), "behind"),
    ],
)
def test_user_state_behind_what_the_gateway_has_seen(coupon, seen, word):
    coupon.put()
    coupon.issue("42")
    assert user_state(coupon, 43, seen=seen) == [None, word]


@pytest.mark.parametrize(
    "seen, word",
    [((1, 7), "complete"), ((1, 8), "behind"), ((2, 0), "complete"), ((3, 99), "complete")],
)
def test_user_state_of_a_rebuilt_coupon(coupon, seen, word):
    coupon.put(generation=4)
    coupon.set(**{"high:1": 7})
    assert user_state(coupon, 43, seen=seen) == [None, word]


def test_user_state_of_another_redis_process(coupon):
    coupon.put()
    batch = coupon.issue("42").message["batch"]
    coupon.set(run_id=OTHER_RUN)
    assert user_state(coupon, 42) == [f"1:{batch}:0:", "unverified"]
    assert user_state(coupon, 43) == [None, "unverified"]


def test_user_state_while_receives_of_an_older_generation_are_in_flight(coupon):
    coupon.put(stock=99, reserved=1)
    assert user_state(coupon, 43) == [None, "reserved"]
    coupon.set(reserved=0)
    assert user_state(coupon, 43) == [None, "complete"]
    coupon.set(stock=0)
    assert user_state(coupon, 43) == [None, "complete"]
    coupon.set(generation=2)
    assert user_state(coupon, 43) == [
        None,
        "reserved",
    ], "more may be in flight than there was stock for"


def test_user_state_just_after_lost_data(coupon):
    coupon.put(loss_at=coupon.time_ms() - 1000)
    assert user_state(coupon, 43) == [None, "reserved"], "gateways may still report receives"
    for loss_at in (coupon.time_ms() - 2500, coupon.time_ms() + 60_000):
        coupon.set(loss_at=loss_at)
        assert user_state(coupon, 43) == [None, "complete"], "also if the clock was set back"


def test_user_state_without_the_coupon(coupon):
    assert user_state(coupon, 43) == [None, "missing"]
    coupon.redis.hset(coupon.keys[1], "42", "1:01ARZ3NDEKTSV4RRFFQ69G5FAV:0:")
    assert user_state(coupon, 42) == ["1:01ARZ3NDEKTSV4RRFFQ69G5FAV:0:", "missing"]


def test_user_state_of_keys_that_are_not_ours(coupon):
    coupon.put()
    coupon.redis.set(coupon.keys[1], "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        user_state(coupon, 42)


def coupon_state(coupon, seen=(0, 0), run_id=None):
    before = coupon.snapshot()
    reply = coupon.run("coupon_state", run_id or coupon.run_id, *seen, keys=coupon.keys[:1])
    assert coupon.snapshot() == before
    assert len(reply) == 8 and abs(int(reply[7]) - coupon.time_ms()) < 60_000
    return reply[:7]


def test_coupon_state(coupon):
    assert coupon_state(coupon, seen=(3, 7)) == [None] * 7
    coupon.put(total=10, stock=7, limit=2, begin=1000, end=2000)
    terms = ["10", "7", "2", "1000", "2000", coupon.get("version")]
    assert coupon_state(coupon) == ["open", *terms]
    assert coupon_state(coupon, run_id=OTHER_RUN) == ["unverified", *terms], "of another process"
    for field in ("generation", "seq"):
        was = coupon.get(field)
        coupon.redis.hdel(coupon.keys[0], field)
        assert coupon_state(coupon) == ["unverified", *terms]
        coupon.set(**{field: was})


@pytest.mark.parametrize(
    "seen, word",
    [
        ((0, 0), "open"),
        ((4, 1), "open"),
        ((4, 2), "behind"),
        ((5, 0), "behind"),
        ((1, 7), "open"),
        ((1, 8), "behind"),
        ((2, 99), "open"),
    ],
)
def test_coupon_state_behind_what_the_gateway_has_seen(coupon, seen, word):
    coupon.put(generation=4)
    coupon.issue("42")
    coupon.set(**{"high:1": 7})
    assert coupon_state(coupon, seen=seen)[0] == word


def test_coupon_state_just_after_lost_data(coupon):
    coupon.put(loss_at=coupon.time_ms() - 1000)
    assert coupon_state(coupon)[0] == "counting", "gateways may still report receives"
    assert coupon_state(coupon, seen=(1, 8))[0] == "behind"
    for loss_at in (coupon.time_ms() - 2500, coupon.time_ms() + 60_000):
        coupon.set(loss_at=loss_at)
        assert coupon_state(coupon)[0] == "open", "also if the clock was set back"
