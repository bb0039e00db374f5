"""issue.lua with several parts in a call: each is decided as if it came alone."""

import json

import pytest
import redis

from script_coupon import LIMIT_REACHED, OUT_OF_STOCK, UNBOUNDED, Coupon
from ulid import ulid_make
from user_ids import HOSTILE


@pytest.fixture
def coupons(shared_redis):
    made = [Coupon(shared_redis).put(total=10 + n, limit=2) for n in range(4)]
    yield made
    for coupon in made:
        coupon.delete()


def issue(parts):
    """The replies to these parts: (coupon, arguments of Coupon.part)."""
    first = parts[0][0]
    return first.run(
        "issue",
        first.run_id,
        UNBOUNDED,
        *(word for _, arguments in parts for word in arguments),
        keys=[key for coupon, _ in parts for key in coupon.keys],
    )


def test_each_has_its_reply(coupons):
    users = (["1"], ["1", "1", "1"], ["2", ("3", "k")], ["9"] * 2)
    batches = [ulid_make() for _ in coupons]
    replies = issue(
        [
            (coupon, coupon.part(*asked, batch=batch))
            for coupon, asked, batch in zip(coupons, users, batches)
        ]
    )
    assert [reply[7:] for reply in replies] == [[1], [1, 2, LIMIT_REACHED], [1, 1], [1, 2]]
    assert [reply[:4] for reply in replies] == [
        ["ok", 1, 1, 9],
        ["ok", 1, 2, 9],
        ["ok", 1, 2, 10],
        ["ok", 1, 2, 11],
    ]
    assert len({reply[4] for reply in replies}) == 1, "one reading of the clock"
    for coupon, reply, batch in zip(coupons, replies, batches):
        assert coupon.outbox() == {batch: reply[6]}
        assert coupon.get("stock") == str(reply[3])


def test_two_parts_of_one_coupon(coupons):
    coupon = coupons[0].put(total=3, limit=2)
    replies = issue([(coupon, coupon.part("1", "2")), (coupon, coupon.part("1", "3"))])
    assert [reply[7:] for reply in replies] == [[1, 1], [2, OUT_OF_STOCK]]
    assert (coupon.get("stock"), coupon.get("seq"), len(coupon.outbox())) == ("0", "3", 2)


def needs_escaping(user):
    return '"' in user or "\\" in user


def test_each_escapes_its_own_users(coupons):
    """Parts whose users need it in JSON, around parts whose users do not."""
    escaped = [user for user in HOSTILE if needs_escaping(user)]
    plain = [user for user in HOSTILE if not needs_escaping(user)]
    half = len(escaped) // 2
    lists = [escaped[:half], plain, escaped[half:], ['a"', "a", "a\\"]]
    for order in (lists, lists[::-1]):
        for coupon in coupons:
            coupon.put(total=len(HOSTILE))
        batches = [ulid_make() for _ in coupons]
        replies = issue(
            [
                (coupon, coupon.part(*users, batch=batch))
                for coupon, users, batch in zip(coupons, order, batches)
            ]
        )
        for coupon, users, batch, reply in zip(coupons, order, batches, replies):
            assert reply[7:] == [1] * len(users)
            assert coupon.outbox() == {batch: reply[6]}
            message = json.loads(reply[6])
            assert (message["coupon"], message["batch"]) == (coupon.id, batch)
            assert message["receives"] == [[user, 1, ""] for user in users]
            assert coupon.users() == {
                user: f"1:{batch}:{index}:" for index, user in enumerate(users)
            }


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (lambda coupon: coupon.set(stock="x"), "coupon: a count or time"),
        (lambda coupon: coupon.set(limit=0), "coupon: generation or limit"),
        (lambda coupon: coupon.redis.hdel(coupon.keys[0], "end"), "coupon: a field is missing"),
        (lambda coupon: coupon.redis.set(coupon.keys[2], "x"), "outbox: WRONGTYPE"),
        (lambda coupon: coupon.redis.hset(coupon.keys[1], "1", "x"), "users: malformed records"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_malformed_coupon_fails_alone(coupons, spoil, sentence, place):
    spoil(coupons[place])
    before = coupons[place].snapshot()
    replies = issue([(coupon, coupon.part("1")) for coupon in coupons])
    assert isinstance(replies[place], redis.ResponseError)
    assert str(replies[place]).startswith(f"couponmq: {sentence}")
    assert coupons[place].snapshot() == before
    assert [reply[7:] for reply in replies if not isinstance(reply, Exception)] == [[1]] * 3


def test_what_is_wrong_with_one_stays_with_it(coupons):
    coupons[0].set(run_id="0" * 40)
    coupons[1].delete()
    replies = issue(
        [
            (coupons[0], coupons[0].part("1")),
            (coupons[1], coupons[1].part("1")),
            (coupons[2], coupons[2].part("1", seen=(1, 5))),
            (coupons[3], coupons[3].part("a b")),
            (coupons[3], coupons[3].part("1")),
        ]
    )
    assert replies[:3] == [["unverified", 1, 0], ["missing", 0, 0], ["behind", 1, 0]]
    assert str(replies[3]).startswith("couponmq: user: ")
    assert replies[4][7:] == [1]


def test_a_wrong_count_decides_nothing(coupons):
    before = [coupon.snapshot() for coupon in coupons]
    with pytest.raises(redis.ResponseError, match="^couponmq: count: "):
        issue([(coupon, coupon.part("1", count=1 - n)) for n, coupon in enumerate(coupons)])
    assert [coupon.snapshot() for coupon in coupons] == before


def test_without_memory_none_is_decided(private_redis):
    coupons = [Coupon(private_redis).put() for _ in range(3)]
    coupons[0].issue("9")
    before = [coupon.snapshot() for coupon in coupons]
    private_redis.config_set("maxmemory", "1")
    try:
        replies = issue([(coupon, coupon.part("1")) for coupon in coupons])
    finally:
        private_redis.config_set("maxmemory", "0")
    assert ["maxmemory" in str(reply) for reply in replies] == [True] * 3
    assert [coupon.snapshot() for coupon in coupons] == before
