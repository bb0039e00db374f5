"""use(): hold, use and give back, what a discount is, and budgets."""

import pytest
from psycopg.errors import ArraySubscriptError, CheckViolation, InvalidParameterValue

from sql_db import Operation, array_text, batch_make


@pytest.fixture
def issued(db, coupon_new):
    """issued(n, **terms): n receives of a new coupon, of users 1 to n."""

    def make(count=1, **terms):
        coupon = coupon_new(**terms)
        receives = batch_make(coupon, [str(user) for user in range(1, count + 1)])
        assert db.settle(*receives) == ["issued"] * count
        return receives

    return make


@pytest.fixture
def run(db):
    """run(ACTION, ORDER, receive, ..): what became of each of its receives, a word if all the
    same."""

    def one(action, order, *receives, **more):
        results = [row["result"] for row in db.use(Operation(action, order, receives, **more))[0]]
        return results[0] if len(set(results)) == 1 else results

    return one


def test_the_life_of_a_receive(run, issued):
    (one,) = issued()
    assert run("hold", "a", one) == "held"
    assert (
        run("hold", "b", one) == run("use", "b", one) == run("release", "b", one) == "held_by_other"
    )
    assert run("rollback", "a", one) == "not_used", "release gives up a hold"
    assert run("release", "a", one) == run("release", "a", one) == "released"
    assert run("use", "b", one) == run("use", "b", one) == "used"
    for order in "ab":
        assert run("hold", order, one) == run("release", order, one) == "already_used"
    assert run("use", "a", one) == run("rollback", "a", one) == "already_used"
    assert run("rollback", "b", one) == run("rollback", "b", one) == "rolled_back"
    assert run("hold", "a", one) == "held"
    assert run("use", "a", one) == "used"


NOW = ("now_state", "now_is_own", "now_until_ms")


def first_told(told):
    """Without what the receives are now."""
    return [[{name: row[name] for name in row if name not in NOW} for row in rows] for rows in told]


def test_an_operation_is_executed_once(db, run, issued):
    """A late copy does nothing, whatever happened since, and is answered as the first."""
    (one,) = issued()
    used = Operation("use", "a", (one,), key="k1", amount=1000)
    first = first_told(db.use(used))
    assert run("rollback", "a", one) == "rolled_back"
    assert first_told(db.use(used)) == first
    assert run("hold", "b", one) == "held"
    assert run("use", "c", one, key="k2") == "held_by_other"
    assert run("release", "b", one) == "released"
    assert run("use", "c", one, key="k2") == "held_by_other", "so it was told"
    assert run("use", "b", one, key="k2") == "key_taken"
    assert run("hold", "c", one, key="k2") == "held", "a key is of one action"


def now_of(db, operation):
    """For its first receive: the state now, and whether it is the order's; None: it is new."""
    row = db.use(operation)[0][0]
    return row["now_state"] and (row["now_state"], row["now_is_own"] == "t")


def test_a_copy_tells_what_the_receive_is_now(db, run, issued):
    one, other = issued(2, void_returns=False)
    used = Operation("use", "a", (one,), key="k")
    refused = Operation("hold", "b", (one,), key="k")
    assert now_of(db, used) is None and now_of(db, used) == ("used", True)
    assert now_of(db, refused) is None and now_of(db, refused) == ("used", False)
    assert run("rollback", "a", one) == "rolled_back"
    assert now_of(db, used) == now_of(db, refused) == ("free", False)
    assert run("hold", "b", one) == "held"
    assert now_of(db, used) == ("held", False) and now_of(db, refused) == ("held", True)
    told = db.use(refused)[0][0]
    (until,) = db.execute(
        "SELECT floor(extract(epoch FROM until) * 1000)::bigint FROM receive_use WHERE batch = %s",
        one.batch,
    )
    assert (told["result"], told["now_until_ms"]) == ("already_used", str(until[0]))
    hold_end(db, one)
    assert now_of(db, refused) == ("free", False), "from the end on, though the row is not freed"
    assert run("use", "b", one) == "used"
    assert now_of(db, used) == ("used", False) and now_of(db, refused) == ("used", True)
    void(db, one)
    assert now_of(db, used) == ("used", False), "the use stays"
    assert run("rollback", "b", one) == "rolled_back"
    assert now_of(db, used) == ("voided", False)
    held = Operation("hold", "a", (other,), key="k2")
    assert now_of(db, held) is None and now_of(db, held) == ("held", True)
    void(db, other)
    assert now_of(db, held) == ("voided", False), "though the row is not freed"


def test_a_copy_in_one_call_tells_what_follows(db, issued):
    """What the receives are when the transaction ends."""
    one, other = issued(2)
    told = db.use(
        Operation("use", "a", (one, other), key="k"),
        Operation("use", "a", (one, other), key="k"),
        Operation("rollback", "a", (one,)),
    )
    assert [row["now_state"] for row in told[0] + told[2]] == [None] * 3
    assert [row["now_state"] for row in told[1]] == ["free", "used"]


def test_a_copy_of_one_that_was_not_found(db, issued):
    """It is told when it is there since, and nothing of one that another user has."""
    (one,) = issued()
    late = one.but(idx=1, user="2", slot=1)
    early = Operation("use", "a", (late,), key="k")
    forged = Operation("use", "a", (one.but(user="2"),), key="k2")
    assert now_of(db, early) is None and now_of(db, early) == ("not_found", False)
    assert now_of(db, forged) is None and now_of(db, forged) == ("not_found", False)
    assert db.settle(late.but(seq=2)) == ["issued"]
    assert now_of(db, early) == ("free", False)
    assert now_of(db, forged) == ("not_found", False)


@pytest.mark.parametrize("action", ["hold", "use"])
def test_a_key_is_of_one_request(db, run, issued, action):
    """Another order, other receives (some, more, none of them), amount or currency."""
    one, two, three = issued(3, amount_off=100, currency="EUR")
    (else_where,) = issued(amount_off=100, currency="EUR")
    asked = {"amount": 1000, "currency": "EUR", "key": "k"}
    done = "held" if action == "hold" else "used"
    assert run(action, "a", one, two, **asked) == done
    for order, receives, other in (
        ("b", (one, two), {}),
        ("a", (one,), {}),
        ("a", (two,), {}),
        ("a", (three,), {}),
        ("a", (else_where,), {}),
        ("a", ((three.coupon, three.user),), {}),
        ("b", (three,), {}),
        ("a", (three, else_where), {}),
        ("a", (one, two), {"amount": 1001}),
        ("a", (one, two), {"amount": None, "currency": ""}),
    ):
        assert run(action, order, *receives, **{**asked, **other}) == "key_taken", (order, other)
    assert "key_taken" in run(action, "a", one, two, three, **asked)
    assert run(action, "a", one, two, **asked) == done
    assert run(action, "a", two, one, **asked) == done, "in another order"
    assert states(db, [one, two, three]) == [done, done, "free"]
    assert run(action, "c", three, **{**asked, "key": "k2"}) == done


def test_a_known_key_leaves_the_others_their_short_way(db, run, issued):
    """Executed at once: a first try that is rolled back would have taken numbers."""
    one, two, three = issued(3)
    assert run("use", "a", one, key="k") == "used"
    told = db.use(
        Operation("use", "a", (two,), key="k"), Operation("use", "b", (three,), key="other")
    )
    assert [row["result"] for (row,) in told] == ["key_taken", "used"]
    assert db.execute("SELECT max(num) - min(num) FROM use_operation") == [(1,)]


def test_the_currency_of_a_key(run, issued):
    (one,) = issued()
    assert run("use", "a", one, amount=5, currency="EUR", key="k") == "used"
    assert run("use", "a", one, amount=5, currency="USD", key="k") == "key_taken"


def test_a_key_in_one_call_for_two_receives(db, issued):
    """The first has it, in whatever way the others are executed."""
    one, two, three = issued(3)
    for key in "kl":
        told = db.use(
            *(Operation("use", "a", (receive,), key=key) for receive in (one, two, three))
        )
        assert [row["result"] for (row,) in told] == ["used", "key_taken", "key_taken"]


ROWS_INSERTED = "SELECT n_tup_ins::int FROM pg_stat_xact_user_tables WHERE relname = 'receive_use'"


def test_operations_with_one_key_in_one_call_are_not_plain(db, issued):
    """Else all would be undone by the second one, and done again."""
    receives = issued(3)
    with db.connection.transaction():
        [[before]] = db.execute(ROWS_INSERTED)
        db.use(*(Operation("use", "a", (receive,), key="k") for receive in receives))
        [[after]] = db.execute(ROWS_INSERTED)
    assert after - before == 3


def test_the_keys_of_two_clients(db, run, issued):
    """They do not know of each other, but on one receive."""
    one, two = issued(2)
    assert run("use", "a", one, key="k", by="x") == run("use", "b", two, key="k", by="y") == "used"
    assert run("use", "a", one, key="k", by="y") == "used", "a copy, by another key of the shop"
    assert run("use", "b", one, key="k", by="z") == "key_taken"


def test_a_long_key(run, issued):
    (one,) = issued()
    key = "~" * 255
    assert run("use", "a", one, key=key) == run("use", "a", one, key=key) == "used"
    with pytest.raises(CheckViolation):
        run("use", "a", one, key=key + "~")


ROWS_READ = (
    "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int FROM pg_stat_xact_user_tables"
    " WHERE relname IN ('receive_use', 'use_operation')"
)


LOOK_UPS = ROWS_READ.replace("seq_tup_read + idx_tup_fetch", "idx_scan")


def test_an_operation_reads_its_own_receive_alone(db, issued):
    """However many others there are: the plan is kept for the session, made of empty tables."""
    receives = issued(300, total=300)
    for action in ("hold", "use"):
        db.use(*(Operation(action, "a", (one,)) for one in receives[2:]))
        for one in receives[:2]:
            with db.connection.transaction():
                [[before]] = db.execute(ROWS_READ)
                db.use(Operation(action, "a", (one,)))
                [[after]] = db.execute(ROWS_READ)
            assert after - before < 30


def test_what_nothing_speaks_against_is_done_at_once(db, issued):
    """Also where the order holds the receive, or it is free again: use() judges none of it."""
    new, held, free, of_other = issued(4)
    db.use(Operation("hold", "a", (held,)), Operation("hold", "b", (of_other,)))
    db.use(Operation("use", "a", (free,)), Operation("rollback", "a", (free,)))
    for receive, left in ((new, []), (held, []), (free, []), (of_other, [1])):
        [[todo]] = db.execute(
            "SELECT use_begin('{use}', '{a}', ARRAY[%s], '{\"\"}', '{0}', '{NULL}', '{\"\"}',"
            " '{\"\"}', '{1}', ARRAY[%s]::bigint[], ARRAY[%s], ARRAY[%s]::uuid[],"
            " ARRAY[%s]::smallint[], '{}')",
            f"k{receive.idx}",
            receive.coupon,
            receive.user,
            receive.batch,
            receive.idx,
        )
        assert todo == left
    assert states(db, [new, held, free, of_other]) == ["used", "used", "used", "held"]


def test_copies_in_one_call(db, issued):
    one, other = issued(2)
    used = Operation("use", "a", (one,), key="k")
    refused = Operation("use", "b", (one,), key="k2")
    calls = [used, used, refused, refused, Operation("use", "c", (other,)), used]
    results = [row["result"] for (row,) in db.use(*calls)]
    assert results == ["used", "used", "already_used", "already_used", "used", "used"]
    assert [row["result"] for (row,) in db.use(*calls[:4])] == results[:4]


@pytest.mark.parametrize("action", ["hold", "rollback"])
def test_a_key_in_one_call_for_two_users(db, issued, action):
    """A user who does not have the receive may have the key first."""
    (one,) = issued()
    db.use(Operation("hold", "b", (one,)))
    of_nobody = Operation(action, "a", (one.but(user="999"),), key="k")
    calls = [of_nobody, Operation(action, "a", (one,), key="k"), of_nobody]
    for _ in range(2):
        results = [row["result"] for (row,) in db.use(*calls)]
        assert results == ["not_found", "key_taken", "not_found"]


def test_all_receives_of_an_order_or_none(db, run, issued):
    receives = issued(4)
    assert run("hold", "a", receives[2]) == "held"
    assert run("use", "b", *receives) == ["kept", "kept", "held_by_other", "kept"]
    assert run("use", "b", receives[0]) == "used"
    assert run("use", "a", *receives[1:], receives[0]) == ["kept", "kept", "kept", "already_used"]
    assert run("use", "a", *receives[1:]) == "used"
    assert run("rollback", "a", *receives[1:]) == "rolled_back"
    assert states(db, receives) == ["used", "free", "free", "free"]


def test_what_was_kept_is_not_done(run, issued):
    """One that names some of the receives of a key again is not told that it has them."""
    one, used, other = issued(3)
    assert run("use", "b", used) == "used"
    assert run("use", "a", one, used, key="k") == ["kept", "already_used"]
    assert run("use", "a", one, key="k") == run("use", "a", one, key="k") == "key_taken"
    assert run("use", "a", (one.coupon, "1"), key="k") == "key_taken"
    assert run("use", "a", one, other, key="k") == "key_taken"
    assert run("use", "a", one, used, key="k") == ["kept", "already_used"], "so it was told"


def states(db, receives):
    return [
        row[0]
        for one in receives
        for row in db.execute(
            "SELECT state FROM receive_use WHERE (coupon_id, batch, idx) = (%s, %s, %s)",
            one.coupon,
            one.batch,
            one.idx,
        )
    ]


def test_what_waits_for_what_in_one_call(db, issued):
    """Each sees what those before it have done."""
    one, other = issued(2)
    told = db.use(
        Operation("hold", "a", (one,)),
        Operation("use", "b", (other, one)),
        Operation("release", "a", (one,)),
        Operation("use", "c", (one, other)),
        Operation("rollback", "c", (other,)),
        Operation("use", "b", (other,)),
    )
    assert [[row["result"] for row in rows] for rows in told] == [
        ["held"],
        ["kept", "held_by_other"],
        ["released"],
        ["used", "used"],
        ["rolled_back"],
        ["used"],
    ]


def test_many_of_one_receive_are_looked_at_a_few_times_each(db, issued):
    """An order that holds and gives up all the time keeps no others waiting for long."""
    (one,) = issued()
    many = 200
    asked = [Operation(("hold", "release")[n % 2], "a", (one,)) for n in range(many)]
    with db.connection.transaction():
        [[before]] = db.execute(LOOK_UPS)
        told = db.use(*asked)
        [[after]] = db.execute(LOOK_UPS)
    assert [row["result"] for (row,) in told] == ["held", "released"] * (many // 2)
    assert after - before < many * 60


def test_a_receive_of_another_user(db, run, issued):
    (one,) = issued()
    forged = one.but(user="2")
    assert run("use", "a", forged) == run("hold", "a", one.but(idx=7)) == "not_found"
    told = db.use(Operation("release", "a", (one,)), Operation("use", "a", (forged,)))
    assert [row["result"] for (row,) in told] == ["released", "not_found"]
    assert run("use", "a", one) == "used"
    assert run("rollback", "a", forged) == "not_found"
    assert states(db, [one]) == ["used"]
    assert run("use", "a", (one.coupon, "3")) == "not_found"


def test_any_receive_of_a_user(db, run, coupon_new):
    coupon = coupon_new(limit=2)
    receives = [batch_make(coupon, ["u"], seq_first=n, slot=n)[0] for n in (1, 2)]
    assert db.settle(*receives) == ["issued", "issued"]
    asked = [Operation("use", order, ((coupon, "u"),), key="k" + order) for order in "abc"]
    told = db.use(*asked)
    assert [row["result"] for (row,) in told] == ["used", "used", "already_used"]
    assert [row["of_batch"] for (row,) in told[:2]] == [str(one.batch) for one in receives]
    assert first_told(db.use(*reversed(asked))) == [
        [row | {"of_op": str(4 - int(row["of_op"]))} for row in rows]
        for rows in reversed(first_told(told))
    ]
    assert run("use", "b", (coupon, "u")) == "used", "it is used by that order"
    assert run("rollback", "b", (coupon, "u")) == "rolled_back"
    assert states(db, receives) == ["used", "free"]


@pytest.mark.parametrize(
    "terms, expected",
    [
        ({"valid_from": "2030-01-01", "valid_to": "2031-01-01"}, "not_valid_yet"),
        ({"valid_from": "2020-01-01", "valid_to": "2021-01-01"}, "expired"),
        ({"days": 1}, "expired"),  # the receives are of 2023
    ],
)
def test_validity(run, issued, terms, expected):
    (one,) = issued(**terms)
    assert run("hold", "a", one) == run("use", "a", one) == expected
    assert run("rollback", "a", one) == "rolled_back", "nothing is to be given back"


def void(db, receive):
    assert db.execute(
        "SELECT result FROM coupon_void(%s, %s, %s::smallint, %s, NULL)",
        receive.coupon,
        receive.batch,
        receive.idx,
        receive.user,
    ) == [("voided",)]


@pytest.mark.parametrize("returns", [True, False])
def test_voided(db, run, issued, returns):
    one, used = issued(2, void_returns=returns)
    assert run("use", "a", used) == "used"
    void(db, one)
    void(db, used)
    assert run("hold", "a", one) == run("use", "b", used) == "voided"
    assert run("use", "a", used) == "used", "it was, before"
    assert run("rollback", "a", used) == "rolled_back"
    assert run("use", "a", used) == "voided"


@pytest.mark.parametrize("returns", [True, False])
def test_a_voided_one_among_any_of_a_user(db, run, coupon_new, returns):
    """Late copies find it, though the user has another one now, perhaps of the same slot."""
    coupon = coupon_new(limit=2, void_returns=returns)
    (old,) = batch_make(coupon, ["u"])
    assert db.settle(old) == ["issued"]
    asked = [Operation(action, "a", ((coupon, "u"),), key="k") for action in ("hold", "use")]
    told = db.use(*asked)
    assert [row["result"] for (row,) in told] == ["held", "used"]
    void(db, old)
    assert run("rollback", "a", (coupon, "u")) == "rolled_back"
    assert run("hold", "b", (coupon, "u")) == run("use", "a", (coupon, "u")) == "voided"
    (new,) = batch_make(coupon, ["u"], seq_first=2, slot=1 if returns else 2)
    assert db.settle(new) == ["issued"]
    again = db.use(*asked)
    assert first_told(again) == first_told(told)
    assert [row["now_state"] for (row,) in again] == ["voided", "voided"]
    assert states(db, [old, new]) == ["free", "free"]
    assert run("use", "a", (coupon, "u")) == "used"
    assert states(db, [new]) == ["used"]


def hold_end(db, receive):
    db.execute(
        "UPDATE receive_use SET until = clock_timestamp() WHERE (coupon_id, batch, idx)"
        " = (%s, %s, %s)",
        receive.coupon,
        receive.batch,
        receive.idx,
    )


def test_a_hold_ends_by_the_clock(db, run, issued):
    one, other = issued(2)
    assert run("hold", "a", one, other) == "held"
    hold_end(db, one)
    hold_end(db, other)
    assert run("release", "a", one) == "released"
    assert run("use", "b", one) == "used"
    assert states(db, [one, other]) == ["used", "held"]
    db.query("use_free", 100)
    assert states(db, [one, other]) == ["used", "free"]
    assert run("use", "a", one, other) == ["already_used", "kept"]


def test_two_holds_have_one_end(db, run, issued):
    """Both end with the validity, and the clock was set back between."""
    (one,) = issued()
    for order in "ab":
        assert run("hold", order, one) == "held"
        db.execute("UPDATE receive_use SET until = '2026-01-01' WHERE batch = %s", one.batch)
        db.query("use_free", 100)
        assert states(db, [one]) == ["free"]


def test_what_changed_nothing_is_forgotten(db, run, issued):
    (one,) = issued()
    assert run("use", "a", one) == run("use", "a", one) == "used"
    assert run("use", "b", one) == run("hold", "b", one) == "already_used"
    assert db.query("use_forget", 3600, 100) == [{"removed": "0"}]
    db.execute("UPDATE use_operation SET at = at - interval '1 hour'")
    assert db.query("use_forget", 3600, 2) == [{"removed": "2"}]
    assert db.query("use_forget", 3600, 100) == [{"removed": "1"}]
    assert db.execute("SELECT result, to_state FROM use_operation") == [("used", "used")]


def test_what_is_not_forgotten_yet_is_not_read(db, issued):
    """The keeper looks all the time, and of a sale there may be millions."""
    (one,) = issued()
    db.use(Operation("use", "a", (one,)))
    db.use(*(Operation("hold", "b", (one,)) for _ in range(300)))
    with db.connection.transaction():
        db.execute("SET LOCAL enable_seqscan = off")
        [[before]] = db.execute(ROWS_READ)
        assert db.query("use_forget", 3600, 100) == [{"removed": "0"}]
        [[after]] = db.execute(ROWS_READ)
    assert after - before < 30


def test_a_hold_is_renewed_and_ends_with_the_validity(db, run, coupon_new):
    coupon = coupon_new(days=1)
    now_ms = int(db.execute("SELECT extract(epoch FROM now()) * 1000")[0][0])
    (one,) = batch_make(coupon, ["1"], at_ms=now_ms - 86400_000 + 60_000)
    db.settle(one)
    until = [
        int(db.use(Operation("hold", "a", (one,), ttl_s=ttl_s))[0][0]["until_ms"])
        for ttl_s in (10, 20, 900)
    ]
    assert now_ms + 10_000 <= until[0] < until[1] < until[2] == now_ms + 60_000


# Events


@pytest.fixture
def told(db):
    """told(RECEIVE): the events of what orders did with it, in their order: [type, data]."""

    def read(receive):
        return [
            list(row)
            for row in db.execute(
                "SELECT l.type, e.detail FROM event_log AS l,"
                " unnest(l.coupon, l.batch, l.idx, l.user_id, l.history_id, l.detail)"
                " AS e (coupon, batch, idx, user_id, num, detail) JOIN use_operation AS d"
                " ON (d.coupon_id, d.batch, d.idx, d.user_id, d.num)"
                " = (e.coupon, e.batch, e.idx, e.user_id, e.num)"
                " WHERE l.history_id IS NOT NULL AND (e.batch, e.idx) = (%s, %s) ORDER BY l.id",
                receive.batch,
                receive.idx,
            )
        ]

    return read


def test_events_of_what_changes(db, run, issued, told, budget):
    one, other = issued(2, events_on=True, amount_off=500, currency="EUR", budget=budget(5000))
    assert run("hold", "a", one, other, amount=1000) == "held"
    held = Operation("hold", "a", (one,), key="k", ttl_s=60)
    assert first_told(db.use(held)) == first_told(db.use(held)), "a copy is no event"
    assert run("use", "b", one) == "held_by_other", "nor is a refusal"
    assert run("release", "a", one) == run("release", "a", one) == "released"
    assert run("use", "b", one, amount=300, currency="EUR") == run("use", "b", one) == "used"
    assert run("rollback", "b", one, reason='"late"') == "rolled_back"
    events = told(one)
    until = [data.pop("until") for type_, data in events if type_ == "coupon.held"]
    assert until[0] > until[1] and all(len(one) == 24 and one[-1] == "Z" for one in until)
    assert events == [
        ["coupon.held", {"order": "a", "amount": 1000, "amount_off": 500, "currency": "EUR"}],
        ["coupon.held", {"order": "a", "amount_off": 500, "currency": "EUR"}],
        ["coupon.released", {"order": "a"}],
        ["coupon.used", {"order": "b", "amount": 300, "amount_off": 300, "currency": "EUR"}],
        ["coupon.rolled_back", {"order": "b", "reason": '"late"'}],
    ]
    assert [type_ for type_, _ in told(other)] == ["coupon.held"]


def test_events_of_one_call(db, issued, told):
    """In the order in which they happen; a row for each type that can come together."""
    one, other = issued(2, events_on=True)
    (silent,) = issued()
    db.use(
        Operation("hold", "a", (one,)),
        Operation("use", "b", (other,)),
        Operation("use", "a", (one, silent)),
        Operation("rollback", "a", (one,)),
        Operation("use", "c", (one,)),
        Operation("rollback", "b", (other,)),
    )
    kinds = ["held", "used", "rolled_back", "used"]
    assert [type_ for type_, _ in told(one)] == ["coupon." + kind for kind in kinds]
    assert [data["order"] for _, data in told(one)] == ["a", "a", "a", "c"]
    assert [type_ for type_, _ in told(other)] == ["coupon.used", "coupon.rolled_back"]
    assert told(silent) == []


def test_traces_are_those_of_the_operation(db, issued):
    """Also of several receives, of any receive of a user, and where others have the same key."""
    one, two, three, four = issued(4, events_on=True)
    db.use(
        Operation("use", "a", (one,), key="k", trace="of-one"),
        Operation("use", "b", (two,), key="k", by="another"),
        Operation("hold", "c", (three,), key="k", trace="of-three"),
        Operation("use", "c", (three,), key="k", by="third", trace="of-three-used"),
        Operation("use", "d", ((four.coupon, four.user),), key="k", by="fourth", trace="of-four"),
    )
    db.use(Operation("rollback", "a", (one,)), Operation("hold", "b", (two,)))
    db.use(
        Operation("use", "e", (one, two), trace="of-both"),
        Operation("rollback", "b", (two,), trace="two-rolled_back"),
        Operation("use", "e", (one, two), trace="of-both-then"),
    )
    rows = db.execute(
        "SELECT l.type, e.user_id, nullif(e.trace, '') FROM event_log AS l,"
        " unnest(l.user_id, l.trace, l.history_id) AS e (user_id, trace, num)"
        " WHERE l.coupon[1] = %s AND l.user_id IS NOT NULL"
        " AND l.history_id IS NOT NULL ORDER BY e.user_id, e.num",
        one.coupon,
    )
    assert [row[1:] for row in rows if row[0] == "coupon.used"] == [
        ("1", "of-one"),
        ("1", "of-both-then"),
        ("2", None),
        ("2", "of-both-then"),
        ("3", "of-three-used"),
        ("4", "of-four"),
    ]
    assert [row for row in rows if row[0] != "coupon.used"] == [
        ("coupon.rolled_back", "1", None),
        ("coupon.rolled_back", "2", "two-rolled_back"),
        ("coupon.held", "3", "of-three"),
    ]
    with pytest.raises(ArraySubscriptError):
        db.execute(
            "SELECT use('{use}', '{a}', '{k}', '{\"\"}', '{0}', '{NULL}', '{\"\"}', '{\"\"}',"
            " '{1}', '{1}', '{1}', '{NULL}', '{NULL}', '{a,b}')"
        )


@pytest.mark.parametrize("by", ["keeper", "order"])
def test_the_end_of_a_hold_is_told_before_what_follows(db, run, issued, told, by):
    (one,) = issued(events_on=True)
    assert run("hold", "a", one) == "held"
    hold_end(db, one)
    if by == "keeper":
        db.query("use_free", 100)
    assert run("use", "b", one) == "used"
    db.query("use_free", 100)
    assert [(type_, data["order"], data.get("reason")) for type_, data in told(one)] == [
        ("coupon.held", "a", None),
        ("coupon.released", "a", "hold_ended"),
        ("coupon.used", "b", None),
    ]


# Discounts and budgets


@pytest.mark.parametrize(
    "terms, amount, expected",
    [
        ({"amount_off": 500}, 1000, 500),
        ({"amount_off": 500}, 300, 300),
        ({"amount_off": 500}, None, 500),
        ({"amount_off": 500, "threshold": 1000}, 1000, 500),
        ({"percent_off": 12.5}, 999, 124),
        ({"percent_off": 12.5}, 8, 1),
        ({"percent_off": 100}, 2**53 - 1, 2**53 - 1),
        ({"percent_off": 99.99}, 2**53 - 1, 9006298534815516),
        ({"percent_off": 50, "cap": 100}, 1000, 100),
        ({}, 1000, None),
        ({}, 0, None),
        ({}, None, None),
    ],
)
@pytest.mark.parametrize("action", ["use", "hold"])
def test_discount(db, run, issued, action, terms, amount, expected):
    if terms:
        terms = {"currency": "EUR", **terms}
    (one,) = issued(**terms)
    told = db.use(Operation(action, "a", (one,), amount=amount))[0][0]
    assert told["result"] in ("used", "held")
    assert told["amount_off"] == (None if expected is None else str(expected))
    assert told["of_currency"] == terms.get("currency")


TOO_SMALL = [
    ({"amount_off": 500, "threshold": 1000}, 999),
    ({"amount_off": 500, "threshold": 1000}, 0),
    ({"percent_off": 50, "threshold": 1000}, 999),
    ({"percent_off": 12.5}, 7),
    ({"percent_off": 0.01}, 9999),
    ({"percent_off": 50, "cap": 100}, 0),
    ({"amount_off": 500}, 0),
]


@pytest.mark.parametrize("terms, amount", TOO_SMALL)
def test_an_amount_that_is_too_small_changes_nothing(db, run, issued, terms, amount):
    """Neither a receive that is free nor one that the order holds; the key keeps the refusal."""
    free, held, other = issued(3, **terms, currency="EUR")
    assert run("hold", "a", held) == "held", "of no amount yet"
    before = table(db, held.coupon)
    for action in ("use", "hold"):
        for receive in (free, held):
            refused = Operation(action, "a", (receive,), key=f"k{receive.idx}", amount=amount)
            assert db.use(refused)[0][0]["result"] == "below_threshold"
            assert db.use(refused)[0][0]["result"] == "below_threshold", "it is recorded"
        assert run(action, "a", held, other, amount=amount) == "below_threshold"
    assert states(db, [free, held, other]) == ["free", "held", "free"]
    assert [row for row in table(db, held.coupon) if row[0] == "held"] == before
    assert run("use", "a", held, amount=100_000) == "used"


def test_terms_of_several_coupons_and_an_amount(run, issued):
    """All or none: that of one coupon is too small."""
    (small,) = issued(amount_off=500, currency="EUR")
    (large,) = issued(amount_off=500, threshold=2000, currency="EUR")
    assert run("use", "a", small, large, amount=900) == ["kept", "below_threshold"]
    assert run("use", "a", small, large, amount=2000) == "used"


@pytest.mark.parametrize(
    "terms", [{"amount_off": 500, "threshold": 1000}, {"percent_off": 10}, {"percent_off": 100}]
)
def test_a_use_needs_the_amount(db, run, issued, terms):
    free, held = issued(2, **terms, currency="EUR")
    assert run("hold", "a", held) == "held"
    assert run("use", "a", free) == run("use", "a", held) == "amount_needed"
    assert states(db, [free, held]) == ["free", "held"]
    assert run("use", "a", free, amount=1000) == run("use", "a", free) == "used", "it is its own"
    assert run("use", "b", free) == "already_used"


def test_another_currency(run, issued):
    (one,) = issued(amount_off=1, currency="EUR")
    assert run("use", "a", one, amount=5, currency="USD") == "currency_wrong"
    assert run("use", "a", one, amount=5, currency="EUR") == "used"


def counts(db, name):
    return db.execute("SELECT held, spent FROM budget WHERE name = %s", name)[0]


def test_a_budget_is_held_and_spent_and_given_back(db, run, issued, budget):
    name = budget(1000)
    one, two, three = issued(3, amount_off=400, currency="EUR", budget=name)
    assert run("hold", "a", one) == "held"
    assert counts(db, name) == (400, 0)
    assert run("use", "a", one) == "used"
    assert counts(db, name) == (0, 400)
    assert run("use", "b", two) == "used"
    assert run("use", "c", three) == run("hold", "c", three) == "budget_spent"
    assert counts(db, name) == (0, 800)
    assert run("rollback", "a", one) == "rolled_back"
    assert run("hold", "c", three) == "held"
    assert counts(db, name) == (400, 400)
    assert run("release", "c", three) == "released"
    assert counts(db, name) == (0, 400)


def use_of(db, receive):
    """What PostgreSQL has of it."""
    ((state, order, off, of_budget),) = db.execute(
        "SELECT state, order_id, amount_off, budget FROM receive_use"
        " WHERE coupon_id = %s AND batch = %s AND idx = %s",
        receive.coupon,
        receive.batch,
        receive.idx,
    )
    return state, order, off, of_budget


def test_parts_of_a_use_are_given_back(db, run, issued, budget):
    """Never more than was taken. The receive stays used, even by nothing."""
    name = budget(1000)
    one, other = issued(2, amount_off=400, currency="EUR", budget=name)
    assert run("rollback", "a", one, amount=0) == "not_used"
    assert run("hold", "a", one) == "held"
    assert run("rollback", "a", one, amount=1) == "not_used"
    assert run("use", "a", one, amount=5000) == "used"
    assert run("rollback", "b", one, amount=1) == "already_used"
    assert run("rollback", "a", one, amount=401) == "amount_exceeded"
    assert run("rollback", "a", one, amount=1, currency="USD") == "currency_wrong"
    assert use_of(db, one) == ("used", "a", 400, name) and counts(db, name) == (0, 400)
    part = Operation("rollback", "a", (one,), key="k", amount=150, currency="EUR")
    for _ in range(2):
        told = db.use(part)[0][0]
        assert (told["result"], told["amount_off"]) == ("rolled_back", "250")
    assert (told["now_state"], told["now_is_own"]) == ("used", "t")
    assert use_of(db, one) == ("used", "a", 250, name) and counts(db, name) == (0, 250)
    assert run("rollback", "a", one, key="k", amount=151) == "key_taken"
    assert run("rollback", "a", one, amount=251) == "amount_exceeded"
    assert run("rollback", "a", one, amount=0) == "rolled_back"
    assert run("rollback", "a", one, amount=250) == "rolled_back"
    assert use_of(db, one) == ("used", "a", 0, name) and counts(db, name) == (0, 0)
    assert run("use", "b", one) == "already_used"
    assert run("rollback", "a", one, amount=1) == "amount_exceeded"
    assert run("rollback", "a", one) == "rolled_back", "the rest, and the receive"
    assert use_of(db, one) == ("free", None, None, None)
    assert run("use", "b", one, other, amount=5000) == "used"
    assert counts(db, name) == (0, 800)
    assert run("rollback", "b", other, amount=100) == "rolled_back"
    assert run("rollback", "b", one, other) == "rolled_back"
    assert counts(db, name) == (0, 0)


def test_a_part_of_nothing(run, issued):
    """The terms name no discount."""
    (one,) = issued()
    assert run("use", "a", one) == "used"
    assert run("rollback", "a", one, amount=1, currency="EUR") == "amount_exceeded"
    assert run("rollback", "a", one, amount=0, currency="EUR") == "rolled_back"
    assert run("use", "b", one) == "already_used"


def test_a_use_with_another_amount_takes_the_difference(db, run, issued, budget):
    name = budget(1000)
    (one,) = issued(percent_off=10, threshold=500, currency="EUR", budget=name)
    assert run("use", "a", one, amount=4000) == "used"
    again = Operation("use", "a", (one,), key="k", amount=4000)
    assert db.use(again)[0][0]["amount_off"] == "400", "the same amount: the same use"
    assert run("use", "b", one, amount=9000) == "already_used"
    for amount, spent in ((9000, 900), (2000, 200), (10_000, 1000)):
        told = db.use(Operation("use", "a", (one,), amount=amount))[0][0]
        assert (told["result"], told["amount_off"]) == ("used", str(spent))
        assert use_of(db, one) == ("used", "a", spent, name) and counts(db, name) == (0, spent)
    assert run("use", "a", one, amount=10_010) == "budget_spent"
    assert run("use", "a", one, amount=499) == "below_threshold"
    assert run("use", "a", one, amount=600, currency="USD") == "currency_wrong"
    assert run("use", "a", one) == "used", "no amount: as it is"
    assert use_of(db, one) == ("used", "a", 1000, name) and counts(db, name) == (0, 1000)
    assert run("use", "a", one, amount=4000, key="k") == "used", "a copy of what was before"
    assert use_of(db, one)[2] == 1000
    assert run("rollback", "a", one, amount=900) == "rolled_back"
    assert run("use", "a", one, amount=10_000) == "used", "the amount that it was used with"
    assert use_of(db, one)[2] == 100
    assert run("use", "a", one, amount=3000) == "used"
    assert use_of(db, one)[2] == 300 and counts(db, name) == (0, 300)


def test_another_amount_after_the_end_of_the_validity(db, run, issued):
    """The order has the use; that it changes is not a use of another."""
    (one,) = issued(percent_off=10, currency="EUR")
    assert run("use", "a", one, amount=1000) == "used"
    db.execute(
        "UPDATE user_coupon SET valid_to = now() WHERE coupon_id = %s AND user_id = %s",
        one.coupon,
        one.user,
    )
    assert run("use", "a", one, amount=2000) == "used" and use_of(db, one)[2] == 200
    void(db, one)
    assert run("use", "a", one, amount=500) == "used" and use_of(db, one)[2] == 50
    assert run("rollback", "a", one, amount=50) == "rolled_back"


def test_changes_of_a_use_are_told(db, run, issued, told):
    (one,) = issued(events_on=True, percent_off=10, currency="EUR")
    assert run("use", "a", one, amount=1000) == "used"
    assert run("rollback", "a", one, amount=30, reason="one shoe") == "rolled_back"
    assert run("use", "a", one, amount=2000) == "used"
    assert run("rollback", "a", one) == "rolled_back"
    wanted = [
        ("coupon.used", 1000, 100, None),
        ("coupon.rolled_back", 30, 70, "one shoe"),
        ("coupon.used", 2000, 200, None),
        ("coupon.rolled_back", None, None, None),
    ]
    found = [
        (type_, *map(data.get, ("amount", "amount_off", "reason"))) for type_, data in told(one)
    ]
    assert found == wanted


def test_changes_of_a_use_are_recovered_and_counted(db, run, issued, budget):
    """From what Redis has: the last one of a receive says what is taken."""
    name = budget(1000)
    one, other = issued(2, percent_off=10, currency="EUR", budget=name)
    done = [
        db.use(Operation("use", "a", (one,), amount=2000)),
        db.use(Operation("rollback", "a", (one,), amount=30)),
        db.use(Operation("use", "a", (other,), amount=1000)),
        db.use(Operation("use", "a", (other,), amount=3000)),
    ]
    records = [row["record"] for rows in done for (row,) in rows]
    assert all(records)
    for table_ in ("use_operation", "receive_use"):
        db.execute(f"DELETE FROM {table_} WHERE coupon_id = %s", one.coupon)
    db.execute("UPDATE budget SET spent = 0 WHERE name = %s", name)
    ((missing,),) = db.execute("SELECT use_recover(%s)", records[::-1])
    assert missing == 4
    db.execute("SELECT use_recover_end()")
    assert use_of(db, one) == ("used", "a", 170, name)
    assert use_of(db, other) == ("used", "a", 300, name)
    assert counts(db, name) == (0, 470)


def test_a_budget_within_one_call(db, issued, budget):
    """What fits is taken, in order; what is given back is there for those that follow."""
    name = budget(1000)
    receives = issued(5, percent_off=100, currency="EUR", budget=name)
    amounts = [600, 600, 400, 1, 1]
    told = db.use(
        *(
            Operation("use", "a", (one,), amount=amount)
            for one, amount in zip(receives, amounts, strict=True)
        )
    )
    assert [row["result"] for (row,) in told] == [
        "used",
        "budget_spent",
        "used",
        "budget_spent",
        "budget_spent",
    ]
    assert counts(db, name) == (0, 1000)
    told = db.use(
        Operation("rollback", "a", (receives[0],)),
        Operation("use", "b", (receives[1],), amount=600),
        Operation("use", "b", (receives[3],), amount=1),
    )
    assert [row["result"] for (row,) in told] == ["rolled_back", "used", "budget_spent"]


def test_ended_holds_are_freed_before_a_budget_is_spent(db, run, issued, budget):
    name = budget(1000)
    one, two, three = issued(3, amount_off=500, currency="EUR", budget=name)
    assert run("hold", "a", one, two) == "held"
    assert run("use", "b", three) == "budget_spent"
    hold_end(db, one)
    assert run("use", "b", three, key="k") == "used"
    assert counts(db, name) == (500, 500)
    hold_end(db, two)
    assert run("use", "b", two) == "used", "its own ended hold is given back once"
    assert counts(db, name) == (0, 1000)


def test_a_budget_needs_the_amount(run, issued, budget):
    (one,) = issued(percent_off=10, currency="EUR", budget=budget(1000))
    assert run("hold", "a", one) == run("use", "a", one) == "amount_needed"
    assert run("use", "a", one, amount=100) == "used"


def test_what_was_taken_goes_back_to_where_it_was_taken(db, run, issued, budget):
    first, second = budget(1000), budget(1000)
    (one,) = issued(amount_off=500, currency="EUR", budget=first)
    assert run("hold", "a", one) == "held"
    db.execute("UPDATE coupon SET budget = %s WHERE id = %s", second, one.coupon)
    assert run("use", "a", one) == "used"
    assert (counts(db, first), counts(db, second)) == ((0, 0), (0, 500))
    db.execute("UPDATE coupon SET budget = NULL WHERE id = %s", one.coupon)
    assert run("rollback", "a", one) == "rolled_back"
    assert counts(db, second) == (0, 0)


def test_a_wrong_count_of_a_budget_is_refused(db, budget):
    name = budget(10)
    with pytest.raises(CheckViolation):
        db.execute("UPDATE budget SET spent = 11 WHERE name = %s", name)


def test_an_order_with_one_receive_twice_is_refused(db, issued):
    """The gateway does not send it."""
    (one,) = issued()
    with pytest.raises(InvalidParameterValue):
        db.use(Operation("use", "a", (one, one)))
    assert states(db, [one]) == []


# couponctl recover


def table(db, coupon):
    return db.execute(
        "SELECT state, order_id, until, amount_off, budget FROM receive_use WHERE coupon_id = %s"
        " ORDER BY batch, idx",
        coupon,
    )


@pytest.mark.parametrize("order", [1, -1])
def test_recover_in_any_order(db, issued, budget, order):
    """Each receive has the state of its last operation, and the budget what is held and spent."""
    name = budget(1000)
    one, two, three = issued(3, amount_off=100, currency="EUR", budget=name)
    told = [
        db.use(Operation(*operation, (receive,)))[0][0]
        for receive, operation in (
            (one, ("hold", "a")),
            (one, ("use", "a")),
            (two, ("use", "b")),
            (two, ("rollback", "b")),
            (three, ("hold", "c")),
            (two, ("hold", "d")),
        )
    ]
    records, before = [row["record"] for row in told], (table(db, one.coupon), counts(db, name))
    newest = "SELECT max(num) FROM use_operation WHERE coupon_id = %s"
    ((last,),) = db.execute(newest, one.coupon)
    db.execute("BEGIN")
    db.execute("ALTER SEQUENCE use_operation_num_seq RESTART")
    db.execute("DELETE FROM use_operation WHERE coupon_id = %s", one.coupon)
    db.execute("DELETE FROM receive_use WHERE coupon_id = %s", one.coupon)
    db.execute("UPDATE budget SET held = 7, spent = 0 WHERE name = %s", name)
    missing = [
        db.query("recover_uses", array_text([one]))[0]["missing"] for one in records[::order]
    ]
    assert missing == ["1"] * 6
    assert db.query("recover_uses", array_text(records)) == [{"missing": "0"}]
    db.query("recover_uses_end")
    assert (table(db, one.coupon), counts(db, name)) == before
    again = db.use(Operation("use", "b", (two,)))[0][0]
    assert again["result"] == "held_by_other"
    assert db.execute(newest, one.coupon)[0][0] > last, "the numbers go on"
    db.execute("ROLLBACK")


@pytest.mark.parametrize("removed", ["all", "first", "last"])
def test_recover_of_one_operation_on_several_receives(db, run, issued, removed):
    """In parts, of which one may be there. Its key is not used for another one then."""
    one, two, three, four = issued(4)
    rows = db.use(Operation("use", "a", (one, two, three), key="k"))[0]
    records, before = [row["record"] for row in rows], table(db, one.coupon)
    gone = {"all": (one, two, three), "first": (one,), "last": (three,)}[removed]
    db.execute("BEGIN")
    for receive in gone:
        for name in ("use_operation", "receive_use"):
            db.execute(f"DELETE FROM {name} WHERE user_id = %s", receive.user)
    missing = [db.query("recover_uses", array_text(part)) for part in (records[:1], records[1:])]
    assert sum(int(row["missing"]) for (row,) in missing) == len(gone)
    assert table(db, one.coupon) == before
    assert run("use", "a", four, key="k") == "key_taken"
    db.execute("ROLLBACK")


def test_recover_reserves_nothing_for_holds_that_have_ended(db, issued, budget):
    """Others have taken it since: the budget would become larger."""
    name = budget(900)
    one, two = issued(2, amount_off=500, currency="EUR", budget=name)
    told = db.use(Operation("hold", "a", (one,), ttl_s=0)) + db.use(Operation("use", "b", (two,)))
    records = [row["record"] for (row,) in told]
    db.execute("BEGIN")
    db.execute("DELETE FROM use_operation WHERE coupon_id = %s", one.coupon)
    db.execute("DELETE FROM receive_use WHERE coupon_id = %s", one.coupon)
    db.execute("UPDATE budget SET spent = 0 WHERE name = %s", name)
    assert db.query("recover_uses", array_text(records)) == [{"missing": "2"}]
    db.query("recover_uses_end")
    for _ in range(2):
        assert counts(db, name) == (0, 500)
        db.query("use_free", 100)
    assert db.execute("SELECT amount FROM budget WHERE name = %s", name) == [(900,)]
    assert states(db, [one, two]) == ["free", "used"]
    db.execute("ROLLBACK")


def test_recover_writes_the_events_again(db, issued, told):
    (one,) = issued(events_on=True)
    actions = ["hold", "use", "rollback", "use"]
    records = [db.use(Operation(action, "a", (one,)))[0][0]["record"] for action in actions]
    before = told(one)
    db.execute("BEGIN")
    db.execute("DELETE FROM use_operation WHERE coupon_id = %s", one.coupon)
    db.query("recover_uses", array_text(records[::-1]))
    assert told(one) == before + before and len(before) == 4
    db.execute("ROLLBACK")


def test_recover_a_budget_that_is_missing(db, issued, budget):
    """An operator looks at the amounts of those that have got another one, and of those that only a
    recovery has made."""
    name, whole, empty = budget(1000), budget(100), budget(0)
    db.execute("SET couponmq.recovering = 'on'")
    without = budget(0)
    db.execute("RESET couponmq.recovering")
    (one,) = issued(1, amount_off=100, currency="EUR", budget=name)
    (other,) = issued(1, amount_off=100, currency="EUR", budget=whole)
    db.use(Operation("use", "a", (one,)), Operation("use", "a", (other,)))
    db.execute("BEGIN")
    db.execute("UPDATE coupon SET budget = NULL WHERE id = %s", one.coupon)
    db.execute("DELETE FROM budget WHERE name = %s", name)
    named = {row["name"] for row in db.query("recover_uses_end")}
    assert named & {name, whole, empty, without} == {name, without}
    assert db.execute("SELECT amount, spent FROM budget WHERE name = %s", name) == [(100, 100)]
    db.execute("ROLLBACK")
