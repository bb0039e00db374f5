"""More than the system can do, from users who do not wait their turn: the true answers in time of
an open loop (`coupon-rush --open-loop`) at 1, 2, 5 and 10 times the rate that saturates it.

Each user has a connection of its own, gives up after 2 s, and presses again at once, three times.
The generator has the last core for itself, as clients are on other machines, and the stack the
others. What the generator cannot start in time it says.
"""

import json
import os

import cpu
from rig import (
    AMPLE,
    BUILD,
    QUICK,
    at_least,
    coupon_make,
    failures,
    figures,
    has,
    run,
    say,
    stack_fresh,
    users_take,
)

MULTIPLES = (1, 2, 5, 10)
DURATION_S = 60 if not QUICK else 6
KINDS = {  # by name: over TLS, words for the generator
    "lines": (False, ()),
    "HTTP": (False, ("--http",)),
    "lines, TLS": (True, ()),
    "HTTP, TLS": (True, ("--http",)),
}
# The search for saturation begins at this rate, and each step has half as much again. A step is
# longer than a user tries, which is four times for 2 s.
SEARCH_FIRST, SEARCH_FACTOR, SEARCH_S = 1000, 1.5, 10 if not QUICK else 3
SEARCH_MOST = 10**6
SATURATED = 0.9  # of what is offered is answered in time
WANTED = 0.8  # of the peak
SOURCES = 20  # addresses of the generator, each with 28,000 ports
MARGIN = 1.2  # of the numbers of users that are reserved: their number is random


def stack_over(is_tls):
    for name in list(os.environ):
        if name.startswith("COUPON_TLS_"):
            del os.environ[name]
    os.environ["TLS"] = "yes" if is_tls else "no"
    stack_fresh()


def cores_split():
    """The cores of the stack, and the one of the generator; with one core both share it."""
    cores = sorted(os.sched_getaffinity(0))
    return (set(cores[:-1]) or set(cores)), cores[-1]


def open_loop(coupon, rate, duration_s, *words, name):
    first = users_take(int(rate * duration_s * MARGIN) + 1000)
    options = ("--rate", rate, "--duration", f"{duration_s}s", "--sources", SOURCES)
    _, core = cores_split()
    out = run(
        *("taskset", "-c", core, f"{BUILD}/coupon-rush", "--coupon", coupon, "--open-loop"),
        *("--first-user", first, "--settle-timeout-s", 120, "--json", *options, *words),
        check=False,
    ).strip()
    result = json.loads(out)
    if not result["passed"]:
        failures.append(f"{name}: {out}")
    return result


def peak_find(kind, words):
    """The most answers in time a second: from one rate to the next, until it is too much."""
    coupon = coupon_make(f"saturation, {kind}", AMPLE)
    rate, peak = SEARCH_FIRST, 0
    while rate < SEARCH_MOST:
        result = open_loop(coupon, rate, SEARCH_S, *words, name=f"saturation, {kind}")["open_loop"]
        peak = max(peak, result["goodput_per_second"])
        if result["goodput_per_second"] < SATURATED * result["offered_per_second"]:
            break
        rate = int(rate * SEARCH_FACTOR)
    return peak


def kind_measure(kind):
    is_tls, words = KINDS[kind]
    stack_over(is_tls)
    for program in cpu.PROGRAMS:
        cpu.pin(program, cores_split()[0])
    peak = figures[f"noon_{kind}_peak"] = peak_find(kind, words)
    for multiple in MULTIPLES:
        name = f"noon, {kind}, {multiple} times"
        say(f"bench: {name}")
        rate = max(1, peak * multiple)
        result = open_loop(coupon_make(name, AMPLE), rate, DURATION_S, *words, name=name)
        loop = result["open_loop"]
        figures[f"noon_{kind}_{multiple}"] = {
            "offered": loop["offered_per_second"],
            "started": loop["started_per_second"],
            "good": loop["goodput_per_second"],
            "least": loop["goodput_least"],
            "p99_us": result["latency_us"]["p99"],
            "calm": loop["after"]["calm"],
        }


def noon_measure():
    for kind in KINDS:
        kind_measure(kind)
    stack_over(False)


MEASURES = (noon_measure,)


def multiple_row(kind, multiple):
    one, peak = figures[f"noon_{kind}_{multiple}"], figures[f"noon_{kind}_peak"]
    label = f"    {multiple} x: offered / started / in time, p99"
    rates = f"{one['offered']:,} / {one['started']:,} / {one['good']:,} /s"
    ratio = one["good"] / peak if peak else 0
    calm = "calm" if one["calm"] else "MISSED calm"
    note = f"{ratio:.2f} x peak, {at_least(ratio, WANTED)}; {one['p99_us'] / 1000:,.0f} ms; {calm}"
    return label, rates, note


def rows():
    kinds = [kind for kind in KINDS if has(f"noon_{kind}_peak")]
    if not kinds:
        return
    title = "noon: an open loop, a connection for each user"
    yield f"{title}; {DURATION_S} s each, and {WANTED} of the peak in time", None, None
    for kind in kinds:
        yield f"  {kind}: peak in time", f"{figures[f'noon_{kind}_peak']:,} /s", ""
        for multiple in MULTIPLES:
            if has(f"noon_{kind}_{multiple}"):
                yield multiple_row(kind, multiple)
