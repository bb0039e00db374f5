"""master_lease.lua, and what gateways' scripts do outside of the lease."""

import pytest
import redis

from keeper_scripts import BIG, NUMBERS_BAD

KEY = "couponmq:lease"
ME, OTHER = "a1" * 16, "b2" * 16
LEASE_MS = 1800


@pytest.fixture
def lease(coupon):
    """lease(…): a call of the script for this process; the lease begins `ago_ms` before now."""
    coupon.redis.delete(KEY)

    def run(process=ME, ago_ms=0, lease_ms=LEASE_MS, may_begin=1):
        since = coupon.time_ms() - ago_ms
        return coupon.run("master_lease", process, since, lease_ms, may_begin, keys=[KEY])

    yield run
    coupon.redis.delete(KEY)


def put(coupon, since_ms, to_ms, process=ME, term=7):
    """The lease, by times from now on."""
    at = coupon.time_ms()
    fields = {"process": process, "term": term, "from": at + since_ms, "until": at + to_ms}
    coupon.redis.hset(KEY, mapping=fields)


def stored(coupon):
    return coupon.redis.hgetall(KEY)


def test_the_first_begins_if_it_may(coupon, lease):
    assert lease(may_begin=0) == ["over", 0]
    assert stored(coupon) == {}
    assert lease() == ["begun", 1]
    told = stored(coupon)
    assert (told["process"], told["term"]) == (ME, "1")
    assert int(told["until"]) - int(told["from"]) == LEASE_MS


def test_it_is_extended_by_anybody_while_it_lasts(coupon, lease):
    put(coupon, -1500, 300)
    assert lease(may_begin=0, ago_ms=100) == ["extended", 7]
    assert int(stored(coupon)["until"]) > coupon.time_ms() + 1000
    before = stored(coupon)
    assert lease(may_begin=0) == ["held", 7]
    assert stored(coupon) == before


def test_one_that_has_ended_is_never_extended(coupon, lease):
    put(coupon, -1900, -100)
    before = stored(coupon)
    assert lease(may_begin=0) == ["over", 7]
    assert stored(coupon) == before
    assert lease() == ["begun", 8]


def test_a_clock_that_was_set_back_ends_it(coupon, lease):
    put(coupon, 5000, 6800)
    assert lease(may_begin=0) == ["over", 7]
    assert lease() == ["begun", 8]


def test_that_of_another_process_is_no_lease(coupon, lease):
    put(coupon, -100, 1700, process=OTHER)
    assert lease(may_begin=0) == ["over", 7]
    assert lease() == ["begun", 8]
    assert stored(coupon)["process"] == ME


@pytest.mark.parametrize("may_begin", [0, 1])
def test_a_renewal_that_sat_in_a_socket_is_late(coupon, lease, may_begin):
    put(coupon, -1500, 300)
    before = stored(coupon)
    assert lease(ago_ms=LEASE_MS, may_begin=may_begin) == ["late", 7]
    assert lease(ago_ms=-60_000, may_begin=may_begin) == ["late", 7]
    assert stored(coupon) == before


def test_terms_begin_again(coupon, lease):
    put(coupon, -9000, -8000, term=2**32 - 1)
    assert lease() == ["begun", 1]


def test_what_is_malformed_is_refused(coupon, lease):
    for wrong in ("", "a" * 31, "A" * 32, "a" * 33, "x" * 32):
        with pytest.raises(redis.ResponseError, match="process: "):
            lease(process=wrong)
    for wrong in (0, 2**31 + 1):
        with pytest.raises(redis.ResponseError, match="lease_ms: "):
            lease(lease_ms=wrong)
    for wrong in (*NUMBERS_BAD, 0):
        if wrong != 0:
            with pytest.raises(redis.ResponseError, match="from: "):
                coupon.run("master_lease", ME, wrong, LEASE_MS, 1, keys=[KEY])
    for wrong in ("", 2, "x"):
        with pytest.raises(redis.ResponseError, match="may_begin: "):
            lease(may_begin=wrong)
    coupon.redis.hset(KEY, mapping={"process": ME, "term": "x", "from": 1, "until": BIG})
    with pytest.raises(redis.ResponseError, match="lease: "):
        lease()
    coupon.redis.delete(KEY)
    coupon.redis.set(KEY, "x")
    with pytest.raises(redis.ResponseError, match="not a hash"):
        lease()


# What the gateways' scripts do


@pytest.mark.parametrize(
    "since_ms, to_ms, is_in", [(-100, 60_000, True), (-1900, -100, False), (60_000, 90_000, False)]
)
def test_outside_of_it_nothing_is_issued_or_read(coupon, since_ms, to_ms, is_in):
    coupon.put()
    at = coupon.time_ms()
    run_id = f"{coupon.run_id}:{at + since_ms}:{at + to_ms}"
    state = coupon.run("coupon_state", run_id, 0, 0, keys=coupon.keys[:1])
    assert state[0] == ("open" if is_in else "unverified")
    state = coupon.run("user_state", "42", run_id, 0, 0, keys=coupon.keys[:2])
    assert state[1] == ("complete" if is_in else "unverified")
    before = coupon.snapshot()
    reply = coupon.issue_raw("42", run_id=run_id)
    assert reply[0] == ("ok" if is_in else "unverified")
    assert (coupon.snapshot() != before) == is_in


@pytest.mark.parametrize("lease", ["::", ":1", ":1:", ":1:2:3", ":-1:2", ":x:2"])
def test_a_lease_that_is_none(coupon, lease):
    coupon.put()
    with pytest.raises(redis.ResponseError, match="run_id: "):
        coupon.issue_raw("42", run_id=coupon.run_id + lease)
