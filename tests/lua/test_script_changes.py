"""changes.lua: the copy of the numbers of change_count only grows, and belongs to one
installation."""
import pytest
import redis

from script_coupon import script_text

KEY = "couponmq:test:changes"
BIG = 2**53 - 1
OWN, OTHER = ("00000000-0000-4000-8000-%012d" % i for i in (1, 2))


class Copy:
    def __init__(self, client):
        self.redis = client

    def run(self, *args, keys=(KEY,)):
        return self.redis.eval(script_text("changes"), len(keys), *keys, *args)

    def add(self, *numbers):
        return self.run(OWN, "none", *numbers)

    def installation(self):
        return self.redis.hget(KEY, "installation")

    def all(self):
        numbers = self.redis.hgetall(KEY)
        numbers.pop("installation", None)
        return numbers


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


def test_a_redis_without_an_id_is_claimed(copy):
    copy.redis.hset(KEY, "7", 5)
    assert copy.run(OWN, "", 7, 6) == "unclaimed"
    assert copy.run(OWN, OTHER) == "ok", "an id to take over claims it, too"
    assert copy.installation() == OWN
    copy.redis.hdel(KEY, "installation")
    assert copy.run(OWN, "none") == "ok"
    assert (copy.installation(), copy.all()) == (OWN, {"7": "5"})
    assert copy.run(OWN, "", 7, 6) == "ok"
    assert copy.all() == {"7": "6"}


@pytest.mark.parametrize("claim", ["", "none", "00000000-0000-4000-8000-000000000003"])
def test_nothing_is_copied_to_another_installation(copy, claim):
    copy.run(OTHER, "none", 7, 5)
    before = copy.redis.dump(KEY)
    assert copy.run(OWN, claim, 7, 6) == "foreign"
    assert copy.redis.dump(KEY) == before


def test_an_installation_is_taken_over(copy):
    copy.run(OTHER, "none", 7, 5)
    assert copy.run(OWN, OTHER, 8, 1) == "ok"
    assert (copy.installation(), copy.all()) == (OWN, {"7": "5", "8": "1"})
    assert copy.run(OTHER, "none") == "foreign"
    assert copy.run(OWN, OTHER) == "ok", "repeated"


@pytest.mark.parametrize(
    "args, sentence",
    [
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
    assert not copy.redis.exists(KEY)


@pytest.mark.parametrize(
    "args, sentence",
    [
        ((), "ARGV: "),
        ((OWN,), "ARGV: "),
        (("", ""), "installation: "),
        ((OWN + "0", ""), "installation: "),
        ((OWN.replace("-", "0"), ""), "installation: "),
        ((OWN, "all"), "claim: "),
        ((OWN, OWN[1:]), "claim: "),
    ],
)
def test_bad_ids(copy, args, sentence):
    with pytest.raises(redis.ResponseError, match=f"^couponmq: {sentence}"):
        copy.run(*args)
    assert not copy.redis.exists(KEY)


def test_bad_keys(copy):
    for keys in ((), (KEY, KEY)):
        with pytest.raises(redis.ResponseError, match="^couponmq: KEYS: "):
            copy.run(OWN, "none", 1, 2, keys=keys)


def test_a_key_of_another_type_has_no_id(copy):
    copy.redis.set(KEY, "x")
    assert copy.run(OWN, "", 1, 2) == "unclaimed"
    assert copy.add(1, 2) == "ok"
    assert (copy.installation(), copy.all()) == (OWN, {"1": "2"})
