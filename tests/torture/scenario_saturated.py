"""
Faults while both gateways answer nearly as many requests as they can, by `coupon-rush` on a
coupon of its own, which also checks P1 to P3 of it. The rate before is printed, and when it is
reached again; the bound is loose, because nothing of the machine is idle then.
"""

import signal
import time

import redis
from crowd import ENDS_S, rushes
from faults import FAULTS
from services import say

from scenario import scenario

FIRST_N = 30_000  # users of one gateway, to learn the rate
NEAR = 0.9  # of that rate is the load
USERS_S = 60  # who would ask for so long: the load does not end by itself
WINDOW_S = 0.25
SHARES, BACK_S = (0.2, 0.5, 0.9), 20.0  # the first one is required
# Requests wait longer than the load's clients do, and gateways refuse what is too much.
ALLOWED = {"answers": ("unavailable", "busy"), "unknown": 0.6}


def accepted(rig, coupon):
    """Receives so far; None while Redis is away."""
    try:
        return int(rig.redis_get(coupon, "seq") or 0)
    except redis.exceptions.RedisError:
        return None


def rate_now(rig, coupon):
    """Accepted receives a second in a short window."""
    begun, before = time.monotonic(), accepted(rig, coupon)
    time.sleep(WINDOW_S)  # the measure is the number of events in a given time
    after = accepted(rig, coupon)
    if before is None or after is None:
        return 0.0
    return (after - before) / (time.monotonic() - begun)


def saturated(rig, chance, fault):
    coupon = rig.stack.coupon_make(100_000_000, name="saturated")
    rig.wait(lambda: accepted(rig, coupon) is not None and rig.redis_get(coupon, "run_id"))
    with rushes(rig, ("--coupon", coupon), 1, FIRST_N):
        rate = max(rate_now(rig, coupon) for _ in range(6))
    # At a fixed rate, because refusals are faster: they would use up the users at once.
    rate = max(1, int(NEAR * rate / len(rig.gateways)))
    with rushes(rig, ("--coupon", coupon), 10**6, rate * USERS_S, rate) as started:
        rig.wait(lambda: accepted(rig, coupon) > 2 * FIRST_N + rate, ENDS_S)
        before = max(rate_now(rig, coupon) for _ in range(3))
        with FAULTS[fault].lasting(rig, chance):
            rig.pause(chance, 0.2, 1.0)
        told = back_wait(rig, coupon, before)
        assert all(one.poll() is None for one in started), "the load ended by itself"
        for one in started:
            one.send_signal(signal.SIGTERM)
    say(f"{before:.0f} accepted a second before, {told}")


def back_wait(rig, coupon, before):
    """What to print of the recovery: the time until each share of the rate is reached again."""
    begun, took, told = time.monotonic(), 0.0, {}
    while SHARES[-1] not in told and took < BACK_S:
        rate, took = rate_now(rig, coupon), time.monotonic() - begun
        for share in SHARES:
            if rate >= share * before:
                told.setdefault(share, took)
    assert SHARES[0] in told, f"{before:.0f} accepted a second before, {rate:.0f} now"
    return ", ".join(f"{share:.0%} after {took:.1f} s" for share, took in told.items())


def saturated_scenario(fault):
    def run(rig, chance):
        saturated(rig, chance, fault)

    run.__name__ = f"saturated_{fault}"
    run.__doc__ = f"{fault} near saturation of the gateways."
    scenario(beside=False, crowd=False, **ALLOWED)(run)


for _fault in ("gateway_killed", "worker_killed", "redis_killed", "postgresql_frozen"):
    saturated_scenario(_fault)
