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
SHORT_US = 1000000  # the figures of a shorter run are chance: it is repeated…
SHORT_RUNS = int(os.environ.get("RUNS") or 5)  # …so often, and the median counts
PROBE_LEAST_US = 200000  # with fewer users even that tells little
CONNECTIONS = (4, 16, 64)  # each way runs with the one of these that suits it best


def is_one_of(way, names):
    """Names are ids, "5b", or numbers, "5"."""
    return way["id"] in names or way["id"].rstrip("abcdefgh") in names


@dataclass
class Workload:
    title: str
    options: dict
    ways: tuple = ()  # all, or those of these numbers

    def has(self, way):
        return not self.ways or is_one_of(way, self.ways)


WORKLOADS = (
    Workload(
        "20,000 users for 10,000 pieces of one item",
        {"users": 20000, "stock": 10000, "items": 1, "clients": 1000},
    ),
    Workload(
        "1,000 threads on two items",
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
    return (Workload(title, options),)


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


def way_measure(way, options):
    """One run, or the one of several short ones that has the median rate."""
    runs = [way_run(way, options)]
    while runs[0]["committed_us"] < SHORT_US and len(runs) < SHORT_RUNS:
        runs.append(way_run(way, options))
    return sorted(runs, key=rate)[len(runs) // 2]


def connections_of(way):
    """One is for a connection that carries many clients. Of the others it would make a single
    client, to whom nobody else ever is in the way."""
    return (1, *CONNECTIONS) if way["is_batch"] else CONNECTIONS


def connections_best(way, workload):
    """By short runs with as much stock as users; with all users where they are too short."""
    users = int(workload.options["users"])
    for part in sorted({max(100, users // 25), users}):
        options = {**workload.options, "users": part, "stock": part}
        runs = {n: way_measure(way, {**options, "connections": n}) for n in connections_of(way)}
        best = max(runs, key=lambda n: rate(runs[n]))
        if runs[best]["committed_us"] >= PROBE_LEAST_US:
            break
    return best


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
            connections = best[way["id"]]
            result = way_measure(way, {**workload.options, "connections": connections})
            rows.append({**way, **result, "connections": connections, "rate": rate(result)})
        if rows:
            report.add(workload.title, rows)
    folder = os.environ.get("OUT") or os.environ.get("BUILD_DIR", "build")
    report.write(f"{folder}/compare.md")
    chart_write(report.tables[0], f"{folder}/compare.svg")
    print(report.text())
    say(f"written to {folder}: compare.md, compare.svg")
    sys.exit(0 if report.is_as_promised() else 1)


main()
