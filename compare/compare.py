"""Runs every way of selling under the same workloads, and prints what came of it. See `make
compare`. scripts/compare.sh starts the services and sets the environment."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from chart import chart_write
from report import Report, middle, rate_of, row_of

WAY = os.environ.get("BUILD_DIR", "build") + "/compare-way"
RUN_MOST_S = 600
RUNS = int(os.environ.get("RUNS") or 5)  # of each figure: the median counts
CONNECTIONS = (1, 4, 16, 64)
SWEEP_S = 0.2  # a run of the sweep takes about so long…
SWEEP_PIECES = (200, 20000)  # …with as many pieces, at least and at most
PIECES = (1000, 2000, 10000)  # of a way: the most that it sells in…
RUSH_S = 2


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

    def options_of(self, way, sweep):
        """A way has as many connections as suit it, unless the workload says how many. Without a
        size of the workload it sells as many pieces as it can in a few seconds."""
        best = sweep.best(way)
        options = {"connections": best, **self.options}
        if way["is_batch"]:
            options["connections"] = best
        if "stock" not in options:
            rate = sweep.rate(way, best)
            fitting = [pieces for pieces in PIECES if pieces <= rate * RUSH_S]
            options["stock"] = max(fitting, default=PIECES[0])
            options["users"] = 2 * options["stock"]
        return options


WORKLOADS = (
    Workload(
        "twice as many users as pieces of one item",
        {"items": 1, "clients": 1000},
    ),
    Workload(
        "1,000 users on two items, 16 connections",
        {"users": 1000, "stock": 10000, "items": 2, "clients": 1000, "connections": 16},
        ("2", "4", "5", "6", "8", "10", "11", "12"),
    ),
    Workload(
        "as many users as pieces: 2,000, 16 connections",
        {"users": 2000, "stock": 2000, "items": 1, "clients": 1000, "connections": 16},
        ("3", "7", "8", "12"),
    ),
    Workload(
        "16 connections, locks of 200 ms, and every 20th holder stops for 500 ms",
        {
            "users": 400,
            "stock": 200,
            "items": 1,
            "clients": 400,
            "connections": 16,
            "lease-ms": 200,
            "pause-ms": 500,
            "pause-every": 20,
        },
        ("5",),
    ),
)


def say(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


def workloads():
    """The workloads listed above, or the one that the environment describes."""
    names = {"users": "USERS", "items": "ITEMS", "stock": "STOCK", "clients": "CLIENTS"}
    given = {option: os.environ[name] for option, name in names.items() if os.environ.get(name)}
    for option, value in given.items():
        if not value.isdigit() or value.startswith("0"):
            raise SystemExit(f"compare: {names[option]} is {value}; allowed is a whole number")
    if not given:
        return WORKLOADS
    options = {"users": 20000, "stock": 10000, **WORKLOADS[0].options, **given}
    title = "{users} users for {items} x {stock} pieces, {clients} clients".format(**options)
    return (Workload(title, options),)


def ways_chosen():
    ways = json.loads(subprocess.check_output([WAY, "--list"], text=True))
    ways.sort(key=lambda way: (int(way["id"].rstrip("abcdefgh")), way["id"]))
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


def runs_of(jobs, what):
    """The results of each job, which is a way and options. They are run in turn, so that what else
    the machine does meanwhile is shared by all."""
    results = [[] for _ in jobs]
    for number in range(1, RUNS + 1):
        say(f"{what}: run {number} of {RUNS}")
        for (way, options), so_far in zip(jobs, results):
            so_far.append(way_run(way, options))
    return results


class Sweep:
    """How many a second each way sells over 1, 4, 16 and 64 connections."""

    def __init__(self, ways, workload):
        self.ways = ways
        self.workload = workload
        cells = [(way, n) for way in ways for n in CONNECTIONS]
        say("connections: sizes")
        options = {way["id"]: self.options(way) for way in ways}
        jobs = [(way, {**options[way["id"]], "connections": n}) for way, n in cells]
        results = runs_of(jobs, "connections")
        self.rates = {
            (way["id"], n): sorted(map(rate_of, runs)) for (way, n), runs in zip(cells, results)
        }

    def options(self, way):
        """As much stock as users: what it sells in SWEEP_S, by the first run that is not too short
        to tell."""
        least, most = SWEEP_PIECES
        most = min(most, int(self.workload.options.get("users", most)))
        options = {**self.workload.options}
        pieces = min(least, most)
        while True:
            options["users"] = options["stock"] = pieces
            rate = rate_of(way_run(way, options))
            if pieces >= most or pieces >= rate * SWEEP_S / 2:
                break
            pieces = min(4 * pieces, most)
        options["users"] = options["stock"] = min(max(int(rate * SWEEP_S), least), most)
        return options

    def rate(self, way, connections):
        return middle(self.rates[way["id"], connections])

    def best(self, way):
        """The fastest. Over one connection nobody is in another's way: it would hide a flaw."""
        numbers = [n for n in CONNECTIONS if n > 1 or not way["may"]]
        return max(numbers, key=lambda n: self.rate(way, n))


def workload_run(workload, ways, sweep):
    """The rows of its table."""
    jobs = [(way, workload.options_of(way, sweep)) for way in ways if workload.has(way)]
    return [
        row_of(way, options, runs)
        for (way, options), runs in zip(jobs, runs_of(jobs, workload.title))
    ]


def main():
    report = Report(RUNS)
    ways = ways_chosen()
    sweep = Sweep(ways, workloads()[0])
    report.sweep = sweep
    for workload in workloads():
        rows = workload_run(workload, ways, sweep)
        if rows:
            report.add(workload.title, rows)
    folder = os.environ.get("OUT") or os.environ.get("BUILD_DIR", "build")
    report.write(f"{folder}/compare.md")
    chart_write(report.tables[0], f"{folder}/compare.svg")
    print(report.text())
    say(f"written to {folder}: compare.md, compare.svg")
    sys.exit(0 if report.is_as_promised() else 1)


main()
