"""Runs every way of selling under the same workloads, and prints what came of it. See `make
compare`. scripts/compare.sh starts the services and sets the environment."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from chart import chart_write
from report import Report

WAY = os.environ.get("BUILD_DIR", "build") + "/compare-way"
RUN_MOST_S = 600
RUNS = int(os.environ.get("RUNS") or 5)  # of the first workload: the median counts
CONNECTIONS = (1, 4, 16, 64)  # each way runs with the one of these that suits it best
PROBE_USERS = 800
PROBE_LEAST_US = 200000  # a shorter probe tells little: it is repeated with all users
SLOW = 5000  # sold a second: a way below it runs with a part of the users and pieces
SLOW_PART = 5


def is_one_of(way, names):
    """Names are ids, "5b", or numbers, "5"."""
    return way["id"] in names or way["id"].rstrip("abcdefgh") in names


@dataclass
class Workload:
    title: str
    options: dict
    ways: tuple = ()  # all, or those of these numbers
    runs: int = 1
    slow_part: int = 1  # for slow ways: of users and pieces

    def has(self, way):
        return not self.ways or is_one_of(way, self.ways)


WORKLOADS = (
    Workload(
        f"20,000 users for 10,000 pieces of one item; ways below {SLOW:,}/s: a fifth of both",
        {"users": 20000, "stock": 10000, "items": 1, "clients": 1000},
        runs=RUNS,
        slow_part=SLOW_PART,
    ),
    Workload(
        "1,000 users at once on two items",
        {"users": 1000, "stock": 10000, "items": 2, "clients": 1000},
    ),
    Workload(
        "as many users as pieces: 2,000",
        {"users": 2000, "stock": 2000, "items": 1, "clients": 1000},
        ("3", "7", "8"),
    ),
    Workload(
        "locks of 200 ms, and every 50th holder stops for 500 ms",
        {
            "users": 2000,
            "stock": 1000,
            "items": 1,
            "clients": 1000,
            "lease-ms": 200,
            "pause-ms": 500,
            "pause-every": 50,
        },
        ("5",),
    ),
)


def say(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


def workloads():
    """Those above, or the one that the environment describes."""
    names = {"users": "USERS", "items": "ITEMS", "stock": "STOCK", "clients": "CLIENTS"}
    given = {option: os.environ[name] for option, name in names.items() if os.environ.get(name)}
    for option, value in given.items():
        if not value.isdigit() or value.startswith("0"):
            raise SystemExit(f"compare: {names[option]} is {value}; allowed is a whole number")
    if not given:
        return WORKLOADS
    options = {**WORKLOADS[0].options, **given}
    title = "{users} users for {items} x {stock} pieces, {clients} clients".format(**options)
    return (Workload(title, options, runs=RUNS),)


def ways_chosen():
    ways = json.loads(subprocess.check_output([WAY, "--list"], text=True))
    only = os.environ.get("ONLY", "").split()
    for name in only:
        if not any(is_one_of(way, [name]) for way in ways):
            known = " ".join(way["id"] for way in ways)
            raise SystemExit(f"compare: ONLY has {name}; there are {known}")
    return [way for way in ways if not only or is_one_of(way, only)]


def way_run(way, options):
    words = [WAY, way["id"]]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=RUN_MOST_S)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"compare: {' '.join(words)} did not end in {RUN_MOST_S} s") from error
    if done.returncode:
        raise SystemExit(f"compare: {' '.join(words)} ended with status {done.returncode}")
    return json.loads(done.stdout)


def rate(result):
    """Sold pieces a second, to the last COMMIT."""
    return result["sold"] / result["committed_us"] * 1e6 if result["committed_us"] else 0


def way_measure(way, options, runs):
    """The run of the median rate, with the lowest and the highest rate of all."""
    done = sorted((way_run(way, options) for _ in range(runs)), key=rate)
    rates = {"rate_low": rate(done[0]), "rate_high": rate(done[-1])}
    return {**done[len(done) // 2], **rates}


def connections_best(way, workload):
    """(how many suit it, how much it sells with them), by runs with as much stock as users."""
    users = int(workload.options["users"])
    for part in sorted({min(users, PROBE_USERS), users}):
        options = {**workload.options, "users": part, "stock": part}
        runs = {n: way_run(way, {**options, "connections": n}) for n in CONNECTIONS}
        best = max(runs, key=lambda n: rate(runs[n]))
        if runs[best]["committed_us"] >= PROBE_LEAST_US:
            break
    return best, rate(runs[best])


def workload_run(way, workload, connections, sells):
    options = {**workload.options, "connections": connections}
    if sells < SLOW:
        for name in ("users", "stock"):
            options[name] = int(options[name]) // workload.slow_part
    result = way_measure(way, options, workload.runs)
    return {**way, **result, "connections": connections, "rate": rate(result)}


def main():
    report = Report()
    ways = ways_chosen()
    best = {}
    for way in ways:
        say(f"how many connections suit {way['id']} {way['name']}")
        best[way["id"]] = connections_best(way, workloads()[0])
    for workload in workloads():
        chosen = [way for way in ways if workload.has(way)]
        rows = []
        for number, way in enumerate(chosen, 1):
            say(f"{workload.title}: {number} of {len(chosen)}: {way['id']} {way['name']}")
            rows.append(workload_run(way, workload, *best[way["id"]]))
        if rows:
            report.add(workload.title, rows)
    folder = os.environ.get("OUT") or os.environ.get("BUILD_DIR", "build")
    report.write(f"{folder}/compare.md")
    chart_write(report.tables[0], f"{folder}/compare.svg")
    print(report.text())
    say(f"written to {folder}: compare.md, compare.svg")
    sys.exit(0 if report.is_as_promised() else 1)


main()
