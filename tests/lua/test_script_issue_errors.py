"""issue.lua: every error is detected before the first write. Every test compares all keys of the
coupon before and after."""
import pytest
import redis

from script_coupon import PAUSED
from ulid import ulid_make
from user_ids import BAD

GOOD_RUN_ID = "0123456789abcdef0123456789abcdef01234567"
ULID = "01JD0000000000000000000000"


def refused(c, sentence, run, *args, **options):
    before = c.snapshot()
    with pytest.raises(redis.ResponseError) as e:
        run(*args, **options)
    assert str(e.value).startswith(f"couponmq: {sentence}"), str(e.value)
    assert c.snapshot() == before


BAD_IDS = [
    "",
    "0",
    "00",
    "01",
    "-1",
    "+1",
    " 1",
    "1 ",
    "1.0",
    "1e3",
    "0x10",
    "a",
    "1a",
    "1,2",
    "1\n",
    "1\0",
    "\xff",
    "9223372036854775808",
    "9999999999999999999",
    "10000000000000000000",
    "1" * 30,
    "nan",
    "inf",
]


@pytest.mark.parametrize("user", [user for user, _ in BAD])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_bad_user(coupon, user, place):
    coupon.put(limit=2)
    coupon.issue("1")
    requests = ["1", ("2", "k"), "3"]
    requests[place] = user
    refused(coupon, "user: ", coupon.issue_raw, *requests)


@pytest.mark.parametrize(
    "key", ["k" * 256, "a\nb", "a\0", "\0", "\t", "\x7f", "\x80", "\xff", "\xc3\xa9", "\x1f"]
)
@pytest.mark.parametrize("place", [0, 1])
def test_bad_key(coupon, key, place):
    coupon.put(limit=2)
    requests = ["1", "2"]
    requests[place] = ("5", key)
    refused(coupon, "key: ", coupon.issue_raw, *requests)


@pytest.mark.parametrize("trace", ["t" * 185, "a\nb", "\0", "\t", "\x7f", "\xc3\xa9"])
def test_bad_trace(coupon, trace):
    coupon.put()
    refused(coupon, "trace: ", coupon.issue_raw, "1", ("2", "", "", trace))


def test_good_trace_at_the_bound(coupon):
    assert coupon.put().issue(("1", "", "", "t" * 184)).verdicts == [1]


@pytest.mark.parametrize("key", [" ", "~", "k" * 255])
def test_good_key_at_the_bounds(coupon, key):
    assert coupon.put().issue(("1", key)).verdicts == [1]


@pytest.mark.parametrize("user", ["0", "!", "~", "9" * 64, "!" * 64, "~" * 64])
def test_good_user_at_the_bounds(coupon, user):
    assert coupon.put().issue(user).verdicts == [1]


@pytest.mark.parametrize(
    "batch",
    [
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,
        "Z" + "0" * 25,
        ULID.lower(),
        ULID[:-1] + "I",
        ULID[:-1] + "L",
        ULID[:-1] + "O",
        ULID[:-1] + "U",
        ULID[:-1] + "\n",
        ULID[:-1] + "\0",
        ULID[:-1] + '"',
        "x",
    ],
)
def test_bad_batch(coupon, batch):
    refused(coupon.put(), "batch: not a ULID", coupon.issue_raw, "1", batch=batch)


@pytest.mark.parametrize("batch", ["7" + "Z" * 25, "0" * 26])
def test_good_batch_at_the_bounds(coupon, batch):
    assert coupon.put().issue("1", batch=batch).verdicts == [1]


@pytest.mark.parametrize("run_id", ["0", "g" * 40, "A" * 40, "0" * 39, "0" * 41, "0" * 39 + "\0"])
def test_bad_run_id(coupon, run_id):
    refused(coupon.put(), "run_id: ", coupon.issue_raw, "1", run_id=run_id)


BAD_NUMBERS = [
    "",
    "-1",
    "1.5",
    "01",
    "00",
    "1e3",
    "0x1",
    " 1",
    "nan",
    "9007199254740992",
    "9" * 30,
    "a",
    "1,1",
]


@pytest.mark.parametrize("number", BAD_NUMBERS)
@pytest.mark.parametrize("place", [0, 1])
def test_bad_seen(coupon, number, place):
    seen = ["0", "0"]
    seen[place] = number
    refused(coupon.put(), "generation_seen, seq_seen: ", coupon.issue_raw, "1", seen=seen)


@pytest.mark.parametrize("number", ["0", "1\n", "1\0", "\xff", "inf", *BAD_NUMBERS])
def test_bad_unsettled_max(coupon, number):
    coupon.put()
    sentence = "unsettled_max: not an integer within 1..2^53-1"
    refused(coupon, sentence, coupon.issue_raw, "1", unsettled_max=number)
    coupon.set(status="paused")
    refused(coupon, sentence, coupon.issue_raw, ("1", "k"), unsettled_max=number)


@pytest.mark.parametrize("number", [1, 2**53 - 1])
def test_good_unsettled_max_at_the_bounds(coupon, number):
    assert coupon.put().issue("1", unsettled_max=number).verdicts == [1]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_bad_coupon(coupon, bad):
    coupon.put()
    base = "coupon:{%s}" % bad
    refused(
        coupon,
        "coupon: ",
        coupon.issue_raw,
        "1",
        coupon=bad,
        keys=[base, base + ":users", base + ":outbox"],
    )
    refused(coupon, "coupon: ", coupon.issue_raw, "1", coupon=bad)


def test_keys_of_another_coupon(coupon):
    coupon.put()
    refused(coupon, "KEYS: ", coupon.issue_raw, "1", coupon="1")
    k = coupon.keys
    for keys in (
        [],
        k[:1],
        k[:2],
        k + k[:1],
        [k[1], k[0], k[2]],
        [k[0], k[2], k[1]],
        [k[0], k[1], k[1]],
        [k[0], k[1], "coupon:{1}:outbox"],
        [k[0], "coupon:{1}:users", k[2]],
        ["x"] + k[1:],
    ):
        refused(coupon, "KEYS: ", coupon.issue_raw, "1", keys=keys)


def test_number_of_arguments(coupon):
    coupon.put(total=1000)
    good = [coupon.run_id, "1", coupon.id, ULID, "0", "0"]
    for tail in (
        ["1"],
        ["1", "1", "2"],
        ["2", "1"],
        ["1k", "1"],
        ["2k", "1", ""],
        ["255", *["1"] * 256],
        ["255k", *["1", ""] * 256],
    ):
        refused(coupon, "ARGV: ", coupon.run, "issue", *good, *tail)
    for n, name in enumerate(("ARGV", "ARGV", "count", "count", "count", "count")):
        refused(coupon, f"{name}: ", coupon.run, "issue", *good[:n])


@pytest.mark.parametrize(
    "count",
    ["0", "257", "-1", "1.5", "", "x", "nan", "inf", "k", "c", "0k", "257c", "1K", "1ck", "1kk"],
)
def test_bad_count(coupon, count):
    refused(coupon.put(), "count: not an integer within 1..256", coupon.issue_raw, "1", count=count)


def test_bad_number_of_keys(coupon):
    coupon.put()
    for keys in ([], coupon.keys[:1], coupon.keys[:2], coupon.keys + coupon.keys[:1]):
        refused(coupon, "KEYS: ", coupon.issue_raw, "1", keys=keys)


KINDS = {
    "string": lambda r, key: r.set(key, "x"),
    "list": lambda r, key: r.lpush(key, "x"),
    "set": lambda r, key: r.sadd(key, "x"),
    "zset": lambda r, key: r.zadd(key, {"x": 1}),
    "stream": lambda r, key: r.xadd(key, {"x": "1"}),
}


@pytest.mark.parametrize("which, name", [(0, "coupon"), (1, "users"), (2, "outbox")])
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_type(coupon, which, name, kind):
    coupon.put(limit=2)
    coupon.issue("1")
    coupon.redis.delete(coupon.keys[which])
    KINDS[kind](coupon.redis, coupon.keys[which])
    refused(coupon, f"{name}: WRONGTYPE", coupon.issue_raw, "1", ("2", "k"), "3")
    refused(coupon, f"{name}: WRONGTYPE", coupon.issue_raw, "1", unsettled_max=1)


@pytest.mark.parametrize("kind", KINDS)
def test_an_outbox_of_another_type_is_read_only_where_needed(coupon, kind):
    """Not where nothing can be accepted."""
    coupon.put(limit=2)
    batch = coupon.issue(("1", "k")).message["batch"]
    coupon.redis.delete(coupon.keys[2])
    KINDS[kind](coupon.redis, coupon.keys[2])
    coupon.set(status="paused")
    assert coupon.issue(("1", "k"), "2").verdicts == [f"1:{batch}:0", PAUSED]


@pytest.mark.parametrize(
    "field",
    [
        "status",
        "run_id",
        "generation",
        "seq",
        "total",
        "stock",
        "reserved",
        "begin",
        "end",
        "limit",
    ],
)
def test_missing_field(coupon, field):
    coupon.put()
    coupon.redis.hdel(coupon.keys[0], field)
    refused(coupon, "coupon: a field is missing", coupon.issue_raw, "1")


def test_hash_of_something_else(coupon):
    coupon.redis.hset(coupon.keys[0], "colour", "red")
    refused(coupon, "coupon: a field is missing", coupon.issue_raw, "1")


@pytest.mark.parametrize(
    "field", ["generation", "seq", "total", "stock", "reserved", "begin", "end", "limit"]
)
@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "1.5",
        "x",
        "nan",
        "inf",
        "1e1",
        "0x10",
        " 5",
        "5 ",
        "1,2",
        "9007199254740992",
        "9" * 40,
    ],
)
def test_malformed_number(coupon, field, value):
    coupon.put()
    coupon.set(**{field: value})
    refused(coupon, "coupon: ", coupon.issue_raw, "1")


@pytest.mark.parametrize(
    "fields",
    [
        {"total": 5, "stock": 6},
        {"total": 5, "stock": 5, "reserved": 1},
        {"limit": 0},
        {"limit": 101},
        {"generation": 0},
        {"status": ""},
        {"status": "OPEN"},
        {"status": "draft"},
        {"seq": 2**53 - 1},
    ],
)
def test_corrupt_coupon(coupon, fields):
    coupon.put(**fields)
    refused(coupon, "coupon: ", coupon.issue_raw, "1")


RECORD = f"1:{ULID}:0:"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1",
        "1:2:3",
        f"0:{ULID}:0:",
        f"01:{ULID}:0:",
        f"101:{ULID}:0:",
        f"-1:{ULID}:0:",
        f":{ULID}:0:",
        f"1:{ULID[1:]}:0:",
        f"1:{ULID}0:0:",
        f"1:{ULID.lower()}:0:",
        f"1:8{ULID[1:]}:0:",
        f"1:{ULID}::",
        f"1:{ULID}:0",
        f"1:{ULID}:00:",
        f"1:{ULID}:01:",
        f"1:{ULID}:256:",
        f"1:{ULID}:0:" + "k" * 256,
        f"1:{ULID}:0:\t",
        RECORD + "\n",
        "\n" + RECORD,
        RECORD + "\n" + RECORD,
        RECORD + "\n\n" + f"2:{ULID}:1:",
        RECORD + "\nx",
    ],
)
@pytest.mark.parametrize("key", ["", "k"])
def test_malformed_records(coupon, text, key):
    coupon.put(limit=5)
    coupon.redis.hset(coupon.keys[1], "7", text)
    refused(coupon, "users: malformed records of user 7", coupon.issue_raw, "1", ("7", key), "2")


@pytest.mark.parametrize(
    "text", [f"100:{ULID}:255:", f"2:7{'Z' * 25}:9:" + "~" * 255, f"3:{ULID}:10:a:b\n5:{ULID}:11:"]
)
def test_well_formed_records(coupon, text):
    coupon.put(limit=5)
    coupon.redis.hset(coupon.keys[1], "7", text)
    assert coupon.issue("7").verdicts == [1]
    assert coupon.users()["7"].startswith(text + "\n1:")


def test_batch_is_in_the_outbox_already(coupon):
    coupon.put(total=10)
    batch = ulid_make()
    coupon.issue("1", batch=batch)
    refused(
        coupon, "batch: is in the outbox already", coupon.issue_raw, "2", ("3", "k"), batch=batch
    )


def test_redis_without_memory(private_coupon):
    """OOM is reported before the first write; verdicts that need no memory are still returned."""
    coupon = private_coupon.put(total=100, limit=2)
    client = coupon.redis
    coupon.issue(("1", "k"))
    before = coupon.snapshot()
    client.script_load("return 1")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(redis.ResponseError) as e:
            coupon.issue_raw("2", ("3", "x"), "1")
        assert "command not allowed when used memory" in str(e.value)
        assert coupon.snapshot() == before
        assert coupon.issue(("1", "k")).verdicts[0].startswith("1:")
        with pytest.raises(redis.ResponseError):
            coupon.run("terms", 2, "open", 200, 0, 0, 2)
        assert coupon.snapshot() == before
    finally:
        client.config_set("maxmemory", "0")
    assert coupon.issue("2").verdicts == [1]


def test_refusal_by_redis_keeps_its_code(private_coupon):
    """By the code the gateway recognizes that the call did not run: OOM and READONLY are passed on
    unchanged."""
    coupon = private_coupon.put(total=100)
    client = coupon.redis
    coupon.issue("1")
    before = coupon.snapshot()
    for lines, code in (
        ([("maxmemory", "1")], b"-OOM "),
        ([("min-replicas-to-write", "1")], b"-NOREPLICAS "),
    ):
        for name, value in lines:
            client.config_set(name, value)
        try:
            connection = client.connection_pool.get_connection("x")
            try:
                sha = coupon.scripts["issue"]
                connection.send_command(
                    "EVALSHA",
                    sha,
                    3,
                    *coupon.keys,
                    coupon.run_id,
                    1000,
                    *coupon.part("9"),
                )
                sock = connection._sock
                assert sock.recv(65536).startswith(b"*1\r\n" + code)
            finally:
                connection.disconnect()
                client.connection_pool.release(connection)
        finally:
            for name, _ in lines:
                client.config_set(name, "0")
        assert coupon.snapshot() == before
