"""What workers write to Redis: settled.lua and changes.lua."""

import pytest
import redis

from keeper_scripts import NUMBERS_BAD, refused
from script_coupon import script_text
from ulid import ulid_make
from user_ids import HOSTILE


# settled.lua


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


def test_settled_without_memory(private_coupon):
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
def test_settled_bad_arguments(coupon, args, sentence):
    coupon.redis.hset(coupon.keys[2], BATCH, "body")
    refused(coupon, sentence, settle, *args)


@pytest.mark.parametrize("at", NUMBERS_BAD)
def test_bad_times(coupon, at):
    coupon.redis.hset(coupon.keys[2], BATCH, "body")
    refused(coupon, "batch: ", settle, f"{BATCH}:{at}")
    refused(coupon, "receive: ", settle, f"{BATCH}:1", f"{BATCH}:{at}")


def test_settled_bad_keys(coupon):
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


# changes.lua


KEY = "couponmq:test:changes"
BIG = 2**53 - 1
OWN, OTHER = ("00000000-0000-4000-8000-%012d" % i for i in (1, 2))


class Copy:
    def __init__(self, client):
        self.redis = client

    def run(self, *args, keys=(KEY,), server="", follow="newer"):
        args = (*args[:2], server, follow, *args[2:]) if len(args) >= 2 else args
        return self.redis.eval(script_text("changes"), len(keys), *keys, *args)

    def follow(self, server, follow="newer", *numbers):
        return self.run(OWN, "none", *numbers, server=server, follow=follow)

    def server(self):
        return ":".join(self.redis.hmget(KEY, "system", "timeline"))

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
    assert copy.add(0, 1, 127, BIG) == "ok"
    assert copy.all() == {"0": "1", "127": str(BIG)}


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


def test_changes_without_memory(copy):
    copy.add(7, 5)
    copy.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="used memory"):
            copy.redis.hset(KEY, "7", "6")
        assert copy.add(7, 6, 8, 1) == "ok"
    finally:
        copy.redis.config_set("maxmemory", 0)
    assert copy.all() == {"7": "6", "8": "1"}


def test_a_redis_without_an_id_is_adopted(copy):
    copy.redis.hset(KEY, "7", 5)
    assert copy.run(OWN, "", 7, 6) == "unadopted"
    assert copy.run(OWN, OTHER) == "ok", "an id to take over adopts it, too"
    assert copy.installation() == OWN
    copy.redis.hdel(KEY, "installation")
    assert copy.run(OWN, "none") == "ok"
    assert (copy.installation(), copy.all()) == (OWN, {"7": "5"})
    assert copy.run(OWN, "", 7, 6) == "ok"
    assert copy.all() == {"7": "6"}


@pytest.mark.parametrize("adopt", ["", "none", "00000000-0000-4000-8000-000000000003"])
def test_nothing_is_copied_to_another_installation(copy, adopt):
    copy.run(OTHER, "none", 7, 5)
    before = copy.redis.dump(KEY)
    assert copy.run(OWN, adopt, 7, 6) == "foreign"
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
        ((0, 1) * 129, "ARGV: "),
        ((128, 1), "stripe: "),
        ((-1, 1), "stripe: "),
        (("01", 1), "stripe: "),
        ((1, -1), "number: "),
        ((1, "x"), "number: "),
        ((1, BIG + 1), "number: "),
        ((1, 9, 2, ""), "number: "),
    ],
)
def test_changes_bad_arguments(copy, args, sentence):
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
        ((OWN, "all"), "adopt: "),
        ((OWN, OWN[1:]), "adopt: "),
        ((OWN, "none", "", ""), "follow: "),
        ((OWN, "none", "", "older"), "follow: "),
        ((OWN, "none", "7", "newer"), "server: "),
        ((OWN, "none", "7:", "newer"), "server: "),
        ((OWN, "none", "x:1", "newer"), "server: "),
        ((OWN, "none", f"7:{BIG + 1}", "newer"), "server: "),
    ],
)
def test_bad_ids(copy, args, sentence):
    with pytest.raises(redis.ResponseError, match=f"^couponmq: {sentence}"):
        if len(args) == 4:
            copy.run(*args[:2], server=args[2], follow=args[3])
        else:
            copy.run(*args)
    assert not copy.redis.exists(KEY)


def test_the_first_server_is_followed(copy):
    copy.add(7, 5)
    assert copy.follow("70:3", "newer", 7, 6) == "ok"
    assert (copy.server(), copy.redis.hget(KEY, "7")) == ("70:3", "6")
    assert copy.follow("70:3", "newer", 7, 7) == "ok"


def test_a_higher_timeline_is_followed(copy):
    copy.follow("70:2")
    assert copy.follow("70:10", "newer", 7, 1) == "ok"
    assert copy.server() == "70:10"
    assert copy.redis.hget(KEY, "former") == "70:2"
    assert copy.follow("70:10") == "ok" and copy.redis.hget(KEY, "former") == "70:2"


@pytest.mark.parametrize("follow", ["newer", "other"])
@pytest.mark.parametrize("server", ["70:1", "70:9", "80:4"])
def test_nothing_is_copied_of_an_old_server(copy, server, follow):
    copy.follow("80:4")
    copy.follow("70:9", "other")
    copy.follow("70:10", "newer", 7, 5)
    before = copy.redis.dump(KEY)
    assert copy.follow(server, follow, 7, 6) == "old"
    assert copy.redis.dump(KEY) == before


def test_another_cluster_is_followed_only_if_it_is_asked_for(copy):
    copy.follow("80:9", "newer", 7, 5)
    before = copy.redis.dump(KEY)
    assert copy.follow("70:1", "newer", 7, 6) == "other"
    assert copy.redis.dump(KEY) == before
    assert copy.follow("70:1", "other", 7, 6) == "ok"
    assert (copy.server(), copy.redis.hget(KEY, "7")) == ("70:1", "6")
    assert copy.follow("80:9") == "old"


def test_an_old_server_takes_over(copy):
    copy.follow("70:1")
    copy.follow("70:2")
    assert copy.follow("70:1", "any") == "ok"
    assert copy.server() == "70:1"
    assert copy.follow("70:1", "newer", 7, 5) == "ok"
    assert copy.follow("70:2") == "old", "it does not come back by itself"
    assert copy.follow("70:3") == "ok"


def test_changes_bad_keys(copy):
    for keys in ((), (KEY, KEY)):
        with pytest.raises(redis.ResponseError, match="^couponmq: KEYS: "):
            copy.run(OWN, "none", 1, 2, keys=keys)


def test_a_key_of_another_type_has_no_id(copy):
    copy.redis.set(KEY, "x")
    assert copy.run(OWN, "", 1, 2) == "unadopted"
    assert copy.add(1, 2) == "ok"
    assert (copy.installation(), copy.all()) == (OWN, {"1": "2"})
