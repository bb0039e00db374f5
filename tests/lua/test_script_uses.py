"""What is kept in Redis of uses of receives: uses.lua of workers, uses_fill.lua and
uses_trim.lua of the keeper."""

import json
import time

import pytest
import redis

from script_coupon import script_text

CHANGES = "couponmq:changes"
USES = "{couponmq:changes}:uses"
OURS = "01234567-89ab-cdef-0123-456789abcdef"
SERVER = "7:3"
DAY_MS = 86_400_000
OVERHEAD = 16


def record(num, age_s=0):
    """As json_build_array() writes it, with six decimals, so that all are of one length."""
    return f'[1, {num}, {time.time() - age_s:.6f}, "1001", "42"]'


class Uses:
    def __init__(self, client):
        self.redis = client
        client.hset(CHANGES, mapping={"installation": OURS, "system": "7", "timeline": "3"})

    def run(self, *records, number="70:1", started="a", keep_ms=DAY_MS, most=10**6, **other):
        where = other.get("ours", OURS), other.get("server", SERVER)
        args = (*where, started, keep_ms, most, number, *records)
        keys = other.get("keys", (CHANGES, USES))
        return self.redis.eval(script_text("uses"), len(keys), *keys, *args)

    def announce(self, started="a", **other):
        return self.run(number="", started=started, **other)

    def all(self):
        return self.redis.lrange(USES, 0, -1)

    def field(self, name):
        return self.redis.hget(CHANGES, name)


@pytest.fixture
def uses(private_redis):
    private_redis.delete(CHANGES, USES)
    yield Uses(private_redis)
    private_redis.delete(CHANGES, USES, "{a}")


def test_records_are_added_with_the_number(uses):
    records = [record(n) for n in range(3)]
    assert uses.announce() == "ok"
    assert uses.run(*records[:2]) == uses.run(records[2], number="70:9") == "ok"
    assert uses.all() == records
    assert uses.field("70") == "9"
    assert int(uses.field("uses_bytes")) == sum(len(one) + OVERHEAD for one in records)
    assert uses.run(number="70:4") == "ok"
    assert uses.field("70") == "9", "it only grows"


def test_what_was_committed_before_the_server_that_was_announced_last(uses):
    assert uses.run(record(1)) == "stale", "none was"
    uses.announce("a")
    uses.announce("b")
    assert uses.run(record(1), started="a") == "stale"
    assert (uses.all(), uses.field("70")) == ([], None)
    assert uses.run(record(1), started="b") == "ok"


def test_a_list_that_is_gone(uses):
    """By another hand: the keeper fills it again, and until then little is covered."""
    uses.announce()
    uses.run(record(1))
    uses.redis.hset(CHANGES, mapping={"uses_run": "a", "uses_since": 0})
    uses.redis.delete(USES)
    before_ms = int(time.time() * 1000) - 1
    other = record(2)
    assert uses.run(other) == "ok"
    assert uses.field("uses_run") is None and int(uses.field("uses_since")) >= before_ms
    assert int(uses.field("uses_bytes")) == len(other) + OVERHEAD


@pytest.mark.parametrize(
    "other", [{"ours": OURS.replace("0", "1")}, {"server": "7:4"}, {"server": "8:3"}]
)
def test_of_another_installation_or_server(uses, other):
    uses.announce()
    assert uses.run(record(1), **other) == uses.announce("b", **other) == "other"
    assert (uses.all(), uses.field("started")) == ([], "a")


def test_the_oldest_are_removed_by_their_time(uses):
    uses.announce()
    old, new = [record(n, age_s=200) for n in range(3)], record(4, age_s=10)
    uses.run(*old, new)
    before_ms = int(uses.field("uses_since"))
    uses.run(keep_ms=100_000)
    assert uses.all() == [new]
    assert int(uses.field("uses_since")) >= before_ms
    assert int(uses.field("uses_bytes")) == len(new) + OVERHEAD


def test_the_oldest_are_removed_by_their_bytes(uses):
    uses.announce()
    uses.redis.hset(CHANGES, "uses_since", 0)
    records = [record(n, age_s=100 - n) for n in range(9)]
    size = len(records[0]) + OVERHEAD
    uses.run(*records, most=4 * size + 5)
    assert uses.all() == records[5:]
    assert int(uses.field("uses_bytes")) <= 4 * size + 5
    removed_ms = json.loads(records[4])[2] * 1000
    assert removed_ms < int(uses.field("uses_since")) < json.loads(records[5])[2] * 1000


def test_without_memory(uses):
    uses.announce()
    uses.redis.config_set("maxmemory", 1)
    try:
        assert uses.run(record(1)) == "ok"
    finally:
        uses.redis.config_set("maxmemory", 0)
    assert len(uses.all()) == 1


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"number": "128:1"}, "number"),
        ({"number": "1"}, "number"),
        ({"number": ""}, "records: without"),
        ({"keep_ms": "x"}, "keep"),
        ({"most": -1}, "bytes"),
        ({"keys": (CHANGES,)}, "KEYS"),
        ({"keys": (CHANGES, "uses")}, "KEYS"),
        ({"keys": ("{a}", "{{a}}:uses")}, "hash"),
    ],
)
def test_bad_arguments(uses, change, sentence):
    uses.redis.set("{a}", "x")
    uses.announce()
    with pytest.raises(redis.ResponseError, match=sentence):
        uses.run(record(1), **change)
    assert uses.all() == []


@pytest.mark.parametrize("bad", ["", "x", "[1,2,3]", "[2, 1, 1.5, ", "[1, a, 1.5, "])
def test_bad_records(uses, bad):
    uses.announce()
    with pytest.raises(redis.ResponseError, match="record: not"):
        uses.run(record(1), bad)
    assert uses.all() == []


def test_what_others_wrote_into_the_list_is_removed_first(uses):
    uses.announce()
    uses.redis.rpush(USES, "nonsense")
    one = record(1)
    assert uses.run(one) == "ok"
    assert uses.all() == [one]


# uses_fill.lua


RUN = "0123456789" * 4
MAX = 2**53 - 1


def fill(uses, begin, to, *records, run=RUN, most=10**6, keys=(CHANGES, USES)):
    args = (run, begin, to, most, *records)
    return uses.redis.eval(script_text("uses_fill"), len(keys), *keys, *args)


def test_filled_from_the_latest_on(uses):
    uses.announce()
    uses.run(record(1), number="70:1")
    assert fill(uses, "begin", 0) == "ok" and uses.all() == []
    new, pages = record(9), [[record(n, age_s=90 - n) for n in (8, 7)], [record(6, age_s=99)]]
    uses.run(new, number="70:2")
    assert fill(uses, MAX, 7, *pages[0]) == "ok"
    assert int(uses.field("uses_since")) == int(json.loads(pages[0][1])[2] * 1000)
    assert fill(uses, 7, 0, *pages[1]) == "ok"
    assert uses.all() == [*pages[1], *reversed(pages[0]), new]
    assert [uses.field(name) for name in ("uses_run", "uses_from", "uses_since")] == [RUN, "0", "0"]
    assert int(uses.field("uses_bytes")) == sum(len(one) + OVERHEAD for one in uses.all())


@pytest.mark.parametrize("begin, run", [(8, RUN), (MAX, RUN[::-1])])
def test_not_filled_by_a_keeper_that_is_behind(uses, begin, run):
    uses.announce()
    fill(uses, "begin", 0)
    assert fill(uses, begin, 0, record(1), run=run) == "moved"
    assert uses.all() == [] and uses.field("uses_from") == str(MAX)


def test_not_filled_beyond_the_bound(uses):
    uses.announce()
    fill(uses, "begin", 0)
    records = [record(n, age_s=100 - n) for n in (9, 8, 7)]
    most = 2 * (len(records[0]) + OVERHEAD) + 3
    assert fill(uses, MAX, 0, *records, most=most) == "full"
    assert uses.all() == [records[1], records[0]] and uses.field("uses_from") == "0"
    assert int(uses.field("uses_since")) == int(json.loads(records[1])[2] * 1000)


def test_not_filled_below_what_a_worker_removed(uses):
    uses.announce()
    fill(uses, "begin", 0)
    most = 2 * (len(record(9)) + OVERHEAD) + 3
    assert fill(uses, MAX, 8, record(9), record(8), most=most) == "ok"
    new = record(10)
    assert uses.run(new, most=most) == "ok" and uses.all()[1:] == [new]
    left = uses.all()
    assert fill(uses, 8, 0, record(7)) == "moved" and uses.all() == left


def test_a_list_that_lost_nothing_is_kept(uses):
    uses.announce()
    uses.run(record(1))
    assert fill(uses, "keep", 0) == "ok"
    assert len(uses.all()) == 1 and uses.field("uses_run") == RUN


@pytest.mark.parametrize(
    "args, sentence",
    [
        ((MAX, "x"), "to"),
        (("x", 0), "from"),
        ((MAX, 0, "nonsense"), "record"),
    ],
)
def test_fill_bad_arguments(uses, args, sentence):
    uses.announce()
    with pytest.raises(redis.ResponseError, match=sentence):
        fill(uses, *args)


# uses_trim.lua


def trim(uses, full=None, keep_ms=DAY_MS):
    """`full`: the part of maxmemory that is used."""
    used = uses.redis.info("memory")["used_memory"]
    uses.redis.config_set("maxmemory", int(used / full) if full else 0)
    try:
        return uses.redis.eval(script_text("uses_trim"), 2, CHANGES, USES, keep_ms)
    finally:
        uses.redis.config_set("maxmemory", 0)


def test_the_oldest_make_room_in_a_full_redis(uses):
    uses.announce()
    uses.redis.hset(CHANGES, "uses_since", 0)
    records = [record(n, age_s=2000 - n) for n in range(1500)]
    for i in range(0, 1500, 500):
        uses.run(*records[i : i + 500])
    assert trim(uses)[0] == trim(uses, full=0.7)[0] == 0 and len(uses.all()) == 1500
    removed, left, covered_ms = trim(uses, full=1.5)
    assert removed == 1000 and uses.all() == records[1000:]
    assert left == int(uses.field("uses_bytes")) == sum(len(r) + OVERHEAD for r in records[1000:])
    assert abs(covered_ms - 1_000_000) < 60_000
    last_ms = json.loads(records[999])[2] * 1000
    assert last_ms < int(uses.field("uses_since")) < json.loads(records[1000])[2] * 1000
    assert trim(uses, full=1.5)[:2] == [500, 0] and trim(uses, full=1.5)[:2] == [0, 0]
    assert uses.run(record(1)) == "ok" and len(uses.all()) == 1


def test_no_more_is_removed_than_is_too_much(uses):
    uses.announce()
    uses.run(*[record(n) for n in range(1000)])
    assert 0 < trim(uses, full=0.905)[0] < 1000


def test_nothing_is_filled_below_what_was_removed(uses):
    uses.announce()
    fill(uses, "begin", 0)
    fill(uses, MAX, 8, record(9), record(8))
    assert trim(uses, full=1.5)[0] == 2
    assert uses.field("uses_from") == "0"
    assert fill(uses, 8, 0, record(7)) == "moved" and uses.all() == []


def test_what_is_covered_without_a_loss(uses):
    assert trim(uses, keep_ms=5000) == [0, 0, 5000]


def test_a_list_that_is_gone_while_no_use_comes(uses):
    uses.announce()
    uses.run(record(1))
    uses.redis.hset(CHANGES, mapping={"uses_run": "a", "uses_since": 0})
    assert trim(uses)[2] == DAY_MS
    uses.redis.delete(USES)
    removed, left, covered_ms = trim(uses)
    assert (removed, left) == (0, 0) and covered_ms < 60_000
    assert uses.field("uses_run") is None
