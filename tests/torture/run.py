"""make torture: every scenario, or ONLY=name,name; PART=2/4 is the second quarter of them. SEED=n
repeats a run, ROUNDS=k runs k seeds from there. SHARDS=k runs as many at once, on stacks of their
own; rates are not measured then, but those scenarios which nothing may run beside follow one by
one, with rates. --list prints the names."""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

from rig import Rig

from campaign import WINDOW, WINDOW_SHORT
from share import share_of
from scenario import Skipped, scenarios_load
from skips import reason
from stack import port_base_free

CROWDED_MAX = 3_000_000  # of one stack: each command with --all reads them
PORTS_EACH = 1000  # of a shard
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped, \d+ deselected$")
VIOLATIONS = re.compile(r"^torture: \d+ s; violations: (.*)$")


def arguments_read():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default=os.environ.get("ONLY", ""))
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1, 10**6))
    )
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS") or 1))
    parser.add_argument("--shards", type=int, default=int(os.environ.get("SHARDS") or 1))
    return parser.parse_args()


def chosen(scenarios, only):
    names = [name for name in only.split(",") if name]
    if unknown := [name for name in names if not any(name in known for known in scenarios)]:
        sys.exit(f"torture: no scenario {', '.join(unknown)}; there are: {' '.join(scenarios)}")
    whole = [name for name in names if name in scenarios]
    found = [
        one
        for one in scenarios.values()
        if not names
        or one.name in whole
        or any(part in one.name for part in names if part not in whole)
    ]
    return share_of(found)


def scenario_run(rig, scenario, seed):
    """Whether all promises held; None if it was skipped. After a violation the next scenario gets a
    stack of its own."""
    try:
        told = rig.run(scenario, seed)
    except Skipped as why:
        print(f"SKIPPED {scenario.name}: {why}", flush=True)
        return None if reason(f"tests/torture/run.py::{scenario.name}") else False
    except Exception as error:  # any exception: printed with the command that repeats it
        traceback.print_exc()
        print(
            f"VIOLATION in {scenario.name}: {error}\n  again: make torture SEED={seed}"
            f" ONLY={scenario.name}",
            flush=True,
        )
        return False
    print(
        f"{scenario.name:<40} {told['s']:5.1f} s  {told['asked']:6} asked  "
        f"{told['issued']:6} issued  {told['rate']:4.0f}/s, {told['crowd']:6} of the crowd, "
        f"back after {told['back_s']:.1f} s, {told['seen']}  {told['codes']}",
        flush=True,
    )
    return True


def shard_run(number, names, arguments, has_rates, told):
    """Runs these scenarios in another process, and appends the lines of its end to `told`."""
    folder = os.environ.get("RUN_DIR") or ".run-torture"
    base = int(os.environ.get("PORT_BASE") or 16400)
    child = subprocess.Popen(
        [sys.executable, "-B", __file__],
        env={
            **os.environ,
            "ONLY": ",".join(names),
            "SEED": str(arguments.seed),
            "ROUNDS": str(arguments.rounds),
            "SHARDS": "1",
            "PART": "",
            "RATES": "yes" if has_rates else "no",
            "RUN_DIR": f"{folder}-{number}",
            "PORT_BASE": str(base + PORTS_EACH * number),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in child.stdout:
        print(line, end="", flush=True)
        if COUNTS.match(line) or VIOLATIONS.match(line):
            told.append(line)
    if child.wait() not in (0, 1):
        told.append(f"0 passed, {len(names)} failed, 0 skipped, 0 deselected")


def shards_run(scenarios, arguments):
    """Whether all held: those that may run beside others, then the rest."""
    began, told, wanted = time.monotonic(), [], chosen(scenarios, arguments.only)
    beside = [one.name for one in wanted if one.beside]
    alone = [one.name for one in wanted if not one.beside]
    shares = [beside[k :: arguments.shards] for k in range(arguments.shards)]
    threads = [
        threading.Thread(target=shard_run, args=(k, share, arguments, False, told))
        for k, share in enumerate(shares)
        if share
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if alone:
        shard_run(0, alone, arguments, True, told)
    counts = [found.groups() for line in told if (found := COUNTS.match(line))]
    passed, failed, skipped = (sum(map(int, column)) for column in zip(*counts))
    names = [found[1] for line in told if (found := VIOLATIONS.match(line))]
    print(
        f"torture: {time.monotonic() - began:.0f} s in all; violations:"
        f" {', '.join(name for name in names if name != 'none') or 'none'}\n"
        f"{passed} passed, {failed} failed, {skipped} skipped,"
        f" {len(scenarios) - len(wanted)} deselected"
    )
    return 1 if failed else 0


def main():
    scenarios = scenarios_load()
    arguments = arguments_read()
    if arguments.list:
        for one in scenarios.values():
            print(f"{one.name:<40} {one.about}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.shards > 1:
        return shards_run(scenarios, arguments)
    has_rates = os.environ.get("RATES") != "no"
    base = port_base_free(int(os.environ.get("PORT_BASE") or 16400))
    failed, skipped, passed, began = [], [], 0, time.monotonic()

    def rig_make():
        suffix = f"-{len(failed)}" if failed else ""
        folder = f"{os.environ.get('RUN_DIR') or '.run-torture'}{suffix}"
        return Rig(folder, base, WINDOW if has_rates else WINDOW_SHORT, has_rates)

    rig = rig_make()
    try:
        rig.up()
        for seed in range(arguments.seed, arguments.seed + arguments.rounds):
            print(f"torture: SEED={seed}", flush=True)
            for one in chosen(scenarios, arguments.only):
                held = scenario_run(rig, one, seed)
                if held is None:
                    skipped.append(one.name)
                elif not held:
                    failed.append(f"{one.name} SEED={seed}")
                else:
                    passed += 1
                if held is False or rig.broken or rig.crowded > CROWDED_MAX:
                    rig.down()
                    rig = rig_make()
                    rig.up()
    finally:
        rig.down()
    left = len(scenarios) - len(chosen(scenarios, arguments.only))
    print(
        f"torture: {time.monotonic() - began:.0f} s; violations: {', '.join(failed) or 'none'}\n"
        f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped, {left} deselected"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
