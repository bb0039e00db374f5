"""What every measurement uses: the stack, coupons, rushes, and the figures that they leave."""

import datetime
import json
import os
import platform
import re
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import redis

ROOT = Path(__file__).resolve().parent.parent
BUILD = os.environ.get("BUILD_DIR", "build")
RUN = os.environ["RUN_DIR"]
PG_BIN = os.environ["PG_BIN"]
QUICK = os.environ.get("BENCH_QUICK") == "1"  # a tenth of the load, to check that it runs
SCALE = 10 if QUICK else 1
FULL_LOAD = ("--connections", 20, "--pipeline", 128)
AMPLE = 10**9  # a total that no load takes

failures = []
figures = {}


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(*words, check=True):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, text=True)
    if check and done.returncode:
        raise SystemExit(f"bench: {' '.join(map(str, words))} ended with status {done.returncode}")
    return done.stdout


def ctl(*words, check=True):
    return run(f"{BUILD}/couponctl", *words, check=check).strip()


def stack(*words):
    run("scripts/stack.sh", *words)


def stack_fresh():
    """Stores without data: those of an earlier load would be measured too."""
    stack("clean")
    stack("services")
    stack("start", "gateway", "worker-1", "worker-2")
    with open(f"{RUN}/env", encoding="utf-8") as file:
        words = [shlex.split(line, comments=True) for line in file]
    os.environ.update(word[1].split("=", 1) for word in words if word and word[0] == "export")


def machine():
    """What the figures depend on, as two lines."""
    processor = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    commit = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return (
        f"{datetime.date.today()}, commit {commit or 'unknown'}",
        f"{len(os.sched_getaffinity(0))} cores ({processor[1] if processor else 'unknown'}), "
        f"{memory / 2**20:.0f} GiB, {platform.freedesktop_os_release()['PRETTY_NAME']}",
    )


def redis_open():
    return redis.Redis.from_url(os.environ["REDIS_URL"])


def redis_process(client):
    """What a coupon is bound to: the process of Redis and its history of replication."""
    info = client.info()
    return info["run_id"][:16] + info["master_replid"][:16] + "0" * 8


def database_open(role="DATABASE_URL"):
    return psycopg.connect(os.environ[role], autocommit=True)


def coupon_make(name, total=AMPLE, events="off"):
    terms = ("--total", total, "--valid-days", 30, "--events", events)
    coupon = ctl("create", "--name", name, *terms)
    ctl("publish", coupon)
    return coupon


next_user = secrets.randbelow(10**6) * 10**9 + 1


def users_take(n):
    """Reserves a range of unused numbers of users; returns the first."""
    global next_user
    first, next_user = next_user, next_user + n
    return first


def rush(coupons, users, *words, name, verify=True):
    """coupons: an id, or a list of ids."""
    if isinstance(coupons, list):
        with open(f"{RUN}/bench.coupons", "w", encoding="utf-8") as file:
            file.write("".join(f"{coupon}\n" for coupon in coupons))
        words += ("--coupons-from", file.name)
    else:
        words += ("--coupon", coupons)
    if not verify:
        words += ("--no-verify",)
    if "--first-user" not in words:
        words += ("--first-user", users_take(users))
    out = run(f"{BUILD}/coupon-rush", "--users", users, "--json", *words, check=False).strip()
    result = json.loads(out)
    if not result["passed"]:
        failures.append(f"{name}: {out}")
    return result


def rows_per_s(result):
    """The rate of a rush: 0 when its rows were not committed in time, which fails it."""
    verify = result["verify"]
    return verify["accepted"] / verify["committed_us"] * 1e6 if verify["committed_us"] else 0


def settled_wait(coupon):
    """Waits until the workers have settled all accepted receives: issued_num must equal the number
    that Redis gave out. Returns it. A client that has ended may have left requests in flight, which
    Redis decides meanwhile."""
    with redis_open() as client, database_open() as db:
        for _ in range(1200):
            total, stock = client.hmget(f"coupon:{{{coupon}}}", "total", "stock")
            taken = int(total) - int(stock)
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
    return taken


# The table


def has(*names):
    return all(name in figures for name in names)


def rate(name):
    return f"{figures[name]:,.0f} /s"


def times(name, base, what, digits=1):
    """ "" when the base was not measured."""
    return f"{figures[name] / figures[base]:.{digits}f} x {what}" if has(base) else ""


def at_most(value, limit, words=""):
    """A note that names the limit, and whether it is missed."""
    return f"{'MISSED' if value > limit else 'at most'} {limit:,}{words}"


def at_least(value, limit, words=""):
    return f"{'MISSED' if value < limit else 'at least'} {limit:,}{words}"
