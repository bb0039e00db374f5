"""report.lua, hold.lua, fill.lua, place.lua and late.lua: a coupon is rebuilt, and late outcomes
are counted once."""
import pytest
import redis

from script_coupon import fence_of
from ulid import ulid_make

NOBODY = "0" * 40
A, B, C, D = (ulid_make() for _ in range(4))


def report(coupon, generation, seq, run_id=""):
    return coupon.run("report", generation, seq, run_id, keys=[coupon.keys[0], coupon.seen])


def fill(coupon, what, *pairs, generation=2, room=100, past=0):
    keys = coupon.fill_keys(generation)
    return coupon.run("fill", fence_of(5), what, room, 60000, past, *pairs, keys=keys)


def place(
    coupon,
    *older,
    generation=2,
    fence=5,
    total=100,
    issued=0,
    late=0,
    version=1,
    limit=2,
    revocation=0,
):
    coupon.run("hold", fence, max(generation - 1, 1))
    known = [coupon.known, coupon.seen, coupon.codes]
    keys = coupon.keys + known + coupon.fill_keys(generation)
    return coupon.run(
        "place",
        fence,
        coupon.run_id,
        generation,
        version,
        "open",
        total,
        0,
        0,
        limit,
        issued,
        late,
        revocation,
        *older,
        keys=keys,
    )


def late(coupon, *outcomes):
    """Each: number, generation, seq, user, slot, batch, index, key, outcome."""
    values = [value for outcome in outcomes for value in outcome]
    return coupon.run("late", fence_of(5), *values)


def counts(coupon):
    c = coupon.redis.hgetall(coupon.keys[0])
    return tuple(int(c.get(name, 0)) for name in ("stock", "reserved", "lost"))


def conserved(coupon):
    return sum(counts(coupon)) + coupon.taken() == int(coupon.get("total"))


# report


def test_report_of_a_forgotten_coupon_is_kept(coupon):
    assert report(coupon, 3, 70) == 1
    assert report(coupon, 3, 70) == 0
    assert report(coupon, 3, 69) == 0
    assert report(coupon, 3, 71) == 1
    assert coupon.redis.hgetall(coupon.seen) == {"3": "71"}


def test_nothing_is_kept_of_a_report_that_tells_nothing_new(coupon):
    coupon.put(generation=3, seq=70)
    assert report(coupon, 3, 70) == 0
    assert not coupon.redis.exists(coupon.seen)
    assert report(coupon, 3, 71) == 1
    coupon.redis.delete(coupon.seen)
    coupon.set(placeholder=1)
    assert report(coupon, 3, 70) == 1, "what a placeholder names is no number of the coupon"


def test_what_is_told_lasts_no_longer_than_the_coupon(coupon):
    told = [coupon.keys[0], coupon.seen]
    assert coupon.run("report", 1, 5, "", keys=told) == 1
    assert 0 < coupon.redis.pttl(coupon.seen) <= 86400000, "there is no coupon"
    coupon.redis.delete(coupon.seen)
    coupon.put(generation=1)
    assert coupon.run("report", 1, 6, "", keys=told) == 1
    assert coupon.redis.pttl(coupon.seen) == -1
    coupon.redis.expire(coupon.keys[0], 50)
    assert coupon.run("report", 1, 7, "", keys=told) == 1
    assert coupon.redis.execute_command("PEXPIRETIME", coupon.seen) == coupon.redis.execute_command(
        "PEXPIRETIME", coupon.keys[0]
    )


@pytest.mark.parametrize("seq", [60, 80])
def test_a_report_after_others_got_the_same_numbers(seq, coupon):
    """The reporting gateway comes back to another process of Redis than gave it receives."""
    process, term, other = "a" * 32, "0" * 7, "b" * 40
    coupon.put(generation=3, seq=70, run_id=process + term + "1")
    report(coupon, 3, seq, other)
    assert coupon.get("rebuild") is None, "it is not open on that process yet: seq decides"
    report(coupon, 3, seq, process + term + "2")
    assert coupon.get("rebuild") == "1"
    assert coupon.redis.hgetall(coupon.seen) == ({"3": "80"} if seq == 80 else {})


def test_report_of_an_older_generation_comes_out_of_the_stock(coupon):
    coupon.put(generation=4, stock=100, **{"high:3": 70})
    assert report(coupon, 3, 75) == 1
    assert report(coupon, 3, 72) == 0
    assert (counts(coupon), coupon.get("high:3")) == ((95, 5, 0), "75")
    assert report(coupon, 3, 1000) == 1
    assert counts(coupon) == (0, 100, 0)
    assert report(coupon, 2, 5) == 0, "so old a generation is not awaited"


def test_a_gateway_that_knows_more_of_an_older_generation_is_refused_until_it_told(coupon):
    coupon.put(generation=4, **{"high:3": 70})
    assert coupon.issue_raw("1", seen=(3, 71)) == ["behind", 4, 0]
    report(coupon, 3, 71)
    assert coupon.issue("1", seen=(3, 71)).verdicts == [1]
    assert coupon.issue("2", seen=(2, 99)).verdicts == [1]
    assert conserved(coupon)


@pytest.mark.parametrize(
    "arguments",
    [
        *((0, 1, ""), (1, 0, ""), ("x", 1, ""), (1, "-1", ""), (1, "", ""), (2**53, 1, "")),
        *((1, 2), (1, 2, "", ""), (1, 2, "a" * 39)),
    ],
)
def test_report_bad_arguments(coupon, arguments):
    before = coupon.snapshot()
    with pytest.raises(redis.ResponseError, match="couponmq: (generation|seq|run_id|ARGV): "):
        coupon.run("report", *arguments, keys=[coupon.keys[0], coupon.seen])
    assert coupon.snapshot() == before


# hold


def test_hold_closes_to_gateways_and_keeps_everything(coupon):
    coupon.put(seq=7, stock=93, fence=4)
    before = coupon.redis.hgetall(coupon.keys[0])
    assert coupon.run("hold", 5, 1) == "held"
    assert coupon.redis.hgetall(coupon.keys[0]) == {**before, "run_id": NOBODY, "fence": "5"}
    assert coupon.issue_raw("1")[0] == "unverified"
    assert coupon.run("hold", 4, 1) == "fenced"


@pytest.mark.parametrize("thing", [None, "string"])
def test_hold_of_a_missing_coupon_puts_a_placeholder(coupon, thing):
    if thing:
        coupon.redis.set(coupon.keys[0], thing)
    assert coupon.run("hold", 5, 3) == "held"
    assert coupon.issue_raw("1") == ["unverified", 3, 0]
    assert coupon.run("hold", 4, 3) == "fenced"
    assert coupon.run("terms", 9, "open", 500, 0, 0, 1) == "missing", "no stock for a placeholder"


@pytest.mark.parametrize("is_there", [False, True])
def test_hold_until_gateways_have_reported(is_there, coupon):
    if is_there:
        coupon.put(seq=7, stock=93, fence=4)
    assert coupon.run("hold", 5, 3, 1000) == coupon.run("hold", 5, 3, 1000) == "early"
    assert coupon.issue_raw("1")[0] == "unverified"
    since = int(coupon.get("held_at"))
    assert abs(since - coupon.time_ms()) < 60_000
    coupon.set(held_at=since - 1000)
    assert coupon.run("hold", 5, 3, 1000) == coupon.run("hold", 5, 3) == "held"
    assert coupon.run("hold", 4, 3, 1000) == "fenced"
    coupon.set(held_at=since + 3_600_000)
    assert coupon.run("hold", 5, 3, 1000) == "early", "the clock was set back"
    assert int(coupon.get("held_at")) < since + 60_000
    assert place(coupon, generation=4)[0] == "placed"
    assert coupon.get("held_at") is None


def test_report_to_a_placeholder(coupon):
    """The gateway has seen an older generation, whose receives PostgreSQL may not know."""
    coupon.run("hold", 5, 3)
    assert report(coupon, 2, 40) == 1
    assert place(coupon, 2, 30, 30, 3, 0, 0, generation=4)[:3] == ["placed", 90, 10]


# fill


def test_fill_keeps_every_slot_of_a_user(coupon):
    assert fill(coupon, "issued", "1", f"2:{A}:0:k", "2", f"1:{A}:1:", "1", f"1:{B}:0:") == 3
    users, known, _ = coupon.fill_keys(2)
    assert coupon.redis.hgetall(users) == {"1": f"2:{A}:0:k\n1:{B}:0:", "2": f"1:{A}:1:"}
    assert fill(coupon, "issued", "1", f"3:{C}:0:") == 1
    assert coupon.redis.hget(users, "1").endswith(f"\n3:{C}:0:")
    assert 0 < coupon.redis.pttl(users) <= 60000
    assert not coupon.redis.exists(known)


def test_fill_of_single_slots(coupon):
    assert fill(coupon, "single", "1", f"1:{A}:0:k", "2", f"1:{A}:1:") == 2
    users = coupon.fill_keys(2)[0]
    assert coupon.redis.hgetall(users) == {"1": f"1:{A}:0:k", "2": f"1:{A}:1:"}
    assert 0 < coupon.redis.pttl(users) <= 60000
    assert fill(coupon, "single", "3", f"1:{A}:2:", "4", f"1:{A}:3:", room=1) == 1


def test_fill_in_flight_takes_only_free_slots(coupon):
    users, known, _ = coupon.fill_keys(2)
    fill(coupon, "issued", "1", f"1:{A}:0:")
    assert (
        fill(
            coupon,
            "flight",
            "1",
            f"1:{A}:0:",
            "1",
            f"1:{B}:0:",
            "1",
            f"2:{B}:1:x",
            "2",
            f"1:{B}:2:",
        )
        == 2
    )
    assert fill(coupon, "flight", "2", f"1:{B}:2:") == 0, "counted once"
    assert coupon.redis.smembers(known) == {f"{B}:1", f"{B}:2"}
    assert fill(coupon, "flight", "3", f"1:{C}:0:", "4", f"1:{C}:1:", room=1) == 1


def test_fill_bad_arguments(coupon):
    for arguments in (
        ("other", 1, 1, 0, "1", f"1:{A}:0:"),
        ("issued", 1, 1, 0, "", f"1:{A}:0:"),
        ("issued", 1, 1, 0, "1 ", f"1:{A}:0:"),
        ("issued", 1, 1, 0, "1", "x"),
        ("issued", "x", 1, 0, "1", f"1:{A}:0:"),
        ("issued", 1, 0, 0, "1", f"1:{A}:0:"),
        ("issued", 1, 1, -1, "1", f"1:{A}:0:"),
        ("issued", 1, 1, "x", "1", f"1:{A}:0:"),
        ("issued", 1, 1, 0),
        (),
    ):
        with pytest.raises(redis.ResponseError, match="couponmq: "):
            coupon.run("fill", fence_of(5), *arguments, keys=coupon.fill_keys(2))
    with pytest.raises(redis.ResponseError, match="KEYS"):
        coupon.run("fill", fence_of(5), "issued", 1, 1, 0, "1", f"1:{A}:0:", keys=coupon.keys[:2])
    assert not coupon.snapshot()


def test_fill_does_not_go_on_when_what_was_filled_has_vanished(coupon):
    assert fill(coupon, "issued", "1", f"1:{A}:0:") == 1
    coupon.redis.delete(*coupon.fill_keys(2))
    assert fill(coupon, "issued", "2", f"1:{A}:1:", past=1) == -1
    assert not coupon.snapshot()


# place


def test_place_a_coupon_that_was_wiped(coupon):
    report(coupon, 1, 20)
    fill(coupon, "issued", "1", f"1:{A}:0:", "2", f"1:{A}:1:")
    fill(coupon, "flight", "3", f"1:{B}:0:k")
    # PostgreSQL has seen 15 of generation 1, and settled 4 of them: 2 issued, 2 rejected. Gateways
    # saw 20.
    assert place(coupon, 1, 15, 4, issued=2) == ["placed", 82, 15, 1, 0]
    assert conserved(coupon)
    assert coupon.redis.smembers(coupon.known) == {f"{B}:0"}
    assert coupon.redis.ttl(coupon.keys[1]) == coupon.redis.ttl(coupon.known) == -1
    assert not coupon.redis.exists(coupon.seen)
    a = coupon.issue("9", ("3", "k"), seen=(1, 20))
    assert (a.generation, a.seq, a.verdicts) == (2, 1, [1, f"1:{B}:0"])


def test_place_counts_what_redis_gave_out(coupon):
    coupon.put(seq=30, generation=1, fence=5, stock=70)
    assert place(coupon, 1, 15, 15, issued=0) == ["placed", 85, 15, 0, 0]


@pytest.mark.parametrize(
    "why, older, reported, is_loss",
    [
        ("Redis has every number", (1, 7, 3), 0, False),
        ("the last generation was opened, but not placed", (1, 7, 3, 2, 0, 0), 0, False),
        ("PostgreSQL has seen a higher one", (1, 8, 3), 0, True),
        ("more are settled", (1, 0, 8), 0, True),
        ("a gateway has seen a higher one", (1, 7, 3), 8, True),
        ("PostgreSQL has seen one of a later generation", (1, 7, 3, 2, 1, 0), 0, True),
    ],
)
def test_place_tells_that_redis_has_lost_data(why, older, reported, is_loss, coupon):
    coupon.put(seq=7, stock=93, fence=5)
    if reported:
        report(coupon, 1, reported)
    assert place(coupon, *older, generation=9)[0] == "placed"
    assert (coupon.get("loss_at") is not None) == is_loss, why


def test_place_tells_when_redis_has_lost_data(coupon):
    assert place(coupon, 1, 0, 0)[0] == "placed", "the coupon is gone"
    assert abs(int(coupon.get("loss_at")) - coupon.time_ms()) < 60_000
    assert place(coupon, 1, 0, 0, 2, 0, 0, generation=3)[0] == "placed", "nothing is lost"
    assert coupon.get("loss_at") is None
    coupon.run("hold", 5, 7, keys=coupon.keys)
    coupon.redis.delete(coupon.keys[0])
    coupon.run("hold", 5, 7, keys=coupon.keys)
    assert place(coupon, 3, 0, 0, generation=8)[0] == "placed", "over a placeholder"
    assert coupon.get("loss_at") is not None


def test_place_keeps_what_was_known_of_older_generations(coupon):
    coupon.put(seq=3, generation=2, fence=5, stock=70, **{"high:1": 40})
    assert place(coupon, 1, 15, 10, 2, 3, 3, generation=3, issued=0) == ["placed", 70, 30, 0, 0]


def test_place_never_promises_more_than_total(coupon):
    report(coupon, 1, 500)
    fill(coupon, "issued", "1", f"1:{A}:0:")
    assert place(coupon, 1, 1, 1, issued=1) == ["placed", 0, 99, 0, 400]
    assert conserved(coupon)


def test_place_needs_the_latest_generation_and_the_highest_fence(coupon):
    coupon.put(generation=3, fence=5)
    coupon.run("hold", 5, 3)
    before = coupon.snapshot()
    assert place(coupon, generation=3) == place(coupon, generation=2) == "current"
    assert place(coupon, generation=4, fence=4) == "fenced"
    assert place(coupon, generation=4, issued=1) == "gone"
    assert coupon.snapshot() == before


def test_place_over_a_placeholder(coupon):
    coupon.run("hold", 5, 7)
    assert place(coupon, 6, 3, 3, 7, 0, 0, generation=8) == ["placed", 100, 0, 0, 0]
    assert (coupon.get("placeholder"), coupon.get("seq")) == (None, "0")


def test_place_keeps_newer_terms(coupon):
    coupon.put(version=7, total=50, stock=50, status="paused", fence=5)
    assert place(coupon, version=6, total=100)[1] == 50
    assert (coupon.get("total"), coupon.get("status"), coupon.get("version")) == (
        "50",
        "paused",
        "7",
    )


@pytest.mark.parametrize("field", ["status", "begin", "end", "limit"])
def test_place_over_newer_terms_without_a_field(coupon, field):
    coupon.put(version=7, fence=5)
    coupon.redis.hdel(coupon.keys[0], field)
    assert place(coupon)[0] == "placed"
    assert coupon.get("version") == "1"


def test_place_bounds_what_it_writes_in_one_command(coupon):
    coupon.put(fence=5)
    coupon.run("hold", 5, 1)
    before = coupon.snapshot()
    older = [n for generation in range(1, 4001) for n in (generation, 0, 0)]
    with pytest.raises(redis.ResponseError, match="couponmq: ARGV: .* at most 1000 older"):
        place(coupon, *older, generation=5000)
    assert coupon.snapshot() == before
    assert place(coupon, *older[:3000], generation=5000)[0] == "placed"


@pytest.mark.parametrize("which", [0, 1, 2])
def test_fill_of_another_type(coupon, which):
    coupon.redis.set(coupon.fill_keys(2)[which], "x")
    before = coupon.snapshot()
    with pytest.raises(redis.ResponseError, match="couponmq: coupon:.*: not a (hash|set)"):
        fill(coupon, "single", "1", f"1:{A}:0:\t7.1")
    assert coupon.snapshot() == before


def test_two_rebuilds_do_not_mix(coupon):
    fill(coupon, "issued", "1", f"1:{A}:0:", generation=2)
    fill(coupon, "issued", "1", f"1:{A}:0:", "2", f"1:{A}:1:", generation=3)
    assert place(coupon, generation=3, issued=2)[0] == "placed"
    assert place(coupon, generation=2, issued=1) == "current"
    assert len(coupon.users()) == 2


# late


@pytest.fixture
def rebuilt(coupon):
    """Generation 2: one issued (user 1), one in flight whose slot is known (user 2), ten
    reserved."""
    report(coupon, 1, 12)
    fill(coupon, "issued", "1", f"1:{A}:0:")
    fill(coupon, "flight", "2", f"1:{B}:0:")
    assert place(coupon, 1, 1, 1, issued=1) == ["placed", 88, 10, 1, 0]
    return coupon


def test_late_issued(rebuilt):
    assert late(rebuilt, (1, 1, 3, 5, 1, C, 0, "k", "issued")) == ["ok", 1, 88, 9]
    assert rebuilt.users()["5"] == f"1:{C}:0:k"
    assert conserved(rebuilt)
    assert rebuilt.issue(("5", "k")).verdicts == [f"1:{C}:0"]


def test_late_each_once(rebuilt):
    outcomes = [
        (1, 1, 3, 5, 1, C, 0, "", "issued"),
        (2, 1, 4, 6, 1, C, 1, "", "free"),
        (3, 1, 5, 7, 1, C, 2, "", "issued"),
    ]
    late(rebuilt, *outcomes[:2])
    before = rebuilt.redis.hgetall(rebuilt.keys[0])
    late(rebuilt, *outcomes[:2])
    assert rebuilt.redis.hgetall(rebuilt.keys[0]) == before
    assert late(rebuilt, *outcomes) == ["ok", 3, 89, 7]
    assert conserved(rebuilt)


def test_late_of_a_known_slot(rebuilt):
    assert late(rebuilt, (1, 1, 2, 2, 1, B, 0, "", "issued")) == ["ok", 1, 88, 10]
    assert not rebuilt.redis.exists(rebuilt.known)
    assert conserved(rebuilt)


def test_late_rejected_of_a_known_slot_is_released_once(rebuilt):
    assert late(rebuilt, (1, 1, 2, 2, 1, B, 0, "", "free")) == ["ok", 1, 88, 10]
    assert rebuilt.run("slot_free", "2", 1, B, 0, "free")[:2] == ["ok", 89]
    assert conserved(rebuilt)


def test_late_takes_the_slot_from_who_asked_again(rebuilt):
    """User 5 was in flight unknown to Redis, retried, and got the slot twice: the receive in
    PostgreSQL holds it."""
    again = rebuilt.issue("5", batch=D)
    assert again.verdicts == [1]
    assert late(rebuilt, (1, 1, 3, 5, 1, C, 0, "", "issued")) == ["ok", 1, 88, 9]
    assert rebuilt.users()["5"] == f"1:{C}:0:"
    assert conserved(rebuilt)
    assert rebuilt.run("slot_free", "5", 1, D, 0, f"give 1:{C}:0:")[3] == "other"
    assert conserved(rebuilt)


def test_late_is_voided_before_whom_it_has_displaced_is_settled(rebuilt):
    """PostgreSQL then issues that one, which has neither slot nor unit here."""
    rebuilt.issue("5", batch=D)
    late(rebuilt, (1, 1, 3, 5, 1, C, 0, "", "issued"))
    before = rebuilt.redis.hgetall(rebuilt.keys[0])
    assert before["displaced"] == "1" and "rebuild" not in before
    for _ in range(2):
        assert rebuilt.run("slot_free", "5", 1, C, 0, "void") == ["ok", 88, 0, "rebuild"]
        assert rebuilt.users()["5"] == f"1:{C}:0:"
        assert rebuilt.redis.hgetall(rebuilt.keys[0]) == {**before, "rebuild": "1"}
    assert set(rebuilt.redis.lrange(rebuilt.rejected, 0, -1)) == {f"{C}:0:1:voided:5"}
    fill(rebuilt, "issued", "1", f"1:{A}:0:", generation=3)
    fill(rebuilt, "flight", "2", f"1:{B}:0:", "5", f"1:{D}:0:", generation=3)
    assert place(rebuilt, 1, 12, 2, 2, 1, 0, generation=3, issued=1)[0] == "placed"
    assert rebuilt.users()["5"] == f"1:{D}:0:"
    assert (rebuilt.get("displaced"), rebuilt.get("rebuild")) == (None, None)
    assert conserved(rebuilt)


def test_late_that_displaces_nobody(rebuilt):
    late(rebuilt, (1, 1, 3, 5, 1, C, 0, "", "issued"))
    rebuilt.issue("6", batch=D)
    assert rebuilt.run("slot_free", "6", 1, D, 0, f"give 1:{C}:1:")[3] == "give"
    late(rebuilt, (2, 1, 4, 6, 1, C, 1, "", "issued"))
    assert rebuilt.get("displaced") is None
    assert rebuilt.run("slot_free", "5", 1, C, 0, "void")[3] == "void"
    assert conserved(rebuilt)


def test_late_after_the_slot_was_given_already(rebuilt):
    rebuilt.issue("5", batch=D)
    assert rebuilt.run("slot_free", "5", 1, D, 0, f"give 1:{C}:0:")[3] == "give"
    assert late(rebuilt, (1, 1, 3, 5, 1, C, 0, "", "issued")) == ["ok", 1, 88, 9]
    assert rebuilt.users()["5"] == f"1:{C}:0:"
    assert conserved(rebuilt)


def test_late_numbers_that_nobody_knew(rebuilt):
    assert late(rebuilt, (1, 1, 20, 5, 1, C, 0, "", "issued")) == ["ok", 1, 80, 17]
    assert conserved(rebuilt)


def test_late_out_of_stock(rebuilt):
    assert late(rebuilt, (1, 1, 3, 5, 1, C, 0, "", "drop")) == ["ok", 1, 88, 9]
    assert (rebuilt.get("lost"), rebuilt.get("rebuild")) == ("1", "1")
    assert conserved(rebuilt)


def test_late_with_a_gap(rebuilt):
    assert late(rebuilt, (3, 1, 3, 5, 1, C, 0, "", "issued")) == "gap"
    assert rebuilt.get("rebuild") == "1"


def test_late_waits_while_held(rebuilt):
    rebuilt.run("hold", 6, 2)
    before = rebuilt.snapshot()
    assert late(rebuilt, (1, 1, 3, 5, 1, C, 0, "", "issued")) == "missing"
    assert rebuilt.run("slot_free", "2", 1, B, 0, "free") == ["missing"]
    assert rebuilt.snapshot() == before


def test_late_of_what_no_script_gave_out(rebuilt):
    assert late(rebuilt, (1, 0, 0, 1, 1, "0" * 26, 0, "", "none")) == ["ok", 1, 88, 10]


@pytest.mark.parametrize(
    "outcome",
    [
        (1, 1, 3, "", 1, C, 0, "", "issued"),
        (1, 1, 3, "5 ", 1, C, 0, "", "issued"),
        (1, 1, 3, 5, 0, C, 0, "", "issued"),
        (1, 1, 3, 5, 1, "x", 0, "", "issued"),
        (1, 1, 3, 5, 1, C, 0, "", "other"),
        ("x", 1, 3, 5, 1, C, 0, "", "issued"),
        (1, 1, 3, 5, 1, C, 0, "a\nb", "issued"),
    ],
)
def test_late_bad_arguments(rebuilt, outcome):
    before = rebuilt.snapshot()
    with pytest.raises(redis.ResponseError, match="couponmq: "):
        late(rebuilt, outcome)
    assert rebuilt.snapshot() == before


@pytest.mark.parametrize("total, placed", [(3, 3), (2, 50)])
def test_place_keeps_newer_terms_unless_more_is_taken(coupon, total, placed):
    """couponctl lowered the total in Redis, and died before it lowered it in PostgreSQL."""
    coupon.put(total=total, version=3)
    fill(coupon, "issued", "1", f"1:{A}:0:", "2", f"1:{A}:1:")
    fill(coupon, "flight", "3", f"1:{B}:0:")
    assert place(coupon, 1, 3, 2, total=50, issued=2, version=2)[0] == "placed"
    assert int(coupon.get("total")) == placed
    assert conserved(coupon)
