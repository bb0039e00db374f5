"""One coupon over HTTP: each connection is kept alive and has one request in flight. The load
generator is wrk."""

import json
import os
import resource
import secrets
import time

import cpu
from rig import (
    QUICK,
    at_most,
    coupon_make,
    failures,
    figures,
    has,
    rate,
    run,
    settled_wait,
    times,
)

CONNECTIONS = (64, 1000)
DURATION_S = 10 if not QUICK else 1
CPU_ALLOWED_US = 50  # a request, of the whole system without the load generator


def children_cpu_us():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e6


def wrk(coupon, connections, duration_s=DURATION_S):
    url = f"http://{os.environ['COUPON_HTTP_LISTEN']}"
    words = ("-t", 1, "-c", connections, "-d", f"{duration_s}s", "--timeout", "10s")
    script = ("-s", "bench/keep_alive.lua", url, "--", coupon, secrets.randbelow(2**31))
    return json.loads(run("wrk", *words, *script).splitlines()[-1])


def http_round(connections):
    name = f"HTTP over {connections} connections"
    coupon = coupon_make(name)
    with cpu.Meter() as meter:
        begin_s, load_us = time.monotonic(), children_cpu_us()
        result = wrk(coupon, connections)
        load_us = children_cpu_us() - load_us
        taken = settled_wait(coupon)
        costs = meter.costs(begin_s, time.monotonic(), result["requests"])
    costs["load"] = load_us / result["requests"]
    # wrk leaves up to one request a connection without reading its answer.
    if result["refused"] or result["broken"] or not 0 <= taken - result["requests"] <= connections:
        failures.append(f"{name}: Redis gave out {taken}: {result}")
    figures[f"http_{connections}_per_s"] = result["requests"] / result["duration_us"] * 1e6
    figures[f"http_{connections}_p50_us"] = result["p50_us"]
    figures[f"http_{connections}_p99_us"] = result["p99_us"]
    figures[f"http_{connections}_cpu_us"] = costs


def http_measure():
    for connections in CONNECTIONS:
        http_round(connections)


MEASURES = (http_measure,)


def rows():
    if not has(f"http_{CONNECTIONS[-1]}_per_s"):
        return
    yield "HTTP keep-alive, one coupon, one request in flight a connection", None, None
    for connections in CONNECTIONS:
        name = f"http_{connections}"
        ratio = times(f"{name}_per_s", "script_calls_per_s", "redis-benchmark", 2)
        yield f"  {connections:,} connections: requests", rate(f"{name}_per_s"), ratio
        p50, p99 = (figures[f"{name}_{part}_us"] / 1000 for part in ("p50", "p99"))
        yield "    latency p50 / p99", f"{p50:.2f} / {p99:.2f} ms", ""
        costs = figures[f"{name}_cpu_us"]
        yield cpu.row(costs, "request", f", {at_most(costs['all'], CPU_ALLOWED_US)}")
