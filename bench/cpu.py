"""CPU time of the programs of the stack, from /proc/PID/stat of all their processes.

Not counted is what the benchmark itself lets PostgreSQL do: the backends that begin while it
measures, of `coupon-rush` when it checks its rows, and of these programs.
"""

import glob
import os
import re
import threading
import time
from pathlib import Path

import rig

INTERVAL_S = 0.1
# After the last COMMIT: messages are acked and removed from the outbox.
TAIL_S = 0.5
TICK_US = 1_000_000 / os.sysconf("SC_CLK_TCK")
PROGRAMS = ("gateway", "redis", "rabbitmq", "workers", "postgres")
TITLE = "CPU: gateway, Redis, RabbitMQ, workers, PostgreSQL"
CLIENT = re.compile(rb"postgres: \S+ \S+ 127\.0\.0\.1\(\d+\)")


def pids_of(program):
    names = {"workers": "worker-*"}.get(program, program)
    return [int(Path(path).read_text()) for path in glob.glob(f"{rig.RUN}/{names}.pid")]


def stat_read(pid):
    """(own ticks, ticks of its children that have ended and were waited for); None: it has
    ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    user, system, children_user, children_system = map(int, fields[11:15])
    return user + system, children_user + children_system


def children_of(pid):
    try:
        tasks = glob.glob(f"/proc/{pid}/task/*/children")
        return [int(child) for task in tasks for child in Path(task).read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def tasks_of(program):
    """Its processes and their children."""
    pids = pids_of(program)
    for parent in pids:
        pids += children_of(parent)
    return pids


def pin(program, cores):
    """All its threads; those that they start inherit it."""
    for pid in tasks_of(program):
        for path in glob.glob(f"/proc/{pid}/task/*"):
            try:
                os.sched_setaffinity(int(path.rpartition("/")[2]), cores)
            except ProcessLookupError:
                pass


def is_client(pid):
    try:
        return CLIENT.match(Path(f"/proc/{pid}/cmdline").read_bytes()) is not None
    except (FileNotFoundError, ProcessLookupError):
        return False


class Meter(threading.Thread):
    """Reads the CPU time of all programs at short intervals, as long as its `with` lasts."""

    def __init__(self):
        super().__init__(daemon=True)
        self.samples = []  # (monotonic time, {program: ticks})
        self.known = {pid for root in pids_of("postgres") for pid in children_of(root)}
        self.others = {}  # ticks of each backend that is not counted
        self.ending = threading.Event()

    def __enter__(self):
        self.sample()
        self.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.join()

    def run(self):
        while not self.ending.wait(INTERVAL_S):
            self.sample()

    def tree_ticks(self, pid):
        found = stat_read(pid)
        if found is None:
            return 0
        return sum(found) + sum(self.tree_ticks(child) for child in children_of(pid))

    def others_read(self):
        """A backend that has ended keeps its last reading: the postmaster has its time since."""
        for root in pids_of("postgres"):
            for pid in set(children_of(root)) - self.known:
                found = stat_read(pid)
                if found and (pid in self.others or is_client(pid)):
                    self.others[pid] = found[0]
        return sum(self.others.values())

    def sample(self):
        at = time.monotonic()
        others = self.others_read()
        ticks = {
            program: sum(self.tree_ticks(pid) for pid in pids_of(program)) for program in PROGRAMS
        }
        ticks["postgres"] -= others
        self.samples.append((at, ticks))

    def costs(self, begin_s, end_s, n):
        """Microseconds of each program for each of n, between these two times and TAIL_S more."""
        end_s += TAIL_S
        while self.samples[-1][0] < end_s:
            time.sleep(INTERVAL_S)
        before = [ticks for at, ticks in self.samples if at <= begin_s][-1]
        after = [ticks for at, ticks in self.samples if at >= end_s][0]
        costs = {name: (after[name] - before[name]) * TICK_US / n for name in PROGRAMS}
        costs["all"] = sum(costs.values())
        return costs

    def rush_costs(self, result):
        """The costs of an accepted receive of a rush that has just ended."""
        begin_s = result["begin_us"] / 1e6
        took_us = result["verify"]["committed_us"]
        end_s = begin_s + took_us / 1e6 if took_us else time.monotonic()
        accepted = max(result["verify"]["accepted"], 1)
        costs = self.costs(begin_s, end_s, accepted)
        costs["load"] = result["client_cpu_us"] / accepted
        return costs


def row(costs, each, allowed=""):
    """A row of the table."""
    values = " ".join(f"{costs[name]:.1f}" for name in PROGRAMS)
    note = f"{costs['all']:.1f} µs a {each}{allowed}; load generator {costs['load']:.1f}"
    return f"    {TITLE}", values, note
