"""settled.lua: batches leave the outbox, and each is recorded once."""
import pytest
import redis

from keeper_scripts import NUMBERS_BAD, refused
from ulid import ulid_make
from user_ids import HOSTILE

AT = 1700000000123
BATCH = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
RECEIVE = f"{BATCH}:0:1:slot_taken:42"


def keys_of(coupon):
    return [coupon.keys[2], coupon.settled, coupon.rejected]


def settle(coupon, *args, keys=None):
    return coupon.run("settled", *args, keys=keys or keys_of(coupon))


def lists(coupon):
    return [coupon.redis.lrange(key, 0, -1) for key in (coupon.settled, coupon.rejected)]


def put(coupon, count=1):
    """Batches in the outbox."""
    batches = [ulid_make() for _ in range(count)]
    coupon.redis.hset(coupon.keys[2], mapping={batch: "body" for batch in batches})
    return batches


def test_a_batch_is_removed_and_recorded(coupon):
    one, other = put(coupon, 2)
    assert settle(coupon, f"{one}:{AT}") == 1
    assert set(coupon.outbox()) == {other}
    assert lists(coupon) == [[f"{one}:{AT}"], []]


def test_rejected_receives_are_recorded(coupon):
    one, other = put(coupon, 2)
    rejected = [f"{one}:0:1:slot_taken:42", f"{one}:255:32767:out_of_stock:a:b:1"]
    args = [f"{one}:{AT}", *rejected, f"{other}:0", f"{other}:3:0:slot_invalid:7"]
    assert settle(coupon, *args) == 2
    assert coupon.outbox() == {}
    assert lists(coupon) == [[args[0], args[3]], [*rejected, args[4]]]


@pytest.mark.parametrize("user", HOSTILE)
def test_users_are_kept_as_they_are(coupon, user):
    (batch,) = put(coupon)
    settle(coupon, f"{batch}:{AT}", f"{batch}:0:1:slot_taken:{user}")
    assert lists(coupon)[1] == [f"{batch}:0:1:slot_taken:{user}"]


def test_a_copy_adds_nothing(coupon):
    one, other = put(coupon, 2)
    call = (f"{one}:{AT}", f"{one}:0:1:slot_taken:42")
    assert settle(coupon, *call) == 1
    before = coupon.snapshot()
    assert settle(coupon, *call) == 0
    assert coupon.snapshot() == before
    assert settle(coupon, *call, f"{other}:{AT}", f"{other}:{AT}") == 1
    assert lists(coupon) == [[f"{one}:{AT}", f"{other}:{AT}"], [call[1]]]


def test_what_was_not_in_the_outbox_is_not_recorded(coupon):
    assert settle(coupon, f"{BATCH}:{AT}", RECEIVE) == 0
    assert coupon.snapshot() == {}


def test_the_largest_calls(coupon):
    many = put(coupon, 64)
    assert settle(coupon, *(f"{batch}:{2**53 - 1}" for batch in many)) == 64
    full = put(coupon, 5)
    args = [arg for b in full for arg in (f"{b}:1", *(f"{b}:{i}:1:lost:7" for i in range(255)))]
    assert len(args) == 1280
    assert settle(coupon, *args) == 5
    assert [len(one) for one in lists(coupon)] == [69, 1275]


def test_without_memory(private_coupon):
    coupon = private_coupon
    (batch,) = put(coupon)
    coupon.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="used memory"):
            coupon.redis.rpush(coupon.settled, "x")
        assert settle(coupon, f"{batch}:{AT}", f"{batch}:0:1:slot_taken:42") == 1
    finally:
        coupon.redis.config_set("maxmemory", 0)
    assert coupon.outbox() == {}
    assert lists(coupon) == [[f"{batch}:{AT}"], [f"{batch}:0:1:slot_taken:42"]]


BAD = [
    ((), "ARGV: "),
    ((f"{BATCH}:1",) * 65, "ARGV: "),
    ((f"{BATCH}:1", *[RECEIVE] * 1280), "ARGV: "),
    ((RECEIVE,), "batch: "),
    ((BATCH,), "batch: "),
    ((f"{BATCH[1:]}:1",), "batch: "),
    ((f"{BATCH}1:1",), "batch: "),
    ((f"8{BATCH[1:]}:1",), "batch: "),
    ((f"{BATCH.lower()}:1",), "batch: "),
    ((f"{BATCH}:1", f"{ulid_make()}:0:1:slot_taken:42"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:256:1:slot_taken:42"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:00:1:slot_taken:42"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:0:32768:slot_taken:42"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:0:-1:slot_taken:42"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:0:1::42"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:0:1:Slot taken:42"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:0:1:slot_taken"), "receive: "),
    ((f"{BATCH}:1", f"{BATCH}:0:1:slot_taken:"), "user: "),
    ((f"{BATCH}:1", f"{BATCH}:0:1:slot_taken:4 2"), "user: "),
    ((f"{BATCH}:1", f"{BATCH}:0:1:slot_taken:4\n2"), "user: "),
    ((f"{BATCH}:1", f"{BATCH}:0:1:slot_taken:" + "4" * 65), "user: "),
]


@pytest.mark.parametrize("args, sentence", BAD)
def test_bad_arguments(coupon, args, sentence):
    coupon.redis.hset(coupon.keys[2], BATCH, "body")
    refused(coupon, sentence, settle, *args)


@pytest.mark.parametrize("at", NUMBERS_BAD)
def test_bad_times(coupon, at):
    coupon.redis.hset(coupon.keys[2], BATCH, "body")
    refused(coupon, "batch: ", settle, f"{BATCH}:{at}")
    refused(coupon, "receive: ", settle, f"{BATCH}:1", f"{BATCH}:{at}")


def test_bad_keys(coupon):
    coupon.redis.hset(coupon.keys[2], BATCH, "body")
    k = keys_of(coupon)
    for keys in ([coupon.keys[0], *k[1:]], k[:2], [*k, k[0]], [k[0], k[2], k[1]]):
        refused(coupon, "KEYS: ", settle, f"{BATCH}:1", keys=keys)
    refused(coupon, "KEYS: ", settle, f"{BATCH}:1", keys=[k[0], "coupon:{1}:settled", k[2]])


@pytest.mark.parametrize("which", range(3))
def test_a_key_of_another_type(coupon, which):
    coupon.redis.hset(coupon.keys[2], BATCH, "body")
    key = keys_of(coupon)[which]
    coupon.redis.delete(key)
    coupon.redis.set(key, "x")
    refused(coupon, f"{key}: not a ", settle, f"{BATCH}:1", RECEIVE)
