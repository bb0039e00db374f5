"""One table of figures from one run on one machine, so that figures can be compared. See `make
bench`.

Runs inside a stack that scripts/bench.sh has started: the settings are in the environment. Every
load is checked: the receives that `couponctl rush` reports must be in PostgreSQL, or this program
ends with status 1.
"""

import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import time

import psycopg
import redis

BUILD = os.environ.get("BUILD_DIR", "build")
RUN = os.environ["RUN_DIR"]
PG_BIN = os.environ["PG_BIN"]
QUICK = os.environ.get("BENCH_QUICK") == "1"  # a tenth of the load, to check that it runs
SCALE = 10 if QUICK else 1
FULL_LOAD = ("--connections", 20, "--pipeline", 128)
BASELINE_REQUESTS = 200_000 // SCALE
ADMISSION_USERS = 300_000 // SCALE
SOLD_OUT_REQUESTS = 1_000_000 // SCALE
ROWS_USERS = 400_000 // SCALE
PGBENCH_S = 6 if not QUICK else 1
STEADY_S = 10 if not QUICK else 2
STEADY_RATE = 1_000
UUID_ALLOWED = 0.75  # of integers, end to end

redis_client = redis.Redis.from_url(os.environ["REDIS_URL"])
failures = []
figures = {}


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(*words, check=True, env=None):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, text=True, env=env)
    if check and done.returncode:
        raise SystemExit(f"bench: {' '.join(map(str, words))} ended with status {done.returncode}")
    return done.stdout


def ctl(*words, check=True):
    return run(f"{BUILD}/couponctl", *words, check=check).strip()


def stack(*words):
    run("scripts/stack.sh", *words)


def coupon_make(name, total):
    coupon = ctl("create", "--name", name, "--total", total, "--valid-days", 30)
    ctl("publish", coupon)
    return coupon


next_user = secrets.randbelow(10**6) * 10**9 + 1


def users_take(n):
    """Reserves a range of unused numbers of users; returns the first."""
    global next_user
    first, next_user = next_user, next_user + n
    return first


def rush(coupon, users, *words, name, verify=True):
    if not verify:
        words += ("--no-verify",)
    out = ctl(
        "rush",
        "--coupon",
        coupon,
        "--users",
        users,
        "--first-user",
        users_take(users),
        "--json",
        *words,
        check=False,
    )
    result = json.loads(out)
    if not result["passed"]:
        failures.append(f"{name}: {out}")
    return result


def settled_wait(coupon):
    """Waits until the workers have settled all accepted receives: issued_num must equal the number
    that Redis gave out."""
    fields = redis_client.hmget(f"coupon:{{{coupon}}}", "total", "stock")
    taken = int(fields[0]) - int(fields[1])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
        for _ in range(1200):
            (issued,) = db.execute(
                "SELECT issued_num FROM coupon WHERE id = %s", (coupon,)
            ).fetchone()
            if issued == taken:
                break
            time.sleep(0.05)
        (rows,) = db.execute(
            "SELECT count(*) FROM user_coupon WHERE coupon_id = %s", (coupon,)
        ).fetchone()
    if issued != taken or rows != taken:
        failures.append(
            f"coupon {coupon}: Redis gave out {taken}, PostgreSQL issued {issued} in {rows} rows"
        )


def fsync_measure():
    p50, p99 = run(f"{BUILD}/bench_fsync", f"{RUN}/bench.fsync", 1000 // SCALE).split()
    figures["fsync_p50_us"], figures["fsync_p99_us"] = int(p50), int(p99)


def script_calls_round(sha, run_id):
    """Calls per second of redis-benchmark with the same script, one request a call, at the stack's
    fsync setting."""
    coupon = coupon_make("redis-benchmark", 10**9)
    keys = [f"coupon:{{{coupon}}}", f"coupon:{{{coupon}}}:users", f"coupon:{{{coupon}}}:outbox"]
    args = redis_client.connection_pool.connection_kwargs
    stack("stop", "worker-1", "worker-2")
    out = run(
        "redis-benchmark",
        "-h",
        args["host"],
        "-p",
        args["port"],
        "-P",
        16,
        "-c",
        50,
        "-n",
        BASELINE_REQUESTS,
        "-r",
        10**12,
        "--csv",
        "EVALSHA",
        sha,
        3,
        *keys,
        run_id,
        coupon,
        "01JD8Z6Q4T1M0V__rand_int__",
        0,
        0,
        2**53 - 1,
        "9__rand_int__",
        "",
    )
    # The receives of this benchmark must not be sent: they are removed before a keeper finds them
    # overdue.
    redis_client.unlink(*keys)
    ctl("close", coupon)
    return float(out.splitlines()[-1].split('","')[1])


def admission_round():
    """Accepted answers per second while the workers are stopped."""
    result = rush(admission_coupon, ADMISSION_USERS, *FULL_LOAD, name="admission", verify=False)
    stack("start", "worker-1", "worker-2")
    settled_wait(admission_coupon)
    return result["answers"]["accepted"] / result["duration_us"] * 1e6


def admission_measure():
    """The medians of three pairs, whose two runs follow each other."""
    command = ["awk", "-f", "scripts/lua.awk", "lua/prelude.lua", "lua/issue.lua"]
    script = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    sha = redis_client.script_load(script)
    run_id = redis_client.info("server")["run_id"]
    pairs = [(script_calls_round(sha, run_id), admission_round()) for _ in range(3)]
    figures["script_calls_per_s"] = statistics.median(pair[0] for pair in pairs)
    figures["admission_per_s"] = statistics.median(pair[1] for pair in pairs)


def database_baselines_measure():
    admin = os.environ["DATABASE_ADMIN_URL"]
    with psycopg.connect(admin, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS bench_user_coupon, bench_coupon")
        db.execute("CREATE TABLE bench_user_coupon (LIKE user_coupon INCLUDING ALL)")
        db.execute(
            "CREATE TABLE bench_coupon (id bigint PRIMARY KEY, issued_num bigint NOT NULL)"
            " WITH (fillfactor = 50)"
        )
        db.execute("INSERT INTO bench_coupon VALUES (1, 0)")
    for name, script, clients, rows in (
        ("rows_single_per_s", "one_row", 8, 1),
        ("inserts_single_per_s", "one_insert", 8, 1),
        ("rows_many_per_s", "many_rows", 2, 500),
    ):
        out = run(
            f"{PG_BIN}/pgbench",
            "-n",
            "-M",
            "prepared",
            "-c",
            clients,
            "-j",
            2,
            "-T",
            PGBENCH_S,
            "-f",
            f"bench/{script}.sql",
            admin,
        )
        figures[name] = float(re.search(r"tps = ([\d.]+) \(without", out).group(1)) * rows
    with psycopg.connect(admin, autocommit=True) as db:
        db.execute("DROP TABLE bench_user_coupon, bench_coupon")


def sold_out_measure():
    coupon = coupon_make("sold out", 1)
    rush(coupon, 2, name="sold out: the one", verify=True)
    result = rush(coupon, SOLD_OUT_REQUESTS, *FULL_LOAD, name="sold out", verify=False)
    figures["sold_out_per_s"] = result["answers"]["out_of_stock"] / result["duration_us"] * 1e6


def rows_measure():
    coupon = coupon_make("ample stock", 10**9)
    result = rush(coupon, ROWS_USERS, *FULL_LOAD, name="end to end")
    figures["end_to_end_per_s"] = ROWS_USERS / result["verify"]["committed_us"] * 1e6


def rows_uuid_measure():
    """UUIDs without any order, beside integers in sequence: the medians of three pairs, whose two
    runs follow each other. They are not the runs of rows_measure(), and come last, so that the
    other figures compare with those of commits that have no UUIDs."""
    coupon = coupon_make("ample stock, UUIDs", 10**9)

    def round_of(*ids):
        result = rush(coupon, ROWS_USERS, *FULL_LOAD, *ids, name=f"end to end {' '.join(ids)}")
        return ROWS_USERS / result["verify"]["committed_us"] * 1e6

    uuid = ("--user-ids", "uuid", "--user-seed", "1")
    pairs = []
    for number in range(3):
        order = ((), uuid) if number % 2 == 0 else (uuid, ())
        rates = {ids: round_of(*ids) for ids in order}
        pairs.append((rates[()], rates[uuid]))
    figures["end_to_end_uuid_per_s"] = statistics.median(pair[1] for pair in pairs)
    figures["end_to_end_uuid_ratio"] = statistics.median(pair[1] / pair[0] for pair in pairs)


def rush_measure():
    coupon = coupon_make("noon rush", 10_000)
    result = rush(coupon, 20_000, name="the rush")
    figures["rush_answers_s"] = result["duration_us"] / 1e6
    figures["rush_rows_s"] = result["verify"]["committed_us"] / 1e6


def steady_measure():
    for ack in ("accepted", "queued", "issued"):
        coupon = coupon_make(f"steady {ack}", 10**6)
        result = rush(
            coupon,
            STEADY_RATE * STEADY_S,
            "--rate",
            STEADY_RATE,
            "--ack",
            ack,
            name=f"steady {ack}",
        )
        for part in ("p50", "p99", "p99_9"):
            figures[f"steady_{ack}_{part}_us"] = result["latency_us"][part]


def memory_measure():
    """Peak resident memory of each program since it started, after a full load over 1,000
    connections."""
    coupon = coupon_make("memory", 10**9)
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


def ratio(name, base):
    return figures[name] / figures[base]


def rate(name):
    return f"{figures[name]:,.0f} /s"


def rows():
    f = figures
    fsync = f["fsync_p99_us"]
    yield "limits of this machine", None, None
    yield "  redis-benchmark -P 16, one request a script call", rate("script_calls_per_s"), ""
    yield "  pgbench, count and one row a transaction, 8 clients", rate("rows_single_per_s"), ""
    yield "  pgbench, one row alone a transaction, 8 clients", rate("inserts_single_per_s"), ""
    yield "  pgbench, 500 rows a transaction, 2 clients", rate("rows_many_per_s"), ""
    fsyncs = f"{f['fsync_p50_us'] / 1000:.2f} / {fsync / 1000:.2f} ms"
    yield "  fsync of 4 KiB, p50 / p99", fsyncs, ""
    yield "couponmq", None, None
    yield "  admission (ack=accepted, workers stopped)", f"{f['admission_per_s']:,.0f} /s", (
        f"{ratio('admission_per_s', 'script_calls_per_s'):.1f} x redis-benchmark"
    )
    yield "  sold-out answers", f"{f['sold_out_per_s']:,.0f} /s", (
        f"{ratio('sold_out_per_s', 'script_calls_per_s'):.1f} x redis-benchmark"
    )
    yield "  end to end, to the last committed row", f"{f['end_to_end_per_s']:,.0f} /s", (
        f"{ratio('end_to_end_per_s', 'rows_single_per_s'):.1f} x count and row"
    )
    yield "", "", f"{ratio('end_to_end_per_s', 'inserts_single_per_s'):.1f} x one row alone"
    yield "  the same with UUIDs in random order", rate("end_to_end_uuid_per_s"), (
        f"{f['end_to_end_uuid_ratio']:.2f} x integers, allowed {UUID_ALLOWED}"
    )
    yield "  20,000 users for 10,000 coupons: answers / rows", (
        f"{f['rush_answers_s']:.3f} / {f['rush_rows_s']:.3f} s"
    ), ""
    for ack in ("accepted", "queued", "issued"):
        yield f"  {STEADY_RATE:,}/s, ack={ack}: p50 / p99 / p99.9", " / ".join(
            f"{f[f'steady_{ack}_{p}_us'] / 1000:.2f}" for p in ("p50", "p99", "p99_9")
        ) + " ms", {
            "accepted": f"p99 allowed {2 + 2 * fsync / 1000:.1f} ms",
            "queued": "",
            "issued": f"p99 allowed {10 + 6 * fsync / 1000:.1f} ms",
        }[
            ack
        ]
    peaks = f"{f['gateway_peak_mib']:.0f} / {f['worker_peak_mib']:.0f} MiB"
    yield "  resident peak, gateway / worker", peaks, "1,000 connections"


fsync_measure()
database_baselines_measure()
admission_coupon = coupon_make("admission", 10**9)
for measure in (
    steady_measure,
    rush_measure,
    rows_measure,
    sold_out_measure,
    admission_measure,
    memory_measure,
    rows_uuid_measure,
):
    say(f"bench: {measure.__name__.removesuffix('_measure').replace('_', ' ')}")
    measure()

with open(f"{RUN}/bench.json", "w", encoding="utf-8") as file:
    json.dump(figures, file, indent=1)
for label, value, note in rows():
    print(label if value is None else f"{label:<54}{value:>22}  {note}".rstrip())
for failure in failures:
    print(f"FAILED {failure}")
sys.exit(1 if failures else 0)
