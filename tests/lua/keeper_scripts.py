"""The scripts of the keeper as it calls them, and what tests expect of a call that writes
nothing."""
import pytest
import redis

BIG = 2**53 - 1
LOAD = {
    "fence": 5,
    "run_id": None,
    "generation": 3,
    "version": 2,
    "status": "open",
    "total": 100,
    "begin": 1000,
    "end": 2000,
    "limit": 2,
    "issued": 0,
    "late": 0,
    "revocation": 0,
}
PLACED = ["placed", 100, 0, 0, 0]
VERIFY = {
    "fence": 5,
    "run_id": None,
    "generation": 1,
    "seq_seen": 7,
    "late": 0,
    "revocation": 0,
}
TERMS = {"version": 2, "status": "open", "total": 100, "begin": 0, "end": 0, "limit": 1}
EXPIRE = {"fence": 5, "generation": 2, "seq": 3, "keep_ms": 60000}
CLOSED = {"status": "closed", "generation": 2, "seq": 3, "fence": 5}
NUMBERS_BAD = ["", "-1", "1.5", "01", "00", "1e3", "0x1", " 1", "nan", "x", BIG + 1, "9" * 30]


def run(coupon, script, defaults, **changes):
    args = {**defaults, **changes}
    if "run_id" in args and args["run_id"] is None:
        args["run_id"] = coupon.run_id
    keys = keys_of(coupon, script, args.get("generation"))
    return coupon.run(script, *args.values(), keys=keys)


def keys_of(coupon, script, generation=LOAD["generation"]):
    more = {
        "verify": [coupon.seen],
        "place": [coupon.known, coupon.seen, coupon.codes, *coupon.fill_keys(generation)],
    }
    return coupon.keys + more.get(script, [])


def load(coupon, **changes):
    return run(coupon, "place", LOAD, **changes)


def load_held(coupon, **changes):
    """What the keeper does with a coupon that was never in Redis."""
    coupon.run("hold", changes.get("fence", LOAD["fence"]), 1)
    return load(coupon, **changes)


def verify(coupon, **changes):
    return run(coupon, "verify", VERIFY, **changes)


def terms(coupon, **changes):
    return run(coupon, "terms", TERMS, **changes)


def expire(coupon, keys=None, **changes):
    if keys is None:
        more = (coupon.known, coupon.seen, coupon.dead)
        keys = [*coupon.keys, *more, coupon.settled, coupon.rejected, coupon.terms]
        keys.append(coupon.codes)
    return coupon.run("expire", *{**EXPIRE, **changes}.values(), keys=keys)


def unchanged(coupon, expected, run, *args, **changes):
    before = coupon.snapshot()
    assert run(coupon, *args, **changes) == expected
    assert coupon.snapshot() == before


def refused(coupon, sentence, run, *args, **changes):
    before = coupon.snapshot()
    with pytest.raises(redis.ResponseError) as e:
        run(coupon, *args, **changes)
    assert str(e.value).startswith(f"couponmq: {sentence}"), str(e.value)
    assert coupon.snapshot() == before
