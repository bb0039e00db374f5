"""Orders that use receives, over the socket API: with and without a budget, steadily, and beside
issuing. Clients wait for COMMIT."""

import signal
import statistics
import subprocess
import time
import uuid

import cpu
from rig import (
    AMPLE,
    BUILD,
    FULL_LOAD,
    RUN,
    SCALE,
    at_least,
    ctl,
    database_open,
    failures,
    figures,
    has,
    rows_per_s,
    rush,
    times,
    users_take,
)

USES = 150_000 // SCALE
LOAD = ("--connections", 64, "--pipeline", 16)
STEADY_RATE = 1000  # a second
STEADY_S = 10 if SCALE == 1 else 2
ROUNDS = 3
# Beside another load, which goes on for BESIDE_S at most.
PEAK_ISSUES, PEAK_USES = 1_200_000 // SCALE, 250_000 // SCALE
BESIDE_S = 120 if SCALE == 1 else 30
WANTED_PER_S = {"free": 25_000, "budget": 20_000}  # by the terms of the coupon
WANTED_BESIDE = 0.8  # of the peak
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def coupon_make(name, *terms):
    terms = ("--total", AMPLE, "--valid-days", 30, "--events", "off", *terms)
    coupon = ctl("create", "--name", name, *terms)
    ctl("publish", coupon)
    return coupon


def budget_terms():
    name = f"bench-{uuid.uuid4().hex[:8]}"
    ctl("budget", "create", name, "--amount", AMPLE, "--currency", "EUR")
    return "--amount-off", "5.00", "--currency", "EUR", "--budget", name


def receive_text(coupon, user, batch, index):
    bits = [BASE32[batch.int >> shift & 31] for shift in range(125, -1, -5)]
    return f"{coupon}.{user}.{''.join(bits)}.{index}\n"


class Receives:
    """Issued ones of a new coupon, in a file for coupon-rush, to be used once."""

    def __init__(self, name, count=USES, terms=()):
        self.coupon = coupon_make(name, *terms)
        self.count, self.first = count, users_take(count)
        rush(self.coupon, count, *FULL_LOAD, "--first-user", self.first, name=f"{name}: issue")
        self.path = f"{RUN}/uses-{self.coupon}"
        with database_open() as db, open(self.path, "w", encoding="ascii") as file:
            rows = db.execute(
                "SELECT user_id, batch, idx FROM user_coupon WHERE coupon_id = %s"
                " ORDER BY user_id::bigint",
                (self.coupon,),
            )
            file.writelines(receive_text(self.coupon, *row) for row in rows)

    def use(self, *words):
        """As many as were answered as used must be so in PostgreSQL."""
        words = ("--receives", self.path, "--first-user", self.first, *words)
        result = rush(self.coupon, self.count, *words, name="uses", verify=False)
        with database_open() as db:
            (used,) = db.execute(
                "SELECT count(*) FROM receive_use WHERE coupon_id = %s AND state = 'used'",
                (self.coupon,),
            ).fetchone()
        if not used == result["answers"].get("used", 0) == self.count:
            failures.append(f"uses of {self.coupon}: {used} are used, answered {result['answers']}")
        return result


def per_s(result):
    return result["answers"].get("used", 0) / result["duration_us"] * 1e6


def uses_measure():
    for kind in WANTED_PER_S:
        receives = Receives(f"uses {kind}", terms=budget_terms() if kind == "budget" else ())
        with cpu.Meter() as meter:
            result = receives.use(*LOAD)
            begin_s, took_s = result["begin_us"] / 1e6, result["duration_us"] / 1e6
            costs = meter.costs(begin_s, begin_s + took_s, USES)
        costs["load"] = result["client_cpu_us"] / USES
        figures[f"uses_{kind}_per_s"] = per_s(result)
        figures[f"uses_{kind}_cpu_us"] = costs


def steady_p99_us():
    """The p99 of uses, and of issuing with its outcome."""
    count = STEADY_RATE * STEADY_S
    receives = Receives("uses steady", count)
    used = receives.use("--rate", STEADY_RATE)
    issued = rush(
        coupon_make("issued steady"), count, "--rate", STEADY_RATE, "--ack", "issued", name="issued"
    )
    return used["latency_us"]["p99"], issued["latency_us"]["p99"]


def uses_steady_measure():
    rounds = [steady_p99_us() for _ in range(ROUNDS)]
    figures["uses_steady_p99_us"] = statistics.median(one[0] for one in rounds)
    figures["uses_steady_issued_p99_us"] = statistics.median(one[1] for one in rounds)


def beside(peak, coupon, users, first, *words):
    """The peak while 1,000/s of another load go on, which ends with it."""
    words = ("--coupon", coupon, "--users", users, "--first-user", first, *words)
    words = (f"{BUILD}/coupon-rush", "--json", "--no-verify", "--rate", STEADY_RATE, *words)
    with subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE) as other:
        time.sleep(1)
        value = peak()
        if other.poll() is not None:
            failures.append("uses beside issuing: the steady load ended before the peak did")
        other.send_signal(signal.SIGINT)
        out = other.communicate()[0]
    if other.returncode:
        failures.append(f"uses beside issuing: {out}")
    return value


def uses_beside_measure():
    """The ratio of each peak beside the other load to its peak alone."""

    def issue_peak():
        return rows_per_s(rush(coupon_make("peak"), PEAK_ISSUES, *FULL_LOAD, name="issue"))

    def use_peak():
        return per_s(peaks.pop().use(*LOAD))

    users = STEADY_RATE * BESIDE_S
    ratios = {"issue": [], "use": []}
    for _ in range(ROUNDS):
        steady = Receives("uses steady", users)
        words = (steady.coupon, users, steady.first, "--receives", steady.path)
        alone = issue_peak()
        ratios["issue"].append(beside(issue_peak, *words) / alone)
        peaks = [Receives("uses peak", PEAK_USES) for _ in range(2)]
        words = (coupon_make("steady"), users, users_take(users), "--ack", "issued")
        alone = use_peak()
        ratios["use"].append(beside(use_peak, *words) / alone)
    for name, values in ratios.items():
        figures[f"uses_beside_{name}_ratio"] = statistics.median(values)


MEASURES = (uses_measure, uses_steady_measure, uses_beside_measure)


def rows():
    yield "Uses of receives, 64 connections x 16", None, None
    for kind, label in (("free", "without a budget"), ("budget", "one budget for all")):
        if has(f"uses_{kind}_per_s"):
            rate = figures[f"uses_{kind}_per_s"]
            yield f"  {label}", f"{rate:,.0f} /s", at_least(rate, WANTED_PER_S[kind], " /s")
            yield cpu.row(figures[f"uses_{kind}_cpu_us"], "use")
    if has("uses_steady_p99_us"):
        p99 = [figures[f"uses_steady_{name}p99_us"] / 1e3 for name in ("", "issued_")]
        label = "  1,000/s: p99 of a use / of ack=issued"
        yield label, f"{p99[0]:.2f} / {p99[1]:.2f} ms", times(
            "uses_steady_p99_us", "uses_steady_issued_p99_us", "ack=issued", 2
        )
    if has("uses_beside_issue_ratio"):
        for name, label in (
            ("issue", "peak of issuing beside 1,000/s of uses"),
            ("use", "peak of uses beside 1,000/s of issuing"),
        ):
            ratio = figures[f"uses_beside_{name}_ratio"]
            yield f"  {label}", f"{ratio:.2f} x alone", at_least(ratio, WANTED_BESIDE)
