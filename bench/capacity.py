"""What to plan machines with: what a receive costs each program and store, by how it comes, and
where one thread of Redis and one row of PostgreSQL end. docs/about/capacity.json keeps the figures,
from which capacity_model.py makes the tables of docs/about/capacity.md.
"""

import json
import os
import random
import re
import statistics
import threading
import time
import uuid
from functools import cache, partial
from pathlib import Path

import capacity_model
import cpu
from counters import STORES, Counters
from gate import Gateway
from growth import redis_bytes, stored_bytes
from keep_alive import wrk
from limits import fsync_measure
from many_coupons import coupons_make
from one_coupon import script_text
from rig import (
    AMPLE,
    BUILD,
    FULL_LOAD,
    QUICK,
    ROOT,
    SCALE,
    coupon_make,
    database_open,
    failures,
    figures,
    has,
    machine,
    redis_open,
    redis_process,
    rows_per_s,
    run,
    rush,
    say,
    settled_wait,
    stack,
    stack_fresh,
    users_take,
)

ROUNDS = 3 if not QUICK else 1  # whose medians count
RANDOM = ("--user-seed", 1, "--settle-timeout-s", 120, "--timeout-s", 60)
USERS = 200_000 // SCALE
MANY = 10_000 // SCALE
CPU_FROM = 500  # receives: a tick of the CPU time is 10 ms
HTTP_CONNECTIONS, HTTP_S = 64, 4 if not QUICK else 1
IDLE_S = 5
CALLS = 8  # script calls that Redis has at once
SHAPES = ((1, 1), (1, 240), (48, 1))  # coupons in a call, and requests for each
SHAPE_REQUESTS, SHAPE_CALLS = 48_000 // SCALE, 4000  # at most
TRANSACTION = 4096  # receives, at most: TRANSACTION_MAX of worker/work_receives.c
TRANSACTIONS = 9  # of which the fastest counts: what others do only makes them slower
WORKERS = PROCESSES = (1, 2, 4)
WAIT_S = 120
KEPT = (
    *(f"cpu_{program}" for program in cpu.PROGRAMS),
    *("per_s", "script_calls_total", "messages_published_total", "worker_transactions_total"),
    *("redis_scripts", "redis_scripts_us"),
    *("bytes_client_gateway", "bytes_gateway_redis", "bytes_gateway_rabbitmq"),
    *("bytes_workers_rabbitmq", "bytes_workers_postgres", "bytes_workers_redis"),
    *(f"{what}_{store}" for what in ("written", "syncs") for store in STORES),
)

# Loads: each returns how many there were, from when, and until when


def rush_load(users, words, name, coupon):
    result = rush(coupon, users, *words, *RANDOM, name=name)
    begin_s, verify = result["begin_us"] / 1e6, result["verify"]
    return verify["accepted"], begin_s, begin_s + (verify["committed_us"] or 0) / 1e6


def sold_out_load(requests, name, coupon):
    result = rush(coupon, requests, *FULL_LOAD, name=name, verify=False)
    begin_s = result["begin_us"] / 1e6
    return result["answers"]["out_of_stock"], begin_s, begin_s + result["duration_us"] / 1e6


def http_load(_, coupon):
    begin_s = time.monotonic()
    result = wrk(coupon, HTTP_CONNECTIONS, HTTP_S)
    settled_wait(coupon)
    return result["requests"], begin_s, time.monotonic()


def sold_out_make(name):
    coupon = coupon_make(name, 1)
    rush(coupon, 1, name=name)
    return coupon


@cache
def many_make(_=None):
    return coupons_make(MANY)[0]


LOADS = {  # what makes the coupons, and the load; those come first to which rest is much
    "1_s": (coupon_make, partial(rush_load, 10 // SCALE + 1, ("--rate", 1))),
    "1000_s": (coupon_make, partial(rush_load, 10_000 // SCALE, ("--rate", 1000))),
    "10000_s": (coupon_make, partial(rush_load, 50_000 // SCALE, ("--rate", 10_000))),
    "lines": (coupon_make, partial(rush_load, USERS, FULL_LOAD)),
    "queued": (coupon_make, partial(rush_load, USERS, (*FULL_LOAD, "--ack", "queued"))),
    "issued": (coupon_make, partial(rush_load, USERS, (*FULL_LOAD, "--ack", "issued"))),
    "http": (coupon_make, http_load),
    "sold_out": (sold_out_make, partial(sold_out_load, 5 * USERS)),
    "http_sold_out": (sold_out_make, http_load),
    "many": (many_make, partial(rush_load, USERS // 3, FULL_LOAD)),
}


def load_round(name, load, coupon, idle):
    """What one of the load costs, without what is done at rest."""
    with Counters() as counters, cpu.Meter() as meter:
        n, begin_s, end_s = load(f"capacity, {name}", coupon)
        cpu_us = meter.costs(begin_s, end_s, n)
    counts = counters.counts
    seconds = counts.pop("seconds")
    each = {key: (count - idle.get(key, 0) * seconds) / n for key, count in counts.items()}
    if n >= CPU_FROM:
        each.update({f"cpu_{program}": cpu_us[program] for program in cpu.PROGRAMS})
    each["per_s"] = n / (end_s - begin_s)
    return {key: each.get(key) for key in KEPT}


def medians(rounds):
    found = {key: [one[key] for one in rounds if one[key] is not None] for key in rounds[0]}
    return {key: statistics.median(values) for key, values in found.items() if values}


def idle_rates():
    with Counters() as counters:
        time.sleep(IDLE_S)
    seconds = counters.counts.pop("seconds")
    return {key: count / seconds for key, count in counters.counts.items()}


def fetch(query, *values):
    with database_open() as db:
        return db.execute(query, values).fetchone()


def loads_measure(found):
    coupon_make("capacity, at rest")
    idle = idle_rates()
    for name, (make, load) in LOADS.items():
        coupon = make(f"capacity, {name}")
        rounds = ROUNDS if not name.endswith("_s") else 1
        say(f"bench: {name}")
        found[name] = medians([load_round(name, load, coupon, idle) for _ in range(rounds)])
        if name == "lines":
            (holders,) = fetch("SELECT issued_num FROM coupon WHERE id = %s", coupon)
            found["redis_bytes_a_holder"] = redis_bytes(coupon) / holders
    (rows,) = fetch("SELECT count(*) FROM user_coupon")
    found["postgres_bytes_a_row"] = float(sum(stored_bytes())) / rows


# One thread of Redis


def redis_thread_us():
    (pid,) = cpu.pids_of("redis")
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1000


def script_calls(sha, run_id, coupons, requests, calls):
    """The words of so many, of new users."""
    keys = [f"coupon:{{{one}}}{part}" for one in coupons for part in ("", ":users", ":outbox")]
    for _ in range(calls):
        words = ["EVALSHA", sha, len(keys), *keys, run_id, 2**53 - 1]
        for one in coupons:
            number = users_take(requests)
            words += [one, f"01JD8Z6Q4T{number:016d}", 0, 0, requests]
            words += [f"9{number + i:018d}" for i in range(requests)]
        yield words


def shape_us(sha, coupons, requests):
    """The time of the thread of Redis for a call, with CALLS of them at once."""
    client = redis_open()
    run_id = redis_process(client)
    calls = min(SHAPE_REQUESTS // (len(coupons) * requests), SHAPE_CALLS) // CALLS * CALLS
    words = list(script_calls(sha, run_id, coupons, requests, calls))
    begin_us, refused = redis_thread_us(), 0
    for i in range(0, calls, CALLS):
        pipeline = client.pipeline(transaction=False)
        for one in words[i : i + CALLS]:
            pipeline.execute_command(*one)
        for part in (part for reply in pipeline.execute() for part in reply):
            refused += part[0] != b"ok" or set(part[7:]) != {1}
    took_us = redis_thread_us() - begin_us
    for one in coupons:  # they must not be sent
        client.unlink(*(f"coupon:{{{one}}}{part}" for part in ("", ":users", ":outbox")))
    if refused:
        failures.append(f"capacity, script calls: {refused} refused")
    return took_us / calls


def script_measure(found):
    """What lua/issue.lua costs Redis for a call, for a coupon in it, and for a request."""
    sha = redis_open().script_load(script_text())
    rounds = []
    for _ in range(ROUNDS):
        made = {shape: coupons_make(shape[0])[0] for shape in SHAPES}
        stack("stop", "worker-1", "worker-2")
        alone, full, wide = (shape_us(sha, made[shape], shape[1]) for shape in SHAPES)
        stack("start", "worker-1", "worker-2")
        request = (full - alone) / (SHAPES[1][1] - 1)
        part = (wide - alone) / (SHAPES[2][0] - 1) - request
        rounds.append({"call": alone - part - request, "part": part, "request": request})
    found["script_us"] = medians(rounds)


def thread_measure(found):
    """Redis has one core, and gateway and generator the others: accepted receives a second while no
    worker runs, and the share of the time in which the thread of Redis runs."""
    cores = sorted(os.sched_getaffinity(0))
    coupon = coupon_make("capacity, pinned")
    stack("stop", "worker-1", "worker-2")
    others = set(cores[1:]) or set(cores)
    cpu.pin("redis", cores[:1])
    cpu.pin("gateway", others)
    os.sched_setaffinity(0, others)
    rush(coupon, USERS // 10, *FULL_LOAD, name="capacity, pinned", verify=False)
    busy_us = redis_thread_us()
    result = rush(coupon, 2 * USERS, *FULL_LOAD, name="capacity, pinned", verify=False)
    busy_us = redis_thread_us() - busy_us
    os.sched_setaffinity(0, cores)
    for program in ("redis", "gateway"):
        cpu.pin(program, cores)
    stack("start", "worker-1", "worker-2")
    settled_wait(coupon)
    found["pinned"] = {
        "accepted_per_s": result["answers"]["accepted"] / result["duration_us"] * 1e6,
        "redis_share": busy_us / result["duration_us"],
    }


# Processes of a gateway


def processes_measure(found):
    for n in PROCESSES:
        with Gateway(f"processes-{n}", COUPON_PROCESSES=str(n)) as gateway:
            words = (*FULL_LOAD, "--listen", gateway.lines)
            coupon = sold_out_make("capacity, processes")
            result = rush(coupon, 5 * USERS, *words, name="processes", verify=False)
            sold_out_per_s = result["answers"]["out_of_stock"] / result["duration_us"] * 1e6
            result = rush(coupon_make("capacity, processes"), USERS, *words, name="processes")
        found[f"processes_{n}"] = {
            "sold_out_per_s": sold_out_per_s,
            "rows_per_s": rows_per_s(result),
        }


# The rows of coupons in PostgreSQL


def issued_of(coupons):
    (issued,) = fetch("SELECT sum(issued_num)::bigint FROM coupon WHERE id = ANY (%s)", coupons)
    return issued


def backlog_per_s(coupons, users, workers):
    """Rows a second of what waits in the queue when so many workers begin."""
    target = issued_of(coupons)
    stack("stop", *(f"worker-{number + 1}" for number in range(max(WORKERS))))
    words = (*FULL_LOAD, *RANDOM)
    result = rush(list(map(str, coupons)), users, *words, name="capacity, rows", verify=False)
    before, target = target, target + result["answers"]["accepted"]
    names = [f"worker-{number + 1}" for number in range(workers)]
    starting = threading.Thread(target=stack, args=("start", *names))
    starting.start()
    end_s = time.monotonic() + WAIT_S
    while (first := issued_of(coupons)) == before and time.monotonic() < end_s:
        time.sleep(0.005)
    begin_s = time.monotonic()
    while (issued := issued_of(coupons)) < target and time.monotonic() < end_s:
        time.sleep(0.005)
    took_s = time.monotonic() - begin_s
    starting.join()
    if issued != target:
        failures.append(f"capacity, rows: {issued} of {target} after {WAIT_S} s")
    return (issued - first) / took_s


def backlog_measure(found):
    for name, coupons, users in (
        ("lines", coupons_make(1)[0], USERS),
        ("many", many_make(), USERS // 3),
    ):
        found[f"backlog_{name}"] = {
            f"workers_{workers}": backlog_per_s(coupons, users, workers) for workers in WORKERS
        }
    stack("stop", *(f"worker-{number + 1}" for number in range(2, max(WORKERS))))
    stack("start", "worker-1", "worker-2")


def settle_text():
    """The statement of the workers."""
    text = (ROOT / "sql/query/receive.sql").read_text(encoding="utf-8")
    statement = re.search(r"^-- settle: .*?^(SELECT .*?)\n\n", text, re.M | re.S)[1]
    return re.sub(r"\$\d+", "%s", statement)


def settle_words(coupons):
    """Its parameters, of a whole transaction of new users."""
    one_each = [1] * TRANSACTION
    return (
        sorted(random.choices(coupons, k=TRANSACTION)),
        one_each,
        list(range(1, TRANSACTION + 1)),
        [uuid.uuid4()] * TRANSACTION,
        [i % 256 for i in range(TRANSACTION)],
        [str(random.getrandbits(62)) for _ in range(TRANSACTION)],
        one_each,
        [""] * TRANSACTION,
        [],
        [int(time.time() * 1000)] * TRANSACTION,
        [],
    )


def transaction_s(settler, coupons):
    begin_s = time.monotonic()
    settler.execute(settle_text(), settle_words(coupons))
    return time.monotonic() - begin_s


def locked_s(settler, coupons):
    """The time of a transaction that waits for its coupons: from the end of the lock to its
    COMMIT."""
    with database_open("DATABASE_ADMIN_URL") as holder:
        holder.execute("BEGIN")
        query = "SELECT FROM coupon WHERE id = ANY (%s) ORDER BY id FOR NO KEY UPDATE"
        holder.execute(query, (coupons,))
        waiting = threading.Thread(target=transaction_s, args=(settler, coupons))
        waiting.start()
        query = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
        while waiting.is_alive() and not fetch(query, settler.info.backend_pid)[0]:
            time.sleep(0.001)
        begin_s = time.monotonic()
        holder.execute("COMMIT")
        waiting.join()
        return time.monotonic() - begin_s


def transactions_measure(found):
    """The times of a whole transaction of one session, and of the part that no other may share."""
    stack("stop", "worker-1", "worker-2")
    for name, count in (("lines", 1), ("many", MANY)):
        with database_open("DATABASE_ADMIN_URL") as settler:
            made = settler.execute(
                "INSERT INTO coupon (id, name, total_num, valid_days, status, generation)"
                " SELECT coupon_id_next(), 'capacity', %s, 30, 'draft', 1"
                " FROM generate_series(1, %s) RETURNING id",
                (AMPLE // 1000, count),
            )
            coupons = [coupon for (coupon,) in made]
            for _ in range(2):
                transaction_s(settler, coupons)
            best = [
                min(measure(settler, coupons) for _ in range(TRANSACTIONS))
                for measure in (transaction_s, locked_s)
            ]
            rates = ("rows_per_s", "locked_rows_per_s")
            found[f"transaction_{name}"] = {
                rate: TRANSACTION / one_s for rate, one_s in zip(rates, best)
            }
    stack("start", "worker-1", "worker-2")


# Beyond this machine


def simulated(found, **options):
    """One run of tests/sim/capacity.c with these costs."""
    words = [f"{name}={value}" for name, value in {**found, **options}.items()]
    return {**options, **json.loads(run(f"{BUILD}/tests/sim_capacity", *words))}


def simulation_measure(found):
    for name in ("lines", "many"):
        costs = capacity_model.redis_costs(found, name)
        costs["sync_us"] = found["fsync_us"]
        costs["gateway_us"] = found["lines"]["cpu_gateway"]
        costs["ms"] = 1000
        found[f"simulated_{name}"] = [
            simulated(costs, **options) for options in capacity_model.SIMULATED[name]
        ]


def capacity_measure():
    found = {"machine": machine(), "load": os.getloadavg()[0]}
    stack_fresh()
    fsync_measure()
    found["fsync_us"] = figures["fsync_p50_us"]
    for measure in (
        loads_measure,
        script_measure,
        thread_measure,
        processes_measure,
        backlog_measure,
        transactions_measure,
        simulation_measure,
    ):
        begin_s = time.monotonic()
        measure(found)
        say(f"bench: {measure.__name__}: {time.monotonic() - begin_s:.0f} s")
    figures["capacity"] = found


MEASURES = (capacity_measure,)


def rows():
    if not has("capacity"):
        return
    yield from capacity_model.rows(figures["capacity"])
