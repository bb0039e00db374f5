"""A gateway or a worker of the rig, which can be killed, frozen, terminated and restarted."""

import os
import signal
import time
from pathlib import Path

from load import now
from process import Process, gateway_process
from stack import process_tree, wait_until


NEVER = float("inf")


class Violation(AssertionError):
    pass


class Part:
    """A gateway or a worker with a fixed address: each start is a new process."""

    def __init__(self, rig, kind, number):
        self.rig, self.kind, self.number = rig, kind, number
        self.name = f"{kind}-{number}"
        self.process = None
        self.settings = None  # its fault, and the settings it was started with
        self.settings_own = {}  # settings in addition to the rig's
        self.death_expected = False
        self.frozen = False
        self.via = None  # the relay through which clients reach it, if any
        # [from, until] in this scenario: at other times each request gets an answer
        self.disturbances = []

    def disturb(self):
        """From now on it may leave clients without an answer."""
        if not self.disturbances or self.disturbances[-1][1] < NEVER:
            self.disturbances.append([now(), NEVER])

    def calm(self):
        """Not any more."""
        if self.disturbances and self.disturbances[-1][1] == NEVER:
            self.disturbances[-1][1] = now()

    @property
    def pid(self):
        return self.process.child.pid

    @property
    def listen(self):
        return f"127.0.0.1:{self.rig.stack.port_base + 200 + 2 * self.number}"

    def alive(self):
        return self.process is not None and self.process.child.poll() is None

    def log(self):
        return self.process.log()

    def log_size(self):
        return self.process.log_path.stat().st_size

    def log_since(self, size):
        """The log of all its lives, from this size on."""
        return self.process.log_path.read_bytes()[size:].decode(errors="replace")

    def metrics(self):
        return self.process.metrics()

    def ready(self):
        return (
            self.process.answers() and self.process.ready()
            if self.kind == "gateway"
            else "event=ready" in self.log()
        )

    def start(self, fault="", **settings):
        assert not self.alive(), f"{self.name} runs already"
        self.check_death()
        self.disturb()
        wanted = {**self.rig.settings, **settings}
        self.settings_own = settings
        self.started = time.monotonic()
        self.settings = (fault, wanted)
        self.death_expected = "kill" in fault
        self.frozen = False
        if self.kind == "gateway":
            http = f"127.0.0.1:{self.rig.stack.port_base + 201 + 2 * self.number}"
            places = {"COUPON_LISTEN": self.listen, "COUPON_HTTP_LISTEN": http}
            self.process = gateway_process(
                self.rig.stack, self.name, ready=None, **{**places, **wanted, "COUPON_FAULT": fault}
            )
        else:
            self.process = Process(
                self.rig.stack, "coupon-worker", self.name, {**wanted, "COUPON_FAULT": fault}
            )
        if not fault:
            self.calm()
        return self

    def restart(self, fault="", **settings):
        self.terminate()
        return self.start(fault, **settings)

    def doom(self):
        self.disturb()
        self.check_death()
        self.death_expected = True

    def kill9(self):
        self.doom()
        self.process.kill9()

    def terminate(self):
        self.disturb()
        self.check_death()
        young = time.monotonic() - self.started < 1.0  # it may not handle signals yet
        code = self.process.terminate()
        if code != 0 and not (young and code == -signal.SIGTERM):
            raise Violation(f"{self.name} exits on SIGTERM with {code}")
        self.death_expected = True

    def tell_to_end(self):
        self.doom()
        self.process.signal(signal.SIGTERM)

    def _signal_all(self, number):
        for pid in process_tree(self.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def stop(self):
        self.disturb()
        self.frozen = True
        self._signal_all(signal.SIGSTOP)

    def cont(self):
        if self.alive():
            self._signal_all(signal.SIGCONT)
            if self.frozen:
                self.calm()
        self.frozen = False

    def wait_fault(self, timeout=120):
        fault = self.settings[0]
        wait_until(lambda: "fault: " in self.log(), timeout)
        if "kill" in fault:
            wait_until(lambda: not self.alive())
        else:
            self.frozen = "stop" in fault

    def rss_kb(self):
        total = 0
        for pid in process_tree(self.pid):
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        return total

    def check_death(self):
        """No process dies that the scenario did not kill."""
        code = self.process.child.poll() if self.process else None
        if code is not None and (
            not self.death_expected or code not in (0, -signal.SIGKILL, -signal.SIGTERM)
        ):
            raise Violation(f"{self.name} died, exit code {code}: {self.process.log_path}")
