"""slot_free.lua: every result, replays, refused arguments, and a model of it with issue.lua and
terms.lua."""
import random

import pytest
import redis

from keeper_scripts import refused, unchanged
from script_coupon import Coupon
from seed import seeds
from ulid import ulid_make
from user_ids import user_id_random

BIG = 2**53 - 1
OTHER = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def slot_free(coupon, *receives):
    """Each receive: user, slot, batch, index, operation."""
    return coupon.run("slot_free", *(part for one in receives for part in one))


def ended(coupon, *receives):
    reply = slot_free(coupon, *receives)
    assert reply[0] == "ok"
    assert reply[1:3] == [int(coupon.get("stock")), int(coupon.get("lost") or 0)]
    conserved(coupon)
    return reply[3:]


def conserved(coupon):
    c = {name: int(coupon.get(name) or 0) for name in ("total", "stock", "reserved", "lost")}
    assert c["stock"] + coupon.taken() + c["reserved"] + c["lost"] == c["total"]


@pytest.fixture
def three(coupon):
    """Users 1 to 3 with a slot each, of one batch."""
    coupon.put(total=10, limit=2)
    coupon.batch = ulid_make()
    assert coupon.issue("1", ["2", "key : 2"], "3", batch=coupon.batch).verdicts == [1, 1, 1]
    return coupon


# Results


def test_free(three):
    before = three.redis.hgetall(three.keys[0])
    assert ended(three, (2, 1, three.batch, 1, "free")) == ["free"]
    assert sorted(three.users()) == ["1", "3"], "an emptied user is gone"
    assert three.redis.hgetall(three.keys[0]) == {**before, "stock": "8"}
    assert len(three.outbox()) == 1


def test_drop(three):
    before = three.redis.hgetall(three.keys[0])
    assert ended(three, (1, 1, three.batch, 0, "drop"), (2, 1, three.batch, 1, "drop")) == [
        "drop",
        "drop",
    ]
    assert three.redis.hgetall(three.keys[0]) == {**before, "lost": "2", "rebuild": "1"}
    assert ended(three, (3, 1, three.batch, 2, "drop")) == ["drop"]
    assert (three.get("lost"), three.users()) == ("3", {})


def test_give(three):
    before = three.redis.hgetall(three.keys[0])
    record = f"1:{OTHER}:7:its key: x"
    assert ended(three, (1, 1, three.batch, 0, "give " + record)) == ["give"]
    assert three.users()["1"] == record
    assert three.redis.hgetall(three.keys[0]) == before
    assert three.issue(["1", "its key: x"]).verdicts == [
        f"1:{OTHER}:7"
    ], "a retry of the holder finds its receive"


def test_each_its_own_way(three):
    assert ended(
        three,
        (1, 1, three.batch, 0, "free"),
        (2, 1, three.batch, 1, "drop"),
        (3, 1, three.batch, 2, f"give 1:{OTHER}:0:"),
        (4, 1, three.batch, 3, "free"),
    ) == ["free", "drop", "give", "other"]
    assert three.users() == {"3": f"1:{OTHER}:0:"}
    assert (three.get("stock"), three.get("lost")) == ("8", "1")


@pytest.mark.parametrize("slot, what", [(1, "free"), (2, "free"), (1, "drop"), (2, "drop")])
def test_one_slot_of_two(coupon, slot, what):
    coupon.put(total=10, limit=2)
    batch = ulid_make()
    coupon.issue(["1", "a"], ["1", "b"], batch=batch)
    records = coupon.users()["1"].split("\n")
    assert ended(coupon, (1, slot, batch, slot - 1, what)) == [what]
    assert coupon.users()["1"] == records[2 - slot], "the other stays"
    assert coupon.issue("1").verdicts == [slot], "the free one is the lowest"


def test_both_slots_in_one_call(coupon):
    coupon.put(total=10, limit=2)
    batch = ulid_make()
    coupon.issue("1", "1", batch=batch)
    assert ended(coupon, (1, 2, batch, 1, "free"), (1, 1, batch, 0, "drop")) == ["free", "drop"]
    assert coupon.users() == {}


def test_given_and_then_given_back_in_one_call(three):
    assert ended(three, (1, 1, three.batch, 0, f"give 1:{OTHER}:0:"), (1, 1, OTHER, 0, "free")) == [
        "give",
        "free",
    ]
    assert "1" not in three.users()


@pytest.mark.parametrize("changes", [{"user": 4}, {"slot": 2}, {"batch": OTHER}, {"index": 1}])
@pytest.mark.parametrize("what", ["free", "drop", "give"])
def test_another_receive_is_not_touched(three, changes, what):
    receive = {"user": 1, "slot": 1, "batch": three.batch, "index": 0, **changes}
    what = f"give {receive['slot']}:{OTHER}:3:" if what == "give" else what
    unchanged(three, ["ok", 7, 0, "other"], slot_free, (*receive.values(), what))


@pytest.mark.parametrize("what", ["free", "drop", f"give 1:{OTHER}:3:k"])
def test_a_replay_does_nothing(three, what):
    receive = (1, 1, three.batch, 0, what)
    first = slot_free(three, receive, receive)
    assert first[3:] == [what[:4], "other"]
    unchanged(three, ["ok", *first[1:3], "other"], slot_free, receive)
    if what == "free":
        assert three.issue("1").verdicts == [1]
        unchanged(three, ["ok", 7, 0, "other"], slot_free, receive)


def test_missing(coupon):
    unchanged(coupon, ["missing"], slot_free, (1, 1, OTHER, 0, "free"))
    coupon.put().issue("1")
    coupon.redis.delete(coupon.keys[0])
    unchanged(coupon, ["missing"], slot_free, (1, 1, OTHER, 0, "free"))


def test_whatever_the_state_of_the_coupon(three):
    three.set(status="closed", run_id="1" * 40, generation=9)
    assert ended(three, (1, 1, three.batch, 0, "free")) == ["free"]


def test_what_is_lost_is_not_given_out(coupon):
    coupon.put(total=2, limit=1)
    batch = ulid_make()
    coupon.issue("1", "2", batch=batch)
    assert ended(coupon, (1, 1, batch, 0, "drop")) == ["drop"]
    assert coupon.issue("1", "3").verdicts == [-2, -2]
    assert coupon.run("terms", 2, "open", 3, 0, 0, 1) == "applied"
    conserved(coupon)
    assert coupon.issue("1", "3").verdicts == [1, -2]


@pytest.mark.parametrize(
    "total, stock, lost", [(12, 5, 3), (8, 1, 3), (7, 0, 3), (6, 0, 2), (5, 0, 1), (4, 0, 0)]
)
def test_new_terms_take_from_the_stock_and_then_from_what_is_lost(coupon, total, stock, lost):
    coupon.put(total=10, stock=6, reserved=1, lost=3, rebuild=1)
    coupon.issue("1", "2", "3")
    assert coupon.run("terms", 2, "paused", total, 0, 0, 1) == "applied"
    assert [int(coupon.get(name) or 0) for name in ("total", "stock", "lost")] == [
        total,
        stock,
        lost,
    ]
    assert coupon.get("rebuild") == ("1" if lost else None)
    conserved(coupon)


def test_new_terms_never_below_what_is_taken(coupon):
    coupon.put(total=10, stock=3, reserved=1, lost=3)
    coupon.redis.hset(coupon.keys[1], mapping={str(n): f"1:{OTHER}:{n}:" for n in (1, 2, 3)})
    unchanged(coupon, ["taken", 4], lambda c: c.run("terms", 2, "open", 3, 0, 0, 1))
    coupon.set(lost=8)
    refused(coupon, "coupon: ", lambda c: c.run("terms", 2, "open", 10, 0, 0, 1))


def test_numbers_stay_whole(coupon):
    coupon.put(total=BIG, stock=BIG - 3, reserved=1, lost=0)
    coupon.redis.hset(coupon.keys[1], "1", f"1:{OTHER}:0:")
    coupon.redis.hset(coupon.keys[1], "9223372036854775807", f"100:{OTHER}:255:")
    assert ended(
        coupon, (1, 1, OTHER, 0, "free"), ("9223372036854775807", 100, OTHER, 255, "drop")
    ) == ["free", "drop"]
    assert (coupon.get("stock"), coupon.get("lost")) == (str(BIG - 2), "1")


def test_256(coupon):
    coupon.put(total=300)
    batch = ulid_make()
    coupon.issue(*range(1, 257), batch=batch)
    assert ended(coupon, *((n + 1, 1, batch, n, "free") for n in range(256))) == ["free"] * 256
    assert (coupon.users(), coupon.get("stock")) == ({}, "300")


# Refused arguments


@pytest.mark.parametrize(
    "records",
    [
        "",
        "x",
        "\n",
        f"1:{OTHER}:0:\n",
        f"01:{OTHER}:0:",
        f"1:{OTHER}:256:",
        f"1:{OTHER}:00:",
        f"101:{OTHER}:0:",
        f"1:{OTHER}0:0:",
        f"1:{OTHER}:0:" + "k" * 256,
        f"1:{OTHER}:0:\x7f",
        f"1:{OTHER}:0:\n1:{OTHER}:1:",
    ],
)
def test_malformed_records_stop_nobody_else(three, records):
    three.redis.hset(three.keys[1], "3", records)
    reply = slot_free(
        three, (3, 1, OTHER, 0, "free"), (1, 1, three.batch, 0, "free"), (3, 1, OTHER, 1, "drop")
    )
    assert reply == ["ok", 8, 0, "malformed", "free", "malformed"]
    assert three.users()["3"] == records


GOOD = (1, 1, OTHER, 0, "free")


@pytest.mark.parametrize(
    "place, value, sentence",
    [
        *((0, value, "user: ") for value in ("", "1 ", "1\n", "\0", "\x7f", "\xff", "1" * 65)),
        *(
            (1, value, "slot, batch, index: ")
            for value in ("", "0", "01", "101", "x", f"1:{OTHER}:0:")
        ),
        *(
            (2, value, "slot, batch, index: ")
            for value in ("", OTHER[1:], OTHER + "0", OTHER.lower(), "8" + OTHER[1:], "I" * 26)
        ),
        *((3, value, "slot, batch, index: ") for value in ("", "-1", "01", "256", "1000", "0:")),
        *((4, value, "what: ") for value in ("", "Free", "freed", "give", f"gave 1:{OTHER}:0:")),
        *(
            (4, "give " + value, "give: ")
            for value in (
                "",
                "x",
                f"2:{OTHER}:0:",
                f"1:{OTHER}:0",
                f"1:{OTHER}:256:",
                f"1:{OTHER}:0:" + "k" * 256,
                f"1:{OTHER}:0:a\nb",
                f" 1:{OTHER}:0:",
            )
        ),
    ],
)
def test_bad_argument(three, place, value, sentence):
    bad = [*GOOD[:place], value, *GOOD[place + 1 :]]
    refused(three, sentence, slot_free, (1, 1, three.batch, 0, "free"), bad)


def test_bad_number_of_arguments(three):
    for receives in ([], [GOOD[:4]], [GOOD, (1,)], [GOOD] * 257):
        refused(three, "ARGV: ", slot_free, *receives)


@pytest.mark.parametrize(
    "fields",
    [
        {"total": "x"},
        {"stock": ""},
        {"stock": "-1"},
        {"reserved": "1.5"},
        {"lost": "01"},
        {"lost": "x"},
        {"lost": 4},
        {"reserved": 4},
        {"stock": str(2**53)},
        {"total": 6},
    ],
)
def test_corrupt_coupon(three, fields):
    three.set(**fields)
    refused(three, "coupon: ", slot_free, (1, 1, three.batch, 0, "free"))


def test_never_more_than_the_total(three):
    three.set(reserved=3)
    refused(three, "coupon: more is given back", slot_free, (1, 1, three.batch, 0, "free"))
    refused(three, "coupon: more is given back", slot_free, (1, 1, three.batch, 0, "drop"))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_wrong_type(three, which):
    three.redis.delete(three.keys[which])
    three.redis.set(three.keys[which], "x")
    refused(three, three.keys[which] + ": not a hash", slot_free, GOOD)


def test_wrong_keys(three):
    k = three.keys
    for keys in ([], k[:2], k + k[:1], [k[1], k[0], k[2]], [k[0], "coupon:{1}:users", k[2]]):
        refused(three, "KEYS: ", lambda c: c.run("slot_free", *GOOD, keys=keys))


@pytest.mark.parametrize("what", ["give", "drop"])
def test_redis_without_memory(private_coupon, what):
    coupon = private_coupon.put(total=10, limit=2)
    batch = ulid_make()
    coupon.issue("1", "1", batch=batch)
    coupon.redis.config_set("maxmemory", 1)
    try:
        receive = (1, 1, batch, 0, f"give 1:{OTHER}:0:" if what == "give" else what)
        before = coupon.snapshot()
        with pytest.raises(redis.ResponseError) as e:
            slot_free(coupon, receive)
        assert "command not allowed when used memory" in str(e.value)
        assert coupon.snapshot() == before
        assert slot_free(coupon, (1, 9, batch, 0, "drop"))[3:] == [
            "other"
        ], "a check needs no memory"
    finally:
        coupon.redis.config_set("maxmemory", 0)
    assert ended(coupon, receive) == [what]


# A model


class Model:
    """The holders of the slots."""

    def __init__(self, total, reserved):
        self.total, self.reserved, self.stock, self.lost = total, reserved, total - reserved, 0
        self.slots = {}  # (user, slot): (batch, index, key)

    def slot_free(self, user, slot, batch, index, what):
        if self.slots.get((user, slot), (None, None))[:2] != (batch, index):
            return "other"
        if what.startswith("give "):
            _, its_batch, its_index, its_key = what[5:].split(":", 3)
            self.slots[user, slot] = its_batch, int(its_index), its_key
            return "give"
        del self.slots[user, slot]
        self.stock += what == "free"
        self.lost += what == "drop"
        return what

    def users(self):
        users = {}
        for (user, slot), (batch, index, key) in self.slots.items():
            users.setdefault(user, set()).add(f"{slot}:{batch}:{index}:{key}")
        return users


def what_choose(rng, slot):
    return rng.choice(
        [
            "free",
            "drop",
            f"give {slot}:{ulid_make(rng)}:{rng.randrange(256)}:{rng.choice(['', 'k: 1'])}",
        ]
    )


def receive_choose(rng, model, past):
    """Usually a receive that holds its slot, or once held it."""
    if model.slots and rng.random() < 0.6:
        (user, slot), (batch, index, _) = rng.choice(sorted(model.slots.items()))
        past.append((user, slot, batch, index))
    user, slot, batch, index = rng.choice(past[-1:] + past) if past else ("1", 1, ulid_make(rng), 0)
    return user, slot, batch, index, what_choose(rng, slot)


@pytest.mark.parametrize("seed", seeds(8))
def test_sequence(shared_redis, seed):
    rng = random.Random(seed)
    coupon = Coupon(shared_redis)
    limit, reserved = rng.choice([1, 2, 5]), rng.choice([0, 3])
    model, past = Model(rng.choice([10, 100]), reserved), []
    coupon.put(total=model.total, stock=model.stock, reserved=reserved, limit=limit)
    people = list({user_id_random(rng) for _ in range(rng.choice([2, 30]))})
    try:
        for _ in range(100):
            if rng.random() < 0.5:
                batch, requests = ulid_make(rng), [
                    rng.choice(people) for _ in range(rng.choice([1, 3, 20]))
                ]
                taken = 0
                for user, verdict in zip(requests, coupon.issue(*requests, batch=batch).verdicts):
                    if verdict > 0:
                        assert (user, verdict) not in model.slots
                        model.slots[user, verdict] = batch, taken, ""
                        taken += 1
                model.stock -= taken
            else:
                receives = []
                expected = []
                for _ in range(rng.choice([1, 2, 10])):
                    receives.append(receive_choose(rng, model, past))
                    expected.append(model.slot_free(*receives[-1]))
                assert ended(coupon, *receives) == expected
            assert {
                user: set(records.split("\n")) for user, records in coupon.users().items()
            } == model.users()
            assert [int(coupon.get(name) or 0) for name in ("stock", "lost")] == [
                model.stock,
                model.lost,
            ]
            conserved(coupon)
    finally:
        coupon.delete()


# Voided receives


def test_void(three):
    entry = f"{three.batch}:1:1:voided:2"
    assert ended(three, (2, 1, three.batch, 1, "void")) == ["void"]
    assert sorted(three.users()) == ["1", "3"] and three.get("stock") == "8"
    assert three.redis.lrange(three.rejected, 0, -1) == [entry]
    # Again: nothing more comes back, and the list has it still.
    assert ended(three, (2, 1, three.batch, 1, "void")) == ["other"]
    assert three.get("stock") == "8"
    assert set(three.redis.lrange(three.rejected, 0, -1)) == {entry}


def test_keep(three):
    before = three.redis.hgetall(three.keys[0]), three.users()
    assert ended(three, (1, 1, three.batch, 0, "keep")) == ["keep"]
    assert (three.redis.hgetall(three.keys[0]), three.users()) == before
    assert three.redis.lrange(three.rejected, 0, -1) == [f"{three.batch}:0:1:void_kept:1"]


@pytest.mark.parametrize("what", ["void", "keep"])
def test_the_list_expires_with_the_coupon(three, what):
    for key in three.keys:
        three.redis.pexpire(key, 60000)
    ended(three, (1, 1, three.batch, 0, what))
    assert 50000 < three.redis.pttl(three.rejected) <= 60000
