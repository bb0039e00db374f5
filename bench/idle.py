"""CPU time of gateway, worker and keeper when nothing is requested."""

import glob
import time
from pathlib import Path

import cpu
from rig import QUICK, at_most, coupon_make, figures, has, stack

DURATION_S = 20 if not QUICK else 2
QUIET_S = 3 if not QUICK else 1  # after other work
ALLOWED_PERCENT = 0.5


def run_time_ns(pid):
    """More exact than the ticks of /proc/PID/stat."""
    tasks = glob.glob(f"/proc/{pid}/task/*/schedstat")
    return sum(int(Path(task).read_text().split()[0]) for task in tasks)


def idle_percent():
    """The share of one core that all gateways and workers use."""
    time.sleep(QUIET_S)
    pids = cpu.pids_of("gateway") + cpu.pids_of("workers")
    begin_s, before_ns = time.monotonic(), sum(map(run_time_ns, pids))
    time.sleep(DURATION_S)
    used_ns = sum(map(run_time_ns, pids)) - before_ns
    return used_ns / 1e7 / (time.monotonic() - begin_s)


def idle_measure():
    """Measures one gateway and one worker, which has the keeper."""
    coupon_make("idle")
    stack("stop", "worker-2")
    figures["idle_percent"] = idle_percent()
    stack("start", "worker-2")


MEASURES = (idle_measure,)


def rows():
    if not has("idle_percent"):
        return
    yield "at rest", None, None
    value = f"{figures['idle_percent']:.2f} %"
    note = f"of a core, {at_most(figures['idle_percent'], ALLOWED_PERCENT, ' %')}"
    yield "  CPU of gateway, worker and keeper", value, note
