"""user_state.lua and coupon_state.lua; and users of any allowed byte in each script that takes
users."""

import pytest
import redis

from keeper_scripts import refused
from script_coupon import fence_of, LIMIT_REACHED
from ulid import ulid_make
from user_ids import BAD, HOSTILE, LENGTH_MAX, PRINTABLE


# user_state.lua and coupon_state.lua


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


# Users of any allowed byte in each script that takes users, and each text that is none.


ERROR = "user: not 1 to 64 bytes of printable ASCII without spaces ({}.lua)"
USERS = [*PRINTABLE, *(c * LENGTH_MAX for c in PRINTABLE), *HOSTILE]
USERS = list(dict.fromkeys(USERS))
BATCH = ulid_make()


def parts(n):
    return [USERS[i : i + n] for i in range(0, len(USERS), n)]


def fill(coupon, what, *pairs, room=1000, past=0):
    keys = coupon.fill_keys(2)
    return coupon.run("fill", fence_of(5), what, room, 60000, past, *pairs, keys=keys)


def late(coupon, *outcomes):
    values = [value for outcome in outcomes for value in outcome]
    return coupon.run("late", fence_of(5), *values)


def slot_free(coupon, *receives):
    return coupon.run("slot_free", *(part for one in receives for part in one))


# Each of them through each script


@pytest.mark.parametrize("key", ["", "k", '"\\'])
@pytest.mark.parametrize("users", parts(100))
def test_issue(coupon, users, key):
    """Twice by each: the second slot, and the next to the last entry of the message."""
    coupon.put(total=1000, limit=2)
    batch = ulid_make()
    a = coupon.issue(*((user, key) for user in users), *users, batch=batch)
    assert a.verdicts == [1] * len(users) + [2] * len(users)
    assert a.message["receives"] == [[u, 1, key] for u in users] + [[u, 2, ""] for u in users]
    assert coupon.outbox() == {batch: a.body}
    n = len(users)
    assert coupon.users() == {
        u: f"1:{batch}:{i}:{key}\n2:{batch}:{n + i}:" for i, u in enumerate(users)
    }
    again = coupon.issue(*((user, key) for user in users)).verdicts
    assert again == ([f"1:{batch}:{i}" for i in range(n)] if key else [LIMIT_REACHED] * n)


@pytest.mark.parametrize("user", USERS)
def test_issue_alone(coupon, user):
    """Alone in its call, so that it is the first and the last entry of the message."""
    coupon.put(limit=3)
    assert coupon.issue(user).message["receives"] == [[user, 1, ""]]
    assert coupon.issue((user, "k")).message["receives"] == [[user, 2, "k"]]
    a = coupon.issue("first", user, "last")
    assert a.message["receives"] == [["first", 1, ""], [user, 3, ""], ["last", 1, ""]]


def test_issue_refuses_all(coupon):
    coupon.put(status="paused")
    for users in parts(256):
        a = coupon.issue(*users)
        assert set(a.verdicts) == {-6} and a.body == ""
    assert coupon.users() == {}


def test_similar_users_are_different(coupon):
    coupon.put()
    users = ["42", "042", "42.", "42.0", "+42", "a", "A", "ab", "-0", "0"]
    assert coupon.issue(*users).verdicts == [1] * len(users)
    assert coupon.issue(*users).verdicts == [LIMIT_REACHED] * len(users)


def test_largest_call(coupon):
    coupon.put(total=1000)
    requests = [("\\" * 60 + f"{i:04}", '"' * 64) for i in range(256)]
    a = coupon.issue(*requests)
    assert a.message["receives"] == [[u, 1, k] for u, k in requests]
    assert coupon.issue(*requests).verdicts == [f"1:{a.message['batch']}:{i}" for i in range(256)]


@pytest.mark.parametrize("users", parts(256))
def test_user_state(coupon, users):
    coupon.put(total=1000)
    batch = coupon.issue(*((user, "k:1") for user in users[1:])).message["batch"]
    for i, user in enumerate(users[1:]):
        assert user_state(coupon, user) == [f"1:{batch}:{i}:k:1", "complete"]
    assert user_state(coupon, users[0]) == [None, "complete"]


@pytest.mark.parametrize("users", parts(256))
def test_release(coupon, users):
    coupon.put(total=1000, limit=2)
    batch = coupon.issue(*users).message["batch"]
    ways = ("free", "drop", f"give 1:{BATCH}:7:k", "free")
    receives = [(user, 1, batch, i, ways[i % 4]) for i, user in enumerate(users)]
    reply = slot_free(coupon, *receives)
    assert reply[3:] == [way.split()[0] for _, _, _, _, way in receives]
    assert coupon.users() == {user: f"1:{BATCH}:7:k" for user in users[2::4]}
    assert set(slot_free(coupon, *receives)[3:]) == {"other"}


@pytest.mark.parametrize("what", ["issued", "single", "flight"])
@pytest.mark.parametrize("users", parts(256))
def test_fill(coupon, users, what):
    records = {user: f"1:{BATCH}:{i}:k" for i, user in enumerate(users)}
    flat = [part for pair in records.items() for part in pair]
    assert fill(coupon, what, *flat) == len(users)
    assert coupon.redis.hgetall(coupon.keys[0] + ":fill:2:users") == records
    if what != "single":
        more = [(user, f"2:{BATCH}:{i}:") for i, user in enumerate(users)]
        assert fill(coupon, what, *(part for pair in more for part in pair)) == len(users)
        assert coupon.redis.hgetall(coupon.keys[0] + ":fill:2:users") == {
            user: records[user] + "\n" + record for user, record in more
        }
    for name in ("users", "known"):
        coupon.redis.delete(f"{coupon.keys[0]}:fill:2:{name}")


@pytest.mark.parametrize("users", parts(128))
def test_late(coupon, users):
    """Outcomes of an older generation: the slot of each is taken by the receive in PostgreSQL."""
    coupon.put(total=1000, stock=500, reserved=500, generation=2, **{"high:1": 1000})
    outcomes = [(i + 1, 1, i + 1, u, 1, BATCH, i, "k", "issued") for i, u in enumerate(users)]
    assert late(coupon, *outcomes) == ["ok", len(users), 500, 500 - len(users)]
    assert coupon.users() == {user: f"1:{BATCH}:{i}:k" for i, user in enumerate(users)}


# No users


@pytest.mark.parametrize("user", [user for user, _ in BAD])
def test_no_user(coupon, user):
    coupon.put(limit=2)
    batch = coupon.issue("1").message["batch"]
    good = ("1", 1, batch, 0, "free")
    for requests in ([user], ["1", user], [(user, "k"), "1"], ["1"] * 255 + [user]):
        refused(coupon, ERROR.format("issue"), lambda c: c.issue_raw(*requests))
    refused(coupon, ERROR.format("slot_free"), slot_free, good, (user, *good[1:]))
    refused(coupon, ERROR.format("late"), late, (1, 0, 0, user, 1, BATCH, 0, "", "issued"))
    for what in ("issued", "single", "flight"):
        pairs = ("1", f"1:{BATCH}:0:", user, f"1:{BATCH}:1:")
        refused(coupon, ERROR.format("fill"), lambda c: fill(c, what, *pairs))
    assert user_state(coupon, user) == [None, "complete"]


@pytest.mark.parametrize("place", [0, 1, 31, 63])
def test_each_byte_of_a_user(coupon, place):
    """Each of 256 in a user of 64 bytes."""
    coupon.put(total=1000)
    taken = 0
    for c in range(256):
        user = "u" * place + chr(c) + "u" * (63 - place)
        if 0x20 < c < 0x7F:
            taken += 1
            assert coupon.issue(user).verdicts == [1]
        else:
            with pytest.raises(redis.ResponseError, match="couponmq: user: not 1 to 64 bytes"):
                coupon.issue_raw(user)
    assert len(coupon.users()) == taken == 94


@pytest.mark.parametrize("user", HOSTILE)
def test_malformed_records_name_the_user(coupon, user):
    coupon.put()
    coupon.redis.hset(coupon.keys[1], user, "x")
    sentence = f"users: malformed records of user {user} (issue.lua)"
    refused(coupon, sentence, lambda c: c.issue_raw(user))
