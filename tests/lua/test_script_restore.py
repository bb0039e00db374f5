"""restore.lua: messages that Redis has lost come back to the outbox of their coupon."""

import pytest

from keeper_scripts import load_held, refused
from ulid import ulid_make

BODY = '{"v":1}'


def keys_of(coupon):
    return [coupon.keys[0], coupon.keys[2], coupon.seen, coupon.dead]


def restore(coupon, *messages):
    """A message is batch, generation, seq."""
    words = [word for message in messages for word in (*message, BODY)]
    return coupon.run("restore", *words, keys=keys_of(coupon))


def hash_set(coupon, **fields):
    coupon.redis.hset(coupon.keys[0], mapping=fields)


def present(coupon, **fields):
    begun = {"generation": 2, "seq": 5, "stock": 10, "reserved": 0, "total": 20, "high:1": 3}
    hash_set(coupon, **{**begun, **fields})


@pytest.mark.parametrize("generation, seq, is_lost", [(2, 5, 0), (2, 1, 0), (2, 6, 1), (3, 1, 1)])
def test_what_the_numbers_do_not_cover_is_lost(generation, seq, is_lost, coupon):
    present(coupon)
    batch = ulid_make()
    assert restore(coupon, (batch, generation, seq)) == is_lost
    assert coupon.outbox() == ({batch: BODY} if is_lost else {})
    assert coupon.redis.hgetall(coupon.seen) == ({str(generation): str(seq)} if is_lost else {})


def test_of_an_older_generation_the_units_are_reserved(coupon):
    present(coupon)
    assert restore(coupon, (ulid_make(), 1, 7)) == 1
    fields = coupon.redis.hgetall(coupon.keys[0])
    assert [fields[name] for name in ("high:1", "stock", "reserved", "seq")] == ["7", "6", "4", "5"]


def test_to_a_placeholder(coupon):
    present(coupon, placeholder=1)
    batch = ulid_make()
    assert restore(coupon, (batch, 2, 1)) == 1
    assert coupon.redis.hgetall(coupon.seen) == {"2": "1"}
    assert restore(coupon, (batch, 2, 1)) == 0, "it is there"


def test_without_the_coupon_nothing_is_written(coupon):
    assert restore(coupon, (ulid_make(), 2, 1)) == "missing"
    assert coupon.outbox() == {} and coupon.redis.hgetall(coupon.seen) == {}


def test_a_coupon_that_expires_has_all_outcomes(coupon):
    present(coupon)
    coupon.redis.pexpire(coupon.keys[0], 60000)
    assert restore(coupon, (ulid_make(), 2, 9)) == "expires"
    assert coupon.outbox() == {}


def test_a_dead_letter_is_the_operators(coupon):
    present(coupon)
    dead, other = ulid_make(), ulid_make()
    coupon.redis.sadd(coupon.dead, dead)
    assert restore(coupon, (dead, 2, 8), (other, 2, 9)) == 1
    assert set(coupon.outbox()) == {other}


def test_an_outbox_that_a_rebuild_keeps_does_not_expire(coupon):
    coupon.redis.hset(coupon.keys[2], ulid_make(), BODY)
    coupon.redis.pexpire(coupon.keys[2], 60000)
    load_held(coupon)
    assert coupon.redis.pttl(coupon.keys[2]) == -1


@pytest.mark.parametrize(
    "words, sentence",
    [
        ((), "ARGV"),
        (("x", 1, 1, BODY), "batch: not a ULID"),
        ((ulid_make(), 0, 1, BODY), "generation: not an integer"),
        ((ulid_make(), 1, 0, BODY), "seq: not an integer"),
        ((ulid_make(), 1, 1, ""), "body: empty"),
        ((ulid_make(), 1, 1, BODY) * 17, "ARGV"),
    ],
)
def test_wrong_arguments(words, sentence, coupon):
    present(coupon)

    def run(coupon):
        return coupon.run("restore", *words, keys=keys_of(coupon))

    refused(coupon, sentence, run)
