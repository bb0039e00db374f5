"""One coupon that everybody requests, over the socket API."""

import re
import statistics

import cpu
from rig import (
    FULL_LOAD,
    QUICK,
    RUN,
    SCALE,
    at_least,
    at_most,
    coupon_make,
    ctl,
    failures,
    figures,
    has,
    rate,
    redis_open,
    redis_process,
    rows_per_s,
    run,
    rush,
    settled_wait,
    stack,
    times,
    users_take,
)

BASELINE_REQUESTS = 200_000 // SCALE
ADMISSION_USERS = 300_000 // SCALE
ADMISSION_PAIRS = 5
ADMISSION_WANTED = 4  # times redis-benchmark
SOLD_OUT_REQUESTS = 1_000_000 // SCALE
ROWS_USERS = 400_000 // SCALE
ONE_BY_ONE_USERS = 200_000 // SCALE
STEADY_S = 5 if not QUICK else 1
STEADY_RATE = 1_000
STEADY_ROUNDS = {"accepted": 5, "issued": 5, "queued": 1}
# The p99 at that rate, at most: so many ms, and so many times the p99 of an fsync.
STEADY_ALLOWED = {"accepted": (1.5, 1), "issued": (8, 4)}
PARTS = ("p50", "p99", "p99_9")
RETRIES_LOAD = ("--ack", "issued", "--connections", 2, "--pipeline", 1000)
RETRIES_USERS = 60_000 // SCALE
RETRIES_ROUNDS = 3
RETRIES_WANTED = 0.7  # of the first time
UUID_ALLOWED = 0.75  # of integers, end to end


def script_text():
    """lua/issue.lua as the gateway loads it."""
    return run("awk", "-f", "scripts/lua.awk", "lua/prelude.lua", "lua/issue.lua")


def script_calls_round(sha, run_id):
    """Calls per second of redis-benchmark with the same script, one request a call, at the stack's
    fsync setting."""
    coupon = coupon_make("redis-benchmark")
    keys = [f"coupon:{{{coupon}}}", f"coupon:{{{coupon}}}:users", f"coupon:{{{coupon}}}:outbox"]
    client = redis_open()
    address = client.connection_pool.connection_kwargs
    stack("stop", "worker-1", "worker-2")
    receive = ("01JD8Z6Q4T1M0V__rand_int__", 0, 0, 1, "9__rand_int__")
    out = run(
        *("redis-benchmark", "-h", address["host"], "-p", address["port"], "-P", 16, "-c", 50),
        *("-n", BASELINE_REQUESTS, "-r", 10**12, "--csv"),
        *("EVALSHA", sha, 3, *keys, run_id, 2**53 - 1, coupon, *receive),
    )
    # The receives of this benchmark must not be sent: they are removed before a keeper finds them
    # overdue.
    client.unlink(*keys)
    ctl("close", coupon)
    return float(out.splitlines()[-1].split('","')[1])


def admission_round(coupon):
    """Accepted answers per second while the workers are stopped."""
    result = rush(coupon, ADMISSION_USERS, *FULL_LOAD, name="admission", verify=False)
    stack("start", "worker-1", "worker-2")
    settled_wait(coupon)
    return result["answers"]["accepted"] / result["duration_us"] * 1e6


def admission_measure():
    """The medians of five pairs, whose two runs follow each other."""
    coupon = coupon_make("admission")
    client = redis_open()
    sha = client.script_load(script_text())
    run_id = redis_process(client)
    pairs = [
        (script_calls_round(sha, run_id), admission_round(coupon)) for _ in range(ADMISSION_PAIRS)
    ]
    figures["script_calls_per_s"] = statistics.median(pair[0] for pair in pairs)
    figures["admission_per_s"] = statistics.median(pair[1] for pair in pairs)


def sold_out_measure():
    coupon = coupon_make("sold out", 1)
    rush(coupon, 2, name="sold out: the one", verify=True)
    result = rush(coupon, SOLD_OUT_REQUESTS, *FULL_LOAD, name="sold out", verify=False)
    figures["sold_out_per_s"] = result["answers"]["out_of_stock"] / result["duration_us"] * 1e6


def rows_measure():
    coupon = coupon_make("ample stock")
    result = rush(coupon, ROWS_USERS, *FULL_LOAD, name="end to end")
    figures["end_to_end_per_s"] = rows_per_s(result)


def rows_uuid_measure():
    """UUIDs without any order, beside integers in sequence: the medians of three pairs, whose two
    runs follow each other. They are not the runs of rows_measure(), and come last, so that the
    other figures compare with those of commits that have no UUIDs."""
    coupon = coupon_make("ample stock, UUIDs")

    def round_of(*ids):
        result = rush(coupon, ROWS_USERS, *FULL_LOAD, *ids, name=f"end to end {' '.join(ids)}")
        return rows_per_s(result)

    uuid = ("--user-ids", "uuid", "--user-seed", "1")
    pairs = []
    for number in range(3):
        order = ((), uuid) if number % 2 == 0 else (uuid, ())
        rates = {ids: round_of(*ids) for ids in order}
        pairs.append((rates[()], rates[uuid]))
    figures["end_to_end_pairs_per_s"] = statistics.median(pair[0] for pair in pairs)
    figures["end_to_end_uuid_per_s"] = statistics.median(pair[1] for pair in pairs)
    figures["end_to_end_uuid_ratio"] = statistics.median(pair[1] / pair[0] for pair in pairs)


def rush_measure():
    coupon = coupon_make("noon rush", 10_000)
    result = rush(coupon, 20_000, name="the rush")
    figures["rush_answers_s"] = result["duration_us"] / 1e6
    figures["rush_rows_s"] = result["verify"]["committed_us"] / 1e6


def steady_round(ack):
    coupon = coupon_make(f"steady {ack}", 10**6)
    options = ("--rate", STEADY_RATE, "--ack", ack)
    return rush(coupon, STEADY_RATE * STEADY_S, *options, name=f"steady {ack}")["latency_us"]


def steady_measure():
    """The medians of the rounds, in turns."""
    rounds = {ack: [] for ack in STEADY_ROUNDS}
    for number in range(max(STEADY_ROUNDS.values())):
        for ack, latencies in rounds.items():
            if number < STEADY_ROUNDS[ack]:
                latencies.append(steady_round(ack))
    for ack, latencies in rounds.items():
        for part in PARTS:
            figures[f"steady_{ack}_{part}_us"] = statistics.median(one[part] for one in latencies)


def memory_measure():
    """Peak resident memory of each program since it started, after a full load over 1,000
    connections."""
    coupon = coupon_make("memory")
    rush(
        coupon,
        ROWS_USERS,
        "--connections",
        1000,
        "--pipeline",
        16,
        "--timeout-s",
        30,
        name="memory",
    )
    for name in ("gateway", "worker-1"):
        with open(f"{RUN}/{name}.pid", encoding="utf-8") as file:
            pid = file.read().strip()
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            kib = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))
        figures[f"{name.split('-')[0]}_peak_mib"] = kib / 1024


def one_by_one_measure():
    """Without pipelining: each connection waits for its answer."""
    coupon = coupon_make("one by one")
    options = ("--connections", 64, "--pipeline", 1, "--user-seed", 1)
    with cpu.Meter() as meter:
        result = rush(coupon, ONE_BY_ONE_USERS, *options, name="one by one")
        figures["one_by_one_cpu_us"] = meter.rush_costs(result)
    figures["one_by_one_answers_per_s"] = result["per_second"]
    figures["one_by_one_rows_per_s"] = rows_per_s(result)
    figures["one_by_one_p50_us"] = result["latency_us"]["p50"]
    figures["one_by_one_p99_us"] = result["latency_us"]["p99"]


def retries_measure():
    """Requests that are sent again with the same keys, when all are committed, beside the first
    time: the medians of three rounds."""
    rounds = []
    for _ in range(RETRIES_ROUNDS):
        coupon = coupon_make("retries")
        words = (*RETRIES_LOAD, "--keys", "--first-user", users_take(RETRIES_USERS))
        first = rush(coupon, RETRIES_USERS, *words, name="retries: the first time")
        again = rush(coupon, RETRIES_USERS, *words, name="retries", verify=False)
        rates = [
            one["answers"].get("issued", 0) / one["duration_us"] * 1e6 for one in (first, again)
        ]
        rounds.append((*rates, rates[1] / rates[0]))
        if again["answers"] != {"issued": RETRIES_USERS}:
            failures.append(f"retries: {again['answers']}")
    for i, name in enumerate(("first_per_s", "again_per_s", "ratio")):
        figures[f"retries_{name}"] = statistics.median(one[i] for one in rounds)


MEASURES = (
    steady_measure,
    rush_measure,
    rows_measure,
    sold_out_measure,
    admission_measure,
    memory_measure,
    rows_uuid_measure,
    one_by_one_measure,
    retries_measure,
)


def steady_rows():
    for ack in ("accepted", "queued", "issued"):
        if not has(f"steady_{ack}_p50_us"):
            continue
        label = f"  {STEADY_RATE:,}/s, ack={ack}: p50 / p99 / p99.9"
        parts = (figures[f"steady_{ack}_{part}_us"] / 1000 for part in PARTS)
        note = ""
        if has("fsync_p99_us") and ack in STEADY_ALLOWED:
            least_ms, fsyncs = STEADY_ALLOWED[ack]
            limit = round(least_ms + fsyncs * figures["fsync_p99_us"] / 1000, 1)
            note = "p99 " + at_most(figures[f"steady_{ack}_p99_us"] / 1000, limit, " ms")
        yield label, " / ".join(f"{part:.2f}" for part in parts) + " ms", note


def one_by_one_rows():
    f = figures
    label = "  64 connections without pipelining: answers / rows"
    rates = f"{f['one_by_one_answers_per_s']:,.0f} / {f['one_by_one_rows_per_s']:,.0f} /s"
    yield label, rates, times("one_by_one_answers_per_s", "script_calls_per_s", "redis-benchmark")
    p50, p99 = (f[f"one_by_one_{part}_us"] / 1000 for part in ("p50", "p99"))
    yield "    latency p50 / p99", f"{p50:.2f} / {p99:.2f} ms", ""
    yield cpu.row(f["one_by_one_cpu_us"], "receive")


def rows():
    f = figures
    yield "couponmq", None, None
    if has("admission_per_s"):
        ratio = times("admission_per_s", "script_calls_per_s", "redis-benchmark")
        times_n = f["admission_per_s"] / f["script_calls_per_s"]
        note = f"{ratio}, {at_least(times_n, ADMISSION_WANTED)}"
        yield "  admission (ack=accepted, workers stopped)", rate("admission_per_s"), note
    if has("sold_out_per_s"):
        ratio = times("sold_out_per_s", "script_calls_per_s", "redis-benchmark")
        yield "  sold-out answers", rate("sold_out_per_s"), ratio
    if has("end_to_end_per_s"):
        ratio = times("end_to_end_per_s", "rows_single_per_s", "count and row")
        yield "  end to end, to the last committed row", rate("end_to_end_per_s"), ratio
        if has("rows_many_per_s"):
            yield "", "", times("end_to_end_per_s", "inserts_single_per_s", "one row alone")
            yield "", "", times("end_to_end_per_s", "rows_many_per_s", "500 rows", 2)
    if has("end_to_end_uuid_per_s"):
        rates = f"{f['end_to_end_pairs_per_s']:,.0f} / {f['end_to_end_uuid_per_s']:,.0f} /s"
        ratio = f["end_to_end_uuid_ratio"]
        note = f"{ratio:.2f} x integers, {at_least(ratio, UUID_ALLOWED)}"
        yield "  the same, in turns: users are integers / UUIDs", rates, note
    if has("rush_rows_s"):
        yield "  20,000 users for 10,000 coupons: answers / rows", (
            f"{f['rush_answers_s']:.3f} / {f['rush_rows_s']:.3f} s"
        ), ""
    yield from steady_rows()
    if has("one_by_one_answers_per_s"):
        yield from one_by_one_rows()
    if has("retries_ratio"):
        rates = f"{f['retries_first_per_s']:,.0f} / {f['retries_again_per_s']:,.0f} /s"
        ratio = f["retries_ratio"]
        note = f"{ratio:.2f} x the first time, {at_least(ratio, RETRIES_WANTED)}"
        yield "  ack=issued, 2 x 1,000 at once: first / known keys", rates, note
    if has("worker_peak_mib"):
        peaks = f"{f['gateway_peak_mib']:.0f} / {f['worker_peak_mib']:.0f} MiB"
        yield "  resident peak, gateway / worker", peaks, "1,000 connections"
