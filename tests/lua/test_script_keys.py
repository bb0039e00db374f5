"""keys.lua: what Redis has of API keys only grows, whoever calls and in whatever order."""
import itertools
import json
import random
import uuid

import pytest
import redis

from keeper_scripts import NUMBERS_BAD
from script_coupon import script_text
from seed import seeds

ID, OTHER = "0a1b2c3d4e", "zzzzzzzzzz"
OWN, FOREIGN = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


def record(version, key=ID, revoked=False, **members):
    return json.dumps({"id": key, "version": version, "revoked": revoked, "rate": None, **members})


class Keys:
    """A copy of its own."""

    def __init__(self, client):
        self.redis = client
        name = f"test:{random.getrandbits(64):x}"
        self.keys, self.changes = f"{name}:keys", f"{name}:changes"
        self.run = client.register_script(script_text("keys"))
        client.hset(self.changes, "installation", OWN)

    def write(self, *records, source=0, to=None, installation=OWN):
        if to is None:
            to = max([source] + [json.loads(text)["version"] for text in records])
        return self.call(installation, source, to, *records)

    def call(self, *args, keys=None):
        return self.run([self.keys, self.changes] if keys is None else keys, args)

    def version(self):
        return int(self.redis.hget(self.keys, "version") or 0)

    def of(self, key=ID):
        text = self.redis.hget(self.keys, key)
        return text and json.loads(text)

    def dump(self):
        return [self.redis.dump(key) for key in (self.keys, self.changes)]


@pytest.fixture
def keys(shared_redis):
    made = Keys(shared_redis)
    yield made
    shared_redis.delete(made.keys, made.changes)


def refused(keys, error, *args, names=None):
    before = keys.dump()
    with pytest.raises(redis.ResponseError, match="^couponmq: " + error):
        keys.call(*args, keys=names)
    assert keys.dump() == before


def test_records_are_written_as_they_are(keys):
    first, second = record(3, name="é", coupons=["1"]), record(5, OTHER, revoked=True)
    assert keys.write(first, second) == ["ok", 5]
    assert keys.redis.hget(keys.keys, ID) == first.encode().decode("latin-1")
    assert keys.of(OTHER)["revoked"] is True
    assert keys.version() == 5


def test_only_a_lower_version_is_replaced(keys):
    keys.write(record(5, rate=5))
    for version in (5, 4, 1):
        assert keys.write(record(version, rate=9)) == ["ok", 5]
        assert keys.of()["rate"] == 5
    assert keys.write(record(6, rate=6)) == ["ok", 6]
    assert keys.of()["rate"] == 6


def test_revoked_stays_revoked(keys):
    """Whatever the version of who says otherwise."""
    keys.write(record(5, revoked=True))
    assert keys.write(record(9)) == ["ok", 9]
    assert keys.of() == json.loads(record(5, revoked=True))
    keys.write(record(10, revoked=True))
    assert keys.of()["version"] == 10


def test_revoked_by_a_lower_version(keys):
    """A PostgreSQL that was put back has taken the numbers after that anew."""
    keys.write(record(9))
    assert keys.write(record(6, revoked=True)) == ["ok", 9]
    assert keys.of()["revoked"] is True
    keys.write(record(5, revoked=True))
    assert keys.of()["version"] == 6


def test_version_never_falls(keys):
    keys.write(record(9))
    assert keys.write(record(4, OTHER), to=4) == ["ok", 9]
    assert keys.write(source=0, to=8) == ["ok", 9]
    assert keys.version() == 9
    assert keys.of(OTHER)["version"] == 4


def test_version_grows_without_records(keys):
    """PostgreSQL has used numbers for nothing."""
    assert keys.write(to=4) == ["ok", 4]
    assert keys.write(source=4, to=5) == ["ok", 5]


def test_version_grows_only_where_it_has_all_before(keys):
    """Redis was emptied between two pieces, or a caller was faster than the one before it."""
    assert keys.write(record(12), source=10) == ["ok", 0]
    assert keys.of()["version"] == 12
    assert keys.redis.hkeys(keys.keys) == [ID]
    assert keys.write(record(3, OTHER), to=10) == ["ok", 10]
    assert keys.write(record(12), source=11) == ["ok", 10]
    assert keys.write(record(12), source=10) == ["ok", 12]
    assert keys.write(source=5, to=20) == ["ok", 20]


def test_in_any_order_the_end_is_the_same(keys):
    texts = [record(2), record(5, rate=1), record(7, rate=2), record(6, revoked=True)]
    for order in itertools.permutations(texts):
        keys.redis.delete(keys.keys)
        for text in order:
            keys.write(text)
        assert (keys.of()["version"], keys.of()["revoked"]) == (6, True), order
        assert keys.version() == 7


@pytest.mark.parametrize("seed", seeds(20))
def test_sequence(keys, seed):
    """Random calls, against a model."""
    chance = random.Random(seed)
    known, version = {}, 0
    ids = [f"{n:010}" for n in range(5)]
    for _ in range(60):
        source = chance.randrange(20)
        to = source + chance.randrange(1, 10)
        calls = {
            key: (chance.random() < 0.1, chance.randint(source + 1, to))
            for key in chance.sample(ids, chance.randrange(4))
        }
        for key, rank in calls.items():
            known[key] = max(known.get(key, rank), rank)
        if source <= version < to:
            version = to
        texts = [record(number, key, gone) for key, (gone, number) in calls.items()]
        assert keys.write(*texts, source=source, to=to) == ["ok", version], seed
        there = {key: keys.of(key) for key in known}
        assert known == {k: (r["revoked"], r["version"]) for k, r in there.items()}, seed


@pytest.mark.parametrize(
    "junk",
    ["", "x", "{", "[]", "1", "{}", record(9, OTHER), record("9"), record(9, revoked=None)],
)
def test_what_is_no_record_is_replaced(keys, junk):
    keys.redis.hset(keys.keys, ID, junk)
    assert keys.write(record(1)) == ["ok", 1]
    assert keys.of()["version"] == 1


@pytest.mark.parametrize("junk", ["", "x", "-1", "1.5", "9" * 20])
def test_a_version_that_is_no_number(keys, junk):
    keys.redis.hset(keys.keys, "version", junk)
    assert keys.write(record(3), source=2) == ["ok", 0]
    assert keys.write(record(3)) == ["ok", 3]


def test_of_another_installation(keys):
    keys.redis.hset(keys.changes, "installation", FOREIGN)
    before = keys.dump()
    assert keys.write(record(1)) == "foreign"
    assert keys.dump() == before


def test_of_no_installation(keys):
    keys.redis.delete(keys.changes)
    assert keys.write(record(1)) == "unadopted"
    assert not keys.redis.exists(keys.keys)


def test_a_hundred(keys):
    texts = [record(n + 1, f"{n:010}") for n in range(101)]
    assert keys.write(*texts[:100]) == ["ok", 100]
    assert keys.redis.hlen(keys.keys) == 101
    refused(keys, "ARGV", OWN, 0, 101, *texts)


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "17", "null", "{", record(1)[:-1], record(1) + "}", "[" * 5000]
    + [record(1, key) for key in (None, 1, "", "0a1b2c3d4", "0a1b2c3d4u", "0A1B2C3D4E", ID + "0")]
    + [record(version) for version in (None, "1", 0, -1, 1.5, 2**53, True)]
    + [record(1, revoked=revoked) for revoked in (None, 0, "false")],
)
def test_malformed_records(keys, text):
    good = record(1, OTHER)
    refused(keys, "record 2", OWN, 0, 2**53 - 1, good, text)


def test_the_size_of_a_record(keys):
    text = record(1)
    refused(keys, "record 1", OWN, 0, 1, text.ljust(16385))
    assert keys.write(text.ljust(16384)) == ["ok", 1]


def test_records_outside(keys):
    refused(keys, "record 1", OWN, 5, 9, record(5))
    refused(keys, "record 1", OWN, 5, 9, record(10))


def test_a_key_given_twice(keys):
    refused(keys, "record 2", OWN, 0, 9, record(5, revoked=True), record(6))


@pytest.mark.parametrize("number", NUMBERS_BAD)
def test_malformed_numbers(keys, number):
    refused(keys, "from", OWN, number, 9)
    refused(keys, "to", OWN, 0, number)


def test_malformed_arguments(keys):
    refused(keys, "ARGV")
    refused(keys, "ARGV", OWN, 0)
    refused(keys, "to", OWN, 2, 1)
    refused(keys, "installation", OWN[:-1], 0, 1)
    refused(keys, "KEYS", OWN, 0, 1, names=[keys.keys])
    refused(keys, "KEYS", OWN, 0, 1, names=[keys.keys, keys.changes, "x"])


def test_keys_of_another_type(keys):
    for key in (keys.keys, keys.changes):
        keys.redis.delete(key)
        keys.redis.set(key, "x")
        refused(keys, f"{key}: not a hash", OWN, 0, 1, record(1))
        keys.redis.delete(key)
        keys.redis.hset(keys.changes, "installation", OWN)


def test_revokes_without_memory(private_redis):
    """What a revocation needs is little, and it must not wait."""
    keys = Keys(private_redis)
    keys.write(record(1))
    private_redis.config_set("maxmemory", 1)
    try:
        assert keys.write(record(2, revoked=True), source=1) == ["ok", 2]
    finally:
        private_redis.config_set("maxmemory", 0)
    assert keys.of()["revoked"] is True
    private_redis.delete(keys.keys, keys.changes)
