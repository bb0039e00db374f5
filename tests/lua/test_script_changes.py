"""changes.lua: the copy of the numbers of change_count only grows."""
import pytest
import redis

from script_coupon import script_text

KEY = "couponmq:test:changes"
BIG = 2**53 - 1


class Copy:
    def __init__(self, client):
        self.redis = client

    def add(self, *args, keys=(KEY,)):
        return self.redis.eval(script_text("changes"), len(keys), *keys, *args)

    def all(self):
        return self.redis.hgetall(KEY)


@pytest.fixture
def copy(private_redis):
    yield Copy(private_redis)
    private_redis.delete(KEY)


def test_numbers_are_copied(copy):
    assert copy.add(0, 1, 63, BIG) == "ok"
    assert copy.all() == {"0": "1", "63": str(BIG)}


def test_a_number_only_grows(copy):
    copy.add(7, 5, 8, 100)
    assert copy.add(7, 4, 8, 100) == "ok"
    assert copy.all() == {"7": "5", "8": "100"}
    copy.add(8, 101, 7, 10, 7, 9)
    assert copy.all() == {"7": "10", "8": "101"}, "compared as numbers"


def test_a_malformed_number_is_replaced(copy):
    copy.redis.hset(KEY, "7", "x")
    copy.add(7, 5)
    assert copy.all() == {"7": "5"}


def test_without_memory(copy):
    copy.add(7, 5)
    copy.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="used memory"):
            copy.redis.hset(KEY, "7", "6")
        assert copy.add(7, 6, 8, 1) == "ok"
    finally:
        copy.redis.config_set("maxmemory", 0)
    assert copy.all() == {"7": "6", "8": "1"}


@pytest.mark.parametrize(
    "args, sentence",
    [
        ((), "ARGV: "),
        ((1,), "ARGV: "),
        ((1, 2, 3), "ARGV: "),
        ((0, 1) * 65, "ARGV: "),
        ((64, 1), "stripe: "),
        ((-1, 1), "stripe: "),
        (("01", 1), "stripe: "),
        ((1, -1), "number: "),
        ((1, "x"), "number: "),
        ((1, BIG + 1), "number: "),
        ((1, 9, 2, ""), "number: "),
    ],
)
def test_bad_arguments(copy, args, sentence):
    with pytest.raises(redis.ResponseError, match=f"^couponmq: {sentence}"):
        copy.add(*args)
    assert copy.all() == {}


def test_bad_keys(copy):
    for keys in ((), (KEY, KEY)):
        with pytest.raises(redis.ResponseError, match="^couponmq: KEYS: "):
            copy.add(1, 2, keys=keys)


def test_a_key_of_another_type_is_replaced(copy):
    copy.redis.set(KEY, "x")
    assert copy.add(1, 2) == "ok"
    assert copy.all() == {"1": "2"}
