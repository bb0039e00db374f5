"""make torture: every scenario, or ONLY=name,name; SEED=n repeats a run, ROUNDS=k runs k seeds from
there. --list prints the names."""

import argparse
import os
import random
import signal
import sys
import time
import traceback

from rig import Rig

from scenario import Skipped, scenarios_load
from skips import reason
from stack import port_base_free

CROWDED_MAX = 3_000_000  # of one stack: each command with --all reads them


def arguments_read():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default=os.environ.get("ONLY", ""))
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1, 10**6))
    )
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS") or 1))
    return parser.parse_args()


def chosen(scenarios, only):
    names = [name for name in only.split(",") if name]
    if unknown := [name for name in names if not any(name in known for known in scenarios)]:
        sys.exit(f"torture: no scenario {', '.join(unknown)}; there are: {' '.join(scenarios)}")
    whole = [name for name in names if name in scenarios]
    return [
        one
        for one in scenarios.values()
        if not names
        or one.name in whole
        or any(part in one.name for part in names if part not in whole)
    ]


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


def main():
    scenarios = scenarios_load()
    arguments = arguments_read()
    if arguments.list:
        for one in scenarios.values():
            print(f"{one.name:<40} {one.about}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    base = port_base_free(int(os.environ.get("PORT_BASE") or 16400))
    failed, skipped, passed, began = [], [], 0, time.monotonic()

    def rig_make():
        suffix = f"-{len(failed)}" if failed else ""
        return Rig(f"{os.environ.get('RUN_DIR') or '.run-torture'}{suffix}", base)

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
