"""Exchange codes beside the same load of issue, on one coupon over the socket API."""

import os
import statistics
import time

from rig import (
    FULL_LOAD,
    RUN,
    SCALE,
    at_least,
    coupon_make,
    ctl,
    figures,
    has,
    rows_per_s,
    rush,
    settled_wait,
    stack,
)

USERS = 200_000 // SCALE
PAIRS = 3
KNOWN_S = 2  # until a gateway knows a new set
WANTED = {"admission": 0.8, "end_to_end": 0.6}  # of issue


def codes_make(coupon, number):
    path = f"{RUN}/codes-{coupon}-{number}.csv"
    if os.path.exists(path):
        os.unlink(path)
    ctl("codes", "generate", coupon, "--count", USERS, "--out", path)
    return path


def admission(coupon, *words):
    """Accepted answers per second; the workers are stopped."""
    result = rush(coupon, USERS, *FULL_LOAD, *words, name="claim: admission", verify=False)
    return result["answers"]["accepted"] / result["duration_us"] * 1e6


def end_to_end(coupon, *words):
    return rows_per_s(rush(coupon, USERS, *FULL_LOAD, *words, name="claim: end to end"))


def pair_measure(number):
    """The rates of claim and issue: those of admission, and those to the last committed row. The
    coupons are not those of the other pair, and what is admitted is settled before the next."""
    rates = {}
    for name, measured in (("admission", admission), ("end_to_end", end_to_end)):
        coupons = coupon_make(f"claim {name}"), coupon_make(f"issue {name}")
        path = codes_make(coupons[0], number)
        time.sleep(KNOWN_S)
        if name == "admission":
            stack("stop", "worker-1", "worker-2")
        runs = [(coupons[0], "--codes", path), (coupons[1],)]
        done = [measured(*one) for one in (runs if number % 2 else reversed(runs))]
        rates[name] = done if number % 2 else done[::-1]
        if name == "admission":
            stack("start", "worker-1", "worker-2")
            for coupon in coupons:
                settled_wait(coupon)
        os.unlink(path)
    return rates


def claim_measure():
    pairs = [pair_measure(number) for number in range(PAIRS)]
    for name in WANTED:
        figures[f"claim_{name}_per_s"] = statistics.median(pair[name][0] for pair in pairs)
        figures[f"claim_{name}_ratio"] = statistics.median(
            pair[name][0] / pair[name][1] for pair in pairs
        )


MEASURES = (claim_measure,)


def rows():
    if not has("claim_admission_per_s"):
        return
    yield "Exchange codes", None, None
    for name, label in (("admission", "admission"), ("end_to_end", "end to end")):
        rate = f"{figures[f'claim_{name}_per_s']:,.0f} /s"
        ratio = figures[f"claim_{name}_ratio"]
        yield f"  {label}", rate, f"{ratio:.2f} x issue, {at_least(ratio, WANTED[name])}"
