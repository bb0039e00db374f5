"""issue.lua: each verdict and their order, keys, several requests of a user, numbers and
message."""
import json

import pytest

from script_coupon import BUSY, ENDED, LIMIT_REACHED, NOT_STARTED, OUT_OF_STOCK, PAUSED
from ulid import ulid_make

HOUR = 3600 * 1000
MAX_ID = str(2**63 - 1)


def closed_terms(coupon):
    """States that refuse every user, by verdict."""
    now = coupon.time_ms()
    return {
        PAUSED: {"status": "paused"},
        ENDED: {"status": "closed"},
        NOT_STARTED: {"begin": now + HOUR},
        OUT_OF_STOCK: {"stock": 0},
    }


def test_accepts_one(coupon):
    coupon.put(total=10, generation=3, seq=41)
    batch = ulid_make()
    before = coupon.time_ms()
    a = coupon.issue("42", batch=batch)
    after = coupon.time_ms()
    assert (a.state, a.generation, a.seq, a.stock, a.begin_ms) == ("ok", 3, 42, 9, 0)
    assert a.verdicts == [1]
    assert before <= a.now_ms <= after
    assert coupon.users() == {"42": f"1:{batch}:0:"}
    assert coupon.outbox() == {batch: a.body}
    assert (coupon.get("stock"), coupon.get("seq")) == ("9", "42")


def test_body_is_exact(coupon):
    coupon.put(total=10, generation=3, seq=8120, limit=2)
    batch = ulid_make()
    a = coupon.issue("42", ("43", "order-77"), "42", "44", batch=batch)
    assert a.body == (
        '{"v":1,"batch":"%s","coupon":"%s","generation":3,"seq":8121,"at":%d,"receives":'
        '[["42",1,""],["43",1,"order-77"],["42",2,""],["44",1,""]]}' % (batch, coupon.id, a.now_ms)
    )
    assert coupon.outbox() == {batch: a.body}


def test_body_ends_right_with_a_keyed_receive(coupon):
    coupon.put()
    a = coupon.issue("1", ("2", "k"))
    assert a.message["receives"] == [["1", 1, ""], ["2", 1, "k"]]


@pytest.mark.parametrize("count", [1, 2, 128, 255, 256])
def test_batch_sizes(coupon, count):
    coupon.put(total=1000)
    users = [str(10**15 + i) for i in range(count)]
    batch = ulid_make()
    a = coupon.issue(*users, batch=batch)
    assert a.verdicts == [1] * count
    assert a.message["receives"] == [[u, 1, ""] for u in users]
    assert coupon.users() == {u: f"1:{batch}:{i}:" for i, u in enumerate(users)}


def test_largest_call(coupon):
    coupon.put(total=1000)
    requests = [(str(2**63 - 1 - i), "\\" * 64) for i in range(256)]
    a = coupon.issue(*requests)
    assert a.message["receives"] == [[u, 1, k] for u, k in requests]
    assert coupon.issue(*requests).verdicts == [f"1:{a.message['batch']}:{i}" for i in range(256)]


def test_numbers_stay_exact_near_2_53(coupon):
    big = 2**53 - 1
    coupon.put(total=big, generation=big - 1, seq=big - 10)
    a = coupon.issue("1", "2", seen=(big - 1, big - 10))
    assert (a.generation, a.seq, a.stock) == (big - 1, big - 8, big - 2)
    assert (a.message["generation"], a.message["seq"]) == (big - 1, big - 9)
    assert (coupon.get("stock"), coupon.get("seq")) == (str(big - 2), str(big - 8))


@pytest.mark.parametrize("user", ["1", "9007199254740993", "1234567890123456789", MAX_ID])
def test_ids_survive_exactly(coupon, user):
    coupon.put()
    a = coupon.issue(user)
    assert a.message["receives"][0][0] == user
    assert a.message["coupon"] == coupon.id
    assert list(coupon.users()) == [user]


def test_neighbours_beyond_2_53_are_different_users(coupon):
    coupon.put()
    assert coupon.issue("9007199254740992", "9007199254740993").verdicts == [1, 1]


def test_seq_is_dense_across_calls(coupon):
    coupon.put(total=7)
    numbers = []
    for users in (["1"], ["1", "2", "3"], ["1", "2"], ["4", "5", "6", "7", "8"]):
        a = coupon.issue(*users)
        if a.body:
            numbers += range(a.message["seq"], a.message["seq"] + len(a.message["receives"]))
        assert a.seq == len(numbers) == int(coupon.get("seq"))
    assert numbers == [1, 2, 3, 4, 5, 6, 7]


# Refusals


@pytest.mark.parametrize("verdict", [PAUSED, ENDED, NOT_STARTED, OUT_OF_STOCK])
@pytest.mark.parametrize("key", ["", "k"])
def test_closed_to_all(coupon, verdict, key):
    coupon.put(**closed_terms(coupon)[verdict])
    before = coupon.snapshot()
    a = coupon.issue(("1", key), ("2", key))
    assert a.verdicts == [verdict, verdict]
    assert a.body == "" and a.seq == 0
    assert coupon.snapshot() == before


def test_ended_by_the_window(coupon):
    coupon.put(end=coupon.time_ms() - 1)
    assert coupon.issue("1").verdicts == [ENDED]


def test_open_inside_the_window(coupon):
    now = coupon.time_ms()
    coupon.put(begin=now - HOUR, end=now + HOUR)
    a = coupon.issue("1")
    assert a.verdicts == [1] and a.begin_ms == now - HOUR


def edge_seen(coupon, field, before, after):
    """Calls without pause across the boundary until one call is in its exact millisecond."""
    for attempt in range(50):
        edge = coupon.time_ms() + 5
        coupon.put(**{field: edge, "total": 1000000})
        on_edge = False
        user = 0
        now = 0
        while now <= edge:
            user += 1
            a = coupon.issue(str(user))
            now = a.now_ms
            assert a.verdicts == [before if now < edge else after]
            on_edge = on_edge or now == edge
        if on_edge:
            return
    pytest.fail("no call was in the exact millisecond")


def test_begin_is_inside(coupon):
    edge_seen(coupon, "begin", NOT_STARTED, 1)


def test_end_is_outside(coupon):
    edge_seen(coupon, "end", 1, ENDED)


def test_stock_runs_out_inside_a_call(coupon):
    coupon.put(total=2)
    batch = ulid_make()
    a = coupon.issue("1", "2", "3", ("4", "k"), ("1", ""), batch=batch)
    assert a.verdicts == [1, 1, OUT_OF_STOCK, OUT_OF_STOCK, OUT_OF_STOCK]
    assert a.stock == 0 and coupon.get("stock") == "0"
    assert coupon.users() == {"1": f"1:{batch}:0:", "2": f"1:{batch}:1:"}


def test_limit(coupon):
    coupon.put(limit=2)
    assert coupon.issue("1").verdicts == [1]
    assert coupon.issue("1", "1").verdicts == [2, LIMIT_REACHED]
    assert coupon.issue("1", ("1", "k")).verdicts == [LIMIT_REACHED, LIMIT_REACHED]


def test_indexes_count_only_the_accepted(coupon):
    coupon.put(limit=1)
    coupon.issue("1")
    batch = ulid_make()
    a = coupon.issue("1", "2", "1", ("3", "k"), batch=batch)
    assert a.verdicts == [LIMIT_REACHED, 1, LIMIT_REACHED, 1]
    assert coupon.users()["2"] == f"1:{batch}:0:"
    assert coupon.users()["3"] == f"1:{batch}:1:k"


def test_limit_100(coupon):
    coupon.put(limit=100, total=200)
    a = coupon.issue(*["7"] * 101)
    assert a.verdicts == list(range(1, 101)) + [LIMIT_REACHED]
    assert [r[1] for r in a.message["receives"]] == list(range(1, 101))
    assert len(coupon.users()["7"].split("\n")) == 100
    assert coupon.issue("7").verdicts == [LIMIT_REACHED]


def test_order_of_verdicts(coupon):
    """With every reason at once, the verdicts follow the declared order as the reasons are removed
    one by one."""
    now = coupon.time_ms()
    coupon.put(limit=1, total=5)
    first = coupon.issue(("1", "mine"))
    coupon.set(status="paused", begin=now + HOUR, end=now - HOUR, total=1, stock=0)
    known = "1:%s:0" % first.message["batch"]
    for verdict, healed in (
        (PAUSED, {"status": "closed"}),
        (ENDED, {"status": "open"}),
        (NOT_STARTED, {"begin": 0}),
        (ENDED, {"end": 0}),
        (OUT_OF_STOCK, {"stock": 3, "total": 4}),
        (LIMIT_REACHED, {"limit": 2}),
        (BUSY, {"limit": 2}),
    ):
        requests = ["1", ("1", "other"), ("1", "mine")]
        assert coupon.issue(*requests, unsettled_max=1).verdicts == [verdict, verdict, known]
        coupon.set(**healed)
    assert coupon.issue(("1", "mine"), "1", unsettled_max=2).verdicts == [known, 2]


# The bound of the outbox


def fill_outbox(coupon, messages, **terms):
    """A coupon with so many messages that are not settled: user `first1` has the key `k`."""
    coupon.put(**terms)
    for n in range(1, messages + 1):
        coupon.issue((f"first{n}", "k"))
    assert len(coupon.outbox()) == messages


@pytest.mark.parametrize("key", ["", "k"])
def test_no_message_is_added_at_the_bound(coupon, key):
    fill_outbox(coupon, 3)
    before = coupon.snapshot()
    for bound in (3, 2, 1):
        a = coupon.issue(("1", key), ("2", key), ("1", key), unsettled_max=bound)
        assert a.verdicts == [BUSY] * 3
        assert (a.body, a.seq, a.stock) == ("", 3, 97)
        assert coupon.snapshot() == before
    assert coupon.issue(("1", key), ("2", key), unsettled_max=4).verdicts == [1, 1]
    assert coupon.issue(("3", key), unsettled_max=4).verdicts == [BUSY]


def test_the_bound_is_of_messages(coupon):
    """One call adds one message, so the call that reaches the bound is accepted whole."""
    coupon.put(total=1000)
    users = [str(n) for n in range(256)]
    assert coupon.issue(*users, unsettled_max=1).verdicts == [1] * 256
    assert coupon.issue("256", unsettled_max=1).verdicts == [BUSY]
    assert len(coupon.outbox()) == 1


def test_a_known_key_at_the_bound(coupon):
    fill_outbox(coupon, 1, limit=2)
    (batch,) = coupon.outbox()
    a = coupon.issue(("first1", "k"), ("first1", "other"), "first1", "1", unsettled_max=1)
    assert a.verdicts == [f"1:{batch}:0", BUSY, BUSY, BUSY]


def test_a_busy_key_is_not_burned(coupon):
    fill_outbox(coupon, 1)
    assert coupon.issue(("1", "k"), unsettled_max=1).verdicts == [BUSY]
    assert coupon.issue(("1", "k"), unsettled_max=2).verdicts == [1]


def test_the_limit_comes_before_the_bound(coupon):
    fill_outbox(coupon, 2)
    a = coupon.issue("first1", "1", ("first2", "new"), unsettled_max=2)
    assert a.verdicts == [LIMIT_REACHED, BUSY, LIMIT_REACHED]


@pytest.mark.parametrize("verdict", [PAUSED, ENDED, NOT_STARTED, OUT_OF_STOCK])
@pytest.mark.parametrize("key", ["", "new"])
def test_a_closed_coupon_comes_before_the_bound(coupon, verdict, key):
    fill_outbox(coupon, 1)
    coupon.set(**closed_terms(coupon)[verdict])
    assert coupon.issue(("1", key), "2", unsettled_max=1).verdicts == [verdict] * 2


def test_a_settled_message_makes_room(coupon):
    fill_outbox(coupon, 2)
    assert coupon.issue("1", unsettled_max=2).verdicts == [BUSY]
    coupon.redis.hdel(coupon.keys[2], sorted(coupon.outbox())[0])
    assert coupon.issue("1", unsettled_max=2).verdicts == [1]
    assert coupon.issue("2", unsettled_max=2).verdicts == [BUSY]


@pytest.mark.parametrize("terms, reads", [({}, 1), ({"status": "paused"}, 0), ({"stock": 0}, 0)])
def test_the_outbox_is_read_only_where_something_may_be_accepted(private_coupon, terms, reads):
    coupon = private_coupon.put(**terms)
    coupon.issue(("1", "k"), "2", unsettled_max=1)
    with coupon.redis.monitor() as monitor:
        coupon.issue(("1", "k"), "2", unsettled_max=1)
        coupon.redis.echo("end")
        seen = []
        for command in monitor.listen():
            if command["command"].startswith("ECHO"):
                break
            if command["client_type"] == "lua":
                seen.append(command["command"].split()[0])
    assert seen.count("HLEN") == reads and "HSETNX" not in seen


# Slots


def test_lowest_free_slot(coupon):
    coupon.put(limit=2)
    first, second = ulid_make(), ulid_make()
    coupon.issue(("1", "a"), "1", batch=first)
    coupon.redis.hset(coupon.keys[1], "1", f"2:{first}:1:")
    a = coupon.issue("1", "1", batch=second)
    assert a.verdicts == [1, LIMIT_REACHED]
    assert sorted(coupon.users()["1"].split("\n")) == [f"1:{second}:0:", f"2:{first}:1:"]


def test_freed_slot_in_the_middle(coupon):
    coupon.put(limit=4)
    batch = ulid_make()
    coupon.redis.hset(coupon.keys[1], "1", f"3:{batch}:0:\n1:{batch}:1:")
    assert coupon.issue("1", "1", "1").verdicts == [2, 4, LIMIT_REACHED]


def test_lowered_limit_counts_slots_above_it(coupon):
    coupon.put(limit=3)
    coupon.issue("1", "1", "1")
    users = coupon.users()["1"].split("\n")
    coupon.set(limit=2)
    assert coupon.issue("1").verdicts == [LIMIT_REACHED]
    coupon.redis.hset(coupon.keys[1], "1", users[2])
    assert coupon.issue("1", "1").verdicts == [1, LIMIT_REACHED]


# Keys


@pytest.mark.parametrize(
    "key",
    [
        "k",
        "order-77",
        'a"b',
        "a\\b",
        "\\",
        '"',
        "a:b:c",
        ":",
        " ",
        "a b ",
        "k" * 64,
        "".join(map(chr, range(0x20, 0x60))),
        "".join(map(chr, range(0x60, 0x7F))),
        "%d%s%0%",
        "\\n",
        '","',
    ],
)
def test_key_gives_the_same_receive(coupon, key):
    coupon.put(limit=2, total=2)
    batch = ulid_make()
    a = coupon.issue(("42", key), batch=batch)
    assert a.verdicts == [1]
    assert json.loads(a.body)["receives"] == [["42", 1, key]]
    assert coupon.users() == {"42": f"1:{batch}:0:{key}"}
    before = coupon.snapshot()
    again = coupon.issue(("42", key), ("42", key))
    assert again.verdicts == [f"1:{batch}:0"] * 2
    assert (again.body, again.stock, again.seq) == ("", 1, 1)
    assert coupon.snapshot() == before


@pytest.mark.parametrize("terms", [PAUSED, ENDED, NOT_STARTED, OUT_OF_STOCK])
def test_known_key_outlives_the_campaign(coupon, terms):
    coupon.put(limit=2)
    coupon.issue("1")
    a = coupon.issue(("9", "x"), ("1", "k"))
    coupon.set(**closed_terms(coupon)[terms])
    batch = a.message["batch"]
    assert coupon.issue(("1", "k"), "1", ("1", "new"), ("9", "x")).verdicts == [
        f"2:{batch}:1",
        terms,
        terms,
        f"1:{batch}:0",
    ]


def test_key_repeated_within_a_call(coupon):
    coupon.put(limit=3, total=2)
    batch = ulid_make()
    a = coupon.issue(("1", "k"), ("1", "k"), "1", ("1", "k"), ("1", "j"), batch=batch)
    assert a.verdicts == [1, f"1:{batch}:0", 2, f"1:{batch}:0", OUT_OF_STOCK]
    assert a.message["receives"] == [["1", 1, "k"], ["1", 2, ""]]


def test_a_key_is_the_users_own(coupon):
    coupon.put()
    assert coupon.issue(("1", "k"), ("2", "k")).verdicts == [1, 1]
    assert coupon.issue(("3", "k")).verdicts == [1]


def test_a_key_is_not_a_part_of_another(coupon):
    coupon.put(limit=5)
    assert coupon.issue(("1", "a:k"), ("1", "k"), ("1", "a"), ("1", "a:")).verdicts == [1, 2, 3, 4]


def test_a_refused_key_is_not_burned(coupon):
    coupon.put(status="paused")
    assert coupon.issue(("1", "k")).verdicts == [PAUSED]
    coupon.set(status="open")
    assert coupon.issue(("1", "k")).verdicts == [1]


def test_several_requests_of_one_user_mixed_with_others(coupon):
    coupon.put(limit=2, total=10)
    batch = ulid_make()
    a = coupon.issue("1", "2", ("1", "a"), "1", ("2", "b"), ("1", "a"), "3", batch=batch)
    assert a.verdicts == [1, 1, 2, LIMIT_REACHED, 2, f"2:{batch}:2", 1]
    assert coupon.users() == {
        "1": f"1:{batch}:0:\n2:{batch}:2:a",
        "2": f"1:{batch}:1:\n2:{batch}:3:b",
        "3": f"1:{batch}:4:",
    }
    assert a.message["receives"] == [
        ["1", 1, ""],
        ["2", 1, ""],
        ["1", 2, "a"],
        ["2", 2, "b"],
        ["3", 1, ""],
    ]


# States without a decision


def test_missing(coupon):
    assert coupon.issue_raw("1") == ["missing", 0, 0]
    assert coupon.snapshot() == {}


def test_unverified(coupon):
    coupon.put(run_id="0" * 40, generation=3, seq=7)
    before = coupon.snapshot()
    assert coupon.issue_raw("1") == ["unverified", 3, 7]
    assert coupon.issue_raw("1", seen=(9, 9)) == ["unverified", 3, 7]
    assert coupon.snapshot() == before
    coupon.set(run_id=coupon.run_id)
    assert coupon.issue_raw("1", run_id="a" * 40)[0] == "unverified"


@pytest.mark.parametrize(
    "seen, state",
    [
        ((3, 8), "behind"),
        ((4, 0), "behind"),
        ((4, 7), "behind"),
        ((3, 7), "ok"),
        ((3, 6), "ok"),
        ((2, 2**53 - 1), "ok"),
        ((0, 0), "ok"),
    ],
)
def test_behind(coupon, seen, state):
    coupon.put(generation=3, seq=7)
    before = coupon.snapshot()
    reply = coupon.issue_raw("1", ("2", "k"), seen=seen)
    assert reply[0] == state
    if state == "behind":
        assert reply == ["behind", 3, 7]
        assert coupon.snapshot() == before


def test_touches_no_key_but_its_own(private_coupon):
    """MONITOR shows every command that a script runs."""
    coupon = private_coupon.put(limit=2)
    coupon.issue("1")
    with coupon.redis.monitor() as monitor:
        coupon.issue("1", ("2", "k"), "3")
        coupon.issue("1", ("2", "k"))
        coupon.redis.echo("end")
        seen = []
        for command in monitor.listen():
            if command["command"].startswith("ECHO"):
                break
            if command["client_type"] == "lua":
                seen.append(command["command"].split())
    assert len(seen) >= 8
    for command in seen:
        assert command[0] == "TIME" or command[1] in coupon.keys, command


@pytest.mark.parametrize("count, words", [("2", ["1", "2"]), ("2k", ["1", "", "2", ""])])
def test_keys_may_be_absent_or_empty(coupon, count, words):
    coupon.put()
    batch = ulid_make()
    (reply,) = coupon.run("issue", coupon.run_id, 9, *coupon.part(batch=batch)[:4], count, *words)
    assert reply[7:] == [1, 1]
    assert coupon.users() == {"1": f"1:{batch}:0:", "2": f"1:{batch}:1:"}


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_message_has_the_traces_of_what_was_accepted(coupon):
    coupon.put(total=4, limit=2)
    coupon.issue(("9", "k"))
    asked = [
        "1",
        ("2", "", "", TRACE),
        ("9", "k", "", TRACE),  # known
        ("3", "", "", f'{TRACE} a"b\\c'),
        ("4", "", "5.1", TRACE),
        ("5", "", "", TRACE),  # sold out
    ]
    answer = coupon.issue(*asked)
    assert answer.verdicts[:2] == [1, 1] and answer.verdicts[3:] == [1, OUT_OF_STOCK, OUT_OF_STOCK]
    assert answer.message["traces"] == {"1": TRACE, "2": f'{TRACE} a"b\\c'}
    assert list(answer.message)[-2:] == ["receives", "traces"]
    assert answer.body in coupon.outbox().values(), "as it is sent again"
    for plain in (coupon.users(), coupon.claimed()):
        assert TRACE not in str(plain)


def test_of_the_first_sixteen_that_are_accepted(coupon):
    coupon.put(total=100)
    coupon.issue(*(f"old{n}" for n in range(20)))
    users = [*(f"old{n}" for n in range(20)), *(f"new{n}" for n in range(20))]
    answer = coupon.issue(*((user, "", "", TRACE) for user in users))
    assert answer.verdicts == [LIMIT_REACHED] * 20 + [1] * 20
    assert answer.message["traces"] == {str(n): TRACE for n in range(16)}


@pytest.mark.parametrize("code", ["", "5.1"])
@pytest.mark.parametrize("key", ["", "k"])
def test_a_trace_beside_a_key_and_a_code(coupon, key, code):
    coupon.put()
    answer = coupon.issue(("1", key, code, ""), ("2", key, "", TRACE), "3")
    assert answer.verdicts == [1, 1, 1]
    assert answer.message["receives"] == [
        ["1", 1, key, *([code] if code else [])],
        ["2", 1, key],
        ["3", 1, ""],
    ]
    assert answer.message["traces"] == {"1": TRACE}
    assert "traces" not in coupon.issue(("4", key, code and "5.2", "")).message


def test_every_index(coupon):
    coupon.put(total=256)
    batch = ulid_make()
    coupon.issue(*map(str, range(256)), batch=batch)
    assert coupon.users() == {str(n): f"1:{batch}:{n}:" for n in range(256)}
