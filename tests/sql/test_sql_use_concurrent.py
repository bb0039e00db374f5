"""use() from several connections at once, against a model of each receive and each budget."""

import random
import uuid
from collections import Counter

import pytest
from psycopg.errors import SerializationFailure

from seed import seeds
from sql_db import Operation, batch_make
from stack import wait_until


def use_retrying(db, *operations):
    """As a worker does; any error but 40001, in particular a deadlock, is a failure."""
    while True:
        try:
            return db.use(*operations)
        except SerializationFailure:
            pass


def issued(db, coupon, users, **fields):
    receives = batch_make(coupon, users, **fields)
    assert db.settle(*receives) == ["issued"] * len(receives)
    return receives


@pytest.mark.parametrize("action", ["hold", "use"])
def test_a_thousand_racers_for_one_receive(db, db_new, coupon_new, background, action):
    (one,) = issued(db, coupon_new(), ["1"])
    racers = [Operation(action, f"order-{n}", (one,)) for n in range(1000)]
    calls = [racers[first : first + 50] for first in range(0, 1000, 50)]

    def work(connection, share):
        return [row["result"] for call in share for (row,) in use_retrying(connection, *call)]

    workers = [background(work, db_new(), calls[worker::4]) for worker in range(4)]
    results = Counter(result for worker in workers for result in worker.result())
    won, lost = {"hold": ("held", "held_by_other"), "use": ("used", "already_used")}[action]
    assert results == {won: 1, lost: 999}


def test_an_order_waits_for_another(db, db_new, coupon_new, background):
    """From before it judges until its end: here both would write after they have judged."""
    (one,) = issued(db, coupon_new(), ["1"])
    db.use(Operation("release", "a", (one,)))
    db.execute("BEGIN")
    db.execute("LOCK TABLE use_operation IN EXCLUSIVE MODE")
    sessions = [db_new() for _ in range(2)]
    both = [
        background(one_of.use, Operation("use", str(one_of.pid), (one,))) for one_of in sessions
    ]
    wait_until(lambda: all(db.is_blocked(one_of.pid) for one_of in sessions))
    db.execute("COMMIT")
    results = sorted(running.result()[0][0]["result"] for running in both)
    assert results == ["already_used", "used"]


@pytest.mark.parametrize("hold", [True, False])
def test_an_order_that_has_waited_sees_who_has_it_now(db, db_new, coupon_new, background, hold):
    """It had read that nothing speaks against it."""
    (one,) = issued(db, coupon_new(), ["1"])
    db.use(Operation("hold", "a", (one,)))
    if not hold:
        db.use(Operation("release", "a", (one,)))
    db.execute("BEGIN")
    db.use(Operation("release", "a", (one,)), Operation("hold", "b", (one,)))
    other = db_new()
    waiting = background(other.use, Operation("use", "a", (one,)))
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert waiting.result()[0][0]["result"] == "held_by_other"
    assert db.execute("SELECT state, order_id FROM receive_use") == [("held", "b")]


def test_a_copy_waits_for_the_first(db, db_new, coupon_new, background):
    (one,) = issued(db, coupon_new(), ["1"])
    used = Operation("use", "a", (one,), key="k")
    db.execute("BEGIN")
    first = db.use(used)
    other = db_new()
    copy = background(other.use, used)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert copy.result()[0][0]["record"] == first[0][0]["record"]
    assert copy.result()[0][0]["now_state"] == "used"
    assert db.execute("SELECT count(*) FROM use_operation WHERE coupon_id = %s", one.coupon) == [
        (1,)
    ]


@pytest.mark.parametrize("which", ["plain", "refused", "several", "any", "unissued"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_key_for_two_requests_at_once(db, db_new, coupon_new, background, which, end):
    """On different receives: no lock of a receive makes the second wait. If the first is undone,
    the second is executed."""
    coupon = coupon_new()
    one, two, three, four = issued(db, coupon, list("1234"))
    (late,) = batch_make(coupon, ["5"])
    if which == "refused":
        db.use(*[Operation("use", "of-another", (receive,)) for receive in (one, two)])
    first, second, done = {
        "plain": ((one,), (two,), "used"),
        "refused": ((one,), (two,), "already_used"),
        "several": ((one, three), (two, four), "used"),
        "any": (((coupon, "1"),), ((coupon, "2"),), "used"),
        "unissued": ((one,), (late,), "not_found"),
    }[which]
    db.execute("BEGIN")
    db.use(Operation("use", "a", first, key="k", by="shop"))
    other = db_new()
    waiting = background(
        use_retrying,
        other,
        Operation("use", "a", second, key="k", by="shop"),
        Operation("hold", "a", second, key="k", by="shop"),  # another action: another key
    )
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute(end)
    told = [{row["result"] for row in rows} for rows in waiting.result()]
    if end == "ROLLBACK":
        assert told[0] == {done}
    else:
        assert told[0] == {"key_taken"}
        held = {"plain": "held", "several": "held", "any": "held"}.get(which, done)
        assert told[1] == {held}, "the others of the call are executed"
    keys = db.execute(
        "SELECT count(DISTINCT at) FROM use_operation WHERE action = 'use' AND key = 'k'"
    )
    assert keys == [(1,)]


def test_keys_of_others_do_not_wait(db, db_new, coupon_new):
    """A key is one of its client, and of its action."""
    one, two, three = issued(db, coupon_new(), list("123"))
    db.execute("BEGIN")
    db.use(Operation("use", "a", (one,), key="k", by="shop"), Operation("use", "a", (one,)))
    other = db_new()
    other.execute("SET statement_timeout = '10s'")
    told = other.use(
        Operation("use", "b", (two,), key="k", by="another"),
        Operation("use", "b", (three,), key="k"),
        Operation("rollback", "b", (two,), key="k", by="shop"),
    )
    assert [row["result"] for (row,) in told] == ["used", "used", "rolled_back"]
    db.execute("COMMIT")


def test_keys_in_opposite_order_never_deadlock(db, db_new, coupon_new, background):
    """Each key names a receive here and another one there. One of the two has it."""
    coupon = coupon_new(1000)
    other = db_new()
    for n in range(20):
        receives = issued(db, coupon, [f"{n}.{user}" for user in range(40)])
        keys = [f"{n}/{which}" for which in range(20)]
        here, there = [
            [Operation("use", "a", (one,), key=key) for one, key in zip(part, order)]
            for part, order in ((receives[:20], keys), (receives[20:], keys[::-1]))
        ]
        running = background(use_retrying, other, *there)
        told = use_retrying(db, *here), running.result()[::-1]
        for (mine,), (theirs,) in zip(*told, strict=True):
            assert {mine["result"], theirs["result"]} == {"used", "key_taken"}


def test_copies_of_what_is_not_issued_yet(db, db_new, coupon_new, background):
    """No row of the receive can be locked. The second copy finds what the first has written, not
    that the receive was issued meanwhile."""
    (one,) = batch_make(coupon_new(), ["1"])
    used = Operation("use", "a", (one,), key="k")
    db.execute("BEGIN")
    assert db.use(used)[0][0]["result"] == "not_found"
    other = db_new()
    assert other.settle(one) == ["issued"]
    copy = background(use_retrying, other, used)
    wait_until(lambda: db.is_blocked(other.pid))
    db.execute("COMMIT")
    assert copy.result()[0][0]["result"] == "not_found"
    assert db.use(Operation("use", "a", (one,)))[0][0]["result"] == "used"


def test_a_receive_that_is_issued_while_an_order_waits(db, db_new, coupon_new, budget, background):
    """It is named by others then. The order has a lock of the budget, for which they wait: it does
    not wait for them, and is to be tried again."""
    coupon = coupon_new(amount_off=1, currency="EUR", budget=budget(2))
    (one,) = issued(db, coupon, ["1"])
    (late,) = batch_make(coupon, ["2"])
    db.use(Operation("release", "a", (one,)))
    db.execute("BEGIN")
    db.execute("SELECT FROM receive_use WHERE coupon_id = %s FOR NO KEY UPDATE", coupon)
    waits, other, owner = [db_new() for _ in range(3)]
    orders = [Operation("use", "a", (one,)), Operation("use", "a", (late,))]
    waiting = background(waits.use, *orders)
    wait_until(lambda: db.is_blocked(waits.pid))
    assert other.settle(late) == ["issued"]
    other.use(Operation("release", "b", (late,)))
    owner.execute("BEGIN")
    owner.execute("SELECT FROM budget FOR NO KEY UPDATE")
    db.execute("COMMIT")
    blocked_by = "SELECT %s = ANY (pg_blocking_pids(%s))"
    wait_until(lambda: db.execute(blocked_by, owner.pid, waits.pid) == [(True,)])
    takes = background(other.use, Operation("use", "b", (late,)))
    wait_until(lambda: db.is_blocked(other.pid))
    owner.execute("COMMIT")
    with pytest.raises(SerializationFailure):
        waiting.result()
    assert takes.result()[0][0]["result"] == "used"
    assert [row["result"] for (row,) in waits.use(*orders)] == ["used", "already_used"]
    assert db.execute(
        "SELECT order_id FROM receive_use WHERE coupon_id = %s ORDER BY user_id", coupon
    ) == [("a",), ("b",)]


def test_the_end_of_a_hold_frees_no_receive_that_is_taken(db, db_new, coupon_new):
    (one,) = issued(db, coupon_new(), ["1"])
    db.use(Operation("hold", "a", (one,)))
    db.execute("UPDATE receive_use SET until = clock_timestamp() WHERE coupon_id = %s", one.coupon)
    db.execute("BEGIN")
    assert db.use(Operation("use", "b", (one,)))[0][0]["result"] == "used"
    other = db_new()
    other.execute("SET statement_timeout = '10s'")
    other.query("use_free", 100)
    db.execute("COMMIT")
    other.query("use_free", 100)
    assert db.execute(
        "SELECT state, order_id FROM receive_use WHERE coupon_id = %s", one.coupon
    ) == [("used", "b")]


UNDONE = {"released": "held", "rolled_back": "used"}  # what it was
REFUSED = {"held_by_other": "held", "already_used": "used"}  # what it is


def test_what_the_keeper_waits_to_free_is_not_missed(db, db_new, coupon_new, background):
    """It locks budgets first, too: else who has locked one would find it spent."""
    budget = f"f{db.pid}"
    db.execute("INSERT INTO budget (name, currency, amount) VALUES (%s, 'EUR', 100)", budget)
    coupon = coupon_new(amount_off=100, currency="EUR", budget=budget)
    one, other = issued(db, coupon, ["1", "2"])
    db.use(Operation("hold", "a", (one,)))
    db.execute("UPDATE receive_use SET until = clock_timestamp() WHERE coupon_id = %s", coupon)
    db.execute("BEGIN")
    db.execute("SELECT FROM budget WHERE name = %s FOR NO KEY UPDATE", budget)
    keeper = db_new()
    freeing = background(keeper.query, "use_free", 100)
    wait_until(lambda: db.is_blocked(keeper.pid))
    assert db.use(Operation("use", "b", (other,)))[0][0]["result"] == "used"
    db.execute("COMMIT")
    freeing.result()
    assert db.execute("SELECT held, spent FROM budget WHERE name = %s", budget) == [(0, 100)]


def test_orders_with_the_same_receives_never_deadlock(db, db_new, coupon_new, background):
    """In opposite order, of two coupons with a budget each, in one operation or several."""
    one, two = db_new(), db_new()
    for n in range(20):
        names = [f"d{db.pid}.{n}.{which}" for which in "ab"]
        for name in names:
            db.execute("INSERT INTO budget (name, currency, amount) VALUES (%s, 'EUR', 1000)", name)
        receives = [
            receive
            for name in reversed(names)
            for receive in issued(
                db, coupon_new(amount_off=1, currency="EUR", budget=name), list("12345")
            )
        ]
        there = [Operation("use", "a", tuple(receives[k : k + 2])) for k in (0, 2, 4, 6, 8)]
        back = [Operation("use", "b", tuple(reversed(receives)))]
        running = background(use_retrying, two, *back)
        results = [row["result"] for rows in use_retrying(one, *there) for row in rows]
        others = {row["result"] for row in running.result()[0]}
        assert (set(results), others) in [
            ({"used"}, {"already_used"}),
            ({"already_used"}, {"used"}),
        ]


def test_plain_operations_never_deadlock(db, db_new, coupon_new, background):
    """In opposite order; orders have named half of the receives before."""
    budget = f"p{db.pid}"
    db.execute("INSERT INTO budget (name, currency, amount) VALUES (%s, 'EUR', 1000)", budget)
    coupon = coupon_new(200, amount_off=1, currency="EUR", budget=budget)
    other = db_new()
    for n in range(20):
        receives = issued(db, coupon, [f"{n}.{user}" for user in range(10)])
        db.use(*[Operation("release", "c", (one,)) for one in receives[::2]])
        calls = [
            [Operation("use", order, (one,), amount=1) for one in receives[::step]]
            for order, step in (("a", 1), ("b", -1))
        ]
        running = background(use_retrying, other, *calls[1])
        told = use_retrying(db, *calls[0]), running.result()[::-1]
        for (here,), (there,) in zip(*told, strict=True):
            assert {here["result"], there["result"]} == {"used", "already_used"}
    assert db.execute("SELECT spent FROM budget WHERE name = %s", budget) == [(200,)]


class Model:
    """What may be, by the history: every operation in the order of its number."""

    def __init__(self):
        self.state = {}

    def take(self, receive, action, order, result, amount, amount_off):
        state, holder, off = self.state.get(receive, ("free", None, None))
        own, what = holder == order, (receive, action, order, result, amount, state, holder, off)
        is_part = action == "rollback" and amount is not None
        if result in ("held", "used"):
            assert state == "free" or own, what
            assert not (result == "held" and state == "used")
            self.state[receive] = (result, order, amount_off)
        elif result == "rolled_back" and is_part:
            assert state == "used" and own and amount_off == (off or 0) - amount, what
            self.state[receive] = (state, holder, amount_off)
        elif result in UNDONE:
            assert state == "free" or own and state == UNDONE[result], what
            self.state[receive] = ("free", None, None)
        elif result in REFUSED:
            assert state == REFUSED[result], what
        elif result == "not_used":
            assert own and state == "held" or is_part and state == "free", what
        elif result == "amount_exceeded":
            assert is_part and own and state == "used" and amount > (off or 0), what


def operations_random(rng, receives, amounts):
    made = []
    for _ in range(rng.randrange(1, 30)):
        named = rng.sample(receives, rng.choice([1, 1, 1, 1, 2, 3]))
        if len(named) == 1 and rng.random() < 0.3:
            named = [(named[0].coupon, named[0].user)]
        made.append(
            Operation(
                action := rng.choice(["hold", "use", "use", "release", "rollback", "rollback"]),
                rng.choice("abc"),
                tuple(named),
                key=uuid.UUID(int=rng.getrandbits(128)).hex,
                amount=rng.choice([None, None, 1, 150] if action == "rollback" else amounts),
            )
        )
    return made


@pytest.mark.parametrize("seed", seeds(6))
def test_whatever_happens(db, db_new, coupon_new, background, seed):
    rng = random.Random(seed)
    budget = f"b{seed}.{db.pid}"
    total = rng.choice([0, 1500, 4000, 10**6])
    db.execute(
        "INSERT INTO budget (name, currency, amount) VALUES (%s, 'EUR', %s)",
        budget,
        total,
    )
    coupons = [
        coupon_new(percent_off=50, currency="EUR", budget=budget, limit=2),
        coupon_new(amount_off=300, currency="EUR", budget=budget, limit=2),
        coupon_new(limit=2),
    ]
    receives = [one for coupon in coupons for one in issued(db, coupon, list("123"))]
    late = [one for coupon in coupons for one in batch_make(coupon, list("123"), 4, slot=2)]
    calls = [operations_random(rng, receives + late, [0, 999, 1000]) for _ in range(30)]
    calls += rng.choices(calls, k=10)  # copies
    rng.shuffle(calls)

    def work(connection, share):
        return [
            (operation, rows)
            for call in share
            for operation, rows in zip(call, use_retrying(connection, *call), strict=True)
        ]

    workers = [background(work, db_new(), calls[worker::4]) for worker in range(4)]
    for one in rng.sample(late, len(late)):
        db.settle(one)
    told = [pair for worker in workers for pair in worker.result()]

    first = {}
    for operation, rows in told:
        results = [row["result"] for row in rows]
        assert first.setdefault(operation, results) == results, "a copy is answered as the first"
        refused = [result for result in results if result not in ("held", "used", *UNDONE)]
        assert not refused or len(refused) == len(results), "all or none"

    model, history = Model(), db.execute(
        "SELECT coupon_id, batch, idx, action, order_id, result, amount, amount_off"
        " FROM use_operation WHERE coupon_id = ANY (%s) ORDER BY num",
        coupons,
    )
    for coupon, batch, idx, *done in history:
        model.take((coupon, batch, idx), *done)
    rows = db.execute(
        "SELECT coupon_id, batch, idx, state, order_id, amount_off, budget FROM receive_use"
        " WHERE coupon_id = ANY (%s)",
        coupons,
    )
    sums = Counter()
    for *receive, state, order, amount_off, name in rows:
        wanted = (state, order, amount_off if state != "free" else None)
        assert model.state.get(tuple(receive), ("free", None, None)) == wanted
        assert (name == budget) == (state != "free" and receive[0] != coupons[2])
        sums[state] += amount_off if name else 0
    counted = db.execute("SELECT held, spent FROM budget WHERE name = %s", budget)
    assert counted == [(sums["held"], sums["used"])]
    assert sum(counted[0]) <= total
