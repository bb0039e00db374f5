"""
`coupon-rush` on each gateway: many users on a coupon of their own. It checks P1 to P3 of them.
In `make torture` a crowd beside the load of every scenario asks for two thirds of what the machine
does.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

from services import say

CONNECTIONS, PIPELINE = 16, 32
ENDS_S = 240
MEASURED_N = 20_000  # users of one gateway, to learn the rate
SHARE = 2 / 3  # of that rate is the load
LASTS_S = 20  # longer than most faults
USERS_S = 30  # who would ask for so long: the load never ends by itself


def rush_start(rig, coupons, part, first, users, rate):
    return subprocess.Popen(
        [
            str(rig.stack.build_dir / "coupon-rush"), "--json", *coupons,
            "--users", str(users), "--first-user", str(first), "--connections", str(CONNECTIONS),
            "--pipeline", str(PIPELINE), "--timeout-s", "30", "--settle-timeout-s", "120",
            *(("--rate", str(rate)) if rate else ()),
        ],
        env={**os.environ, **rig.stack.env_of("operator"), "COUPON_LISTEN": part.listen},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def rush_ended(one):
    """What it told, which must be that all its answers are in PostgreSQL."""
    output, _ = one.communicate(timeout=ENDS_S)
    assert one.returncode == 0, f"coupon-rush: {one.returncode} {output}"
    return json.loads(output.splitlines()[-1])


def rushes_start(rig, coupons, first, users, rate=0):
    """One on each gateway, with users of its own. coupons: the options that name them."""
    return [
        rush_start(rig, coupons, part, first + number * users, users, rate)
        for number, part in enumerate(rig.gateways)
    ]


def is_asking(one):
    """It catches a signal to stop as long as it asks, and would end by it before and after."""
    caught = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{one.pid}/status").read_text())
    return bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@contextlib.contextmanager
def rushes(rig, coupons, first, users, rate=0):
    started = rushes_start(rig, coupons, first, users, rate)
    try:
        yield started
        for one in started:
            rush_ended(one)
    finally:
        for one in started:
            one.kill()


class Crowd:
    """Asks from when it is made until stop(), or for 20 s: then it is frozen, so that it verifies
    when all faults are over."""

    def __init__(self, rig):
        self.coupon = rig.stack.coupon_make(100_000_000, name="crowd")
        coupons = ("--coupon", self.coupon)
        if not rig.machine_rate:
            rig.machine_rate = self._machine_rate(rig, coupons)
            say(f"the machine settles {rig.machine_rate:.0f} receives a second")
        rate = max(1, int(SHARE * rig.machine_rate / len(rig.gateways)))
        asked = int(rig.redis_get(self.coupon, "seq") or 0)
        self.rig, self.started = rig, rushes_start(rig, coupons, 10**6, rate * USERS_S, rate)
        rig.on_end(self._kill)
        self.freeze = threading.Timer(LASTS_S, self._signal, (signal.SIGSTOP,))
        self.freeze.start()
        rig.wait(lambda: int(rig.redis_get(self.coupon, "seq") or 0) > asked + rate)
        rig.wait(lambda: all(one.poll() is not None or is_asking(one) for one in self.started))

    def _machine_rate(self, rig, coupons):
        started = rushes_start(rig, coupons, 1, MEASURED_N)
        told = [rush_ended(one) for one in started]
        ends_us = [one["begin_us"] + one["verify"]["committed_us"] for one in told]
        begun_us = min(one["begin_us"] for one in told)
        return MEASURED_N * len(told) * 1e6 / (max(ends_us) - begun_us)

    def _signal(self, number):
        for one in self.started:
            one.send_signal(number)

    def _kill(self):
        self.freeze.cancel()
        self._signal(signal.SIGKILL)

    def stop(self):
        """Returns how many were accepted."""
        self.freeze.cancel()
        self.freeze.join()
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        told = [rush_ended(one) for one in self.started]
        self.rig.stack.ctl("close", self.coupon)
        return sum(one["answers"].get("accepted", 0) for one in told)
