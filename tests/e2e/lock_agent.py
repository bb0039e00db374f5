"""An owner of locks (tests/lock/agent.c), and the stores that it uses."""

import os
import signal
import subprocess
import threading
from queue import Empty, Queue

from stack import ROOT

BUILD = ROOT / os.environ.get("BUILD_DIR", "build")
EXCLUSIVE, FAIR, READ, WRITE = range(4)
SKIP, FAIL, KEEP, SKIP_AFTER, FAIL_AFTER = range(5)
STORES = {"redis": (0, "REDIS_URL"), "postgres": (1, "DATABASE_URL")}
if os.environ.get("WITH_ZOOKEEPER"):
    STORES["zookeeper"] = (2, "ZOOKEEPER_HOSTS")
LEASE = 30000


class Agent:
    """An owner. Commands may be sent before earlier answers are read."""

    def __init__(self, stack, store):
        number, setting = STORES[store]
        self.process = subprocess.Popen(
            [BUILD / "tests/lock_agent", str(number), {**os.environ, **stack.env}[setting]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.answers, self.lost = Queue(), Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            (self.lost if line.startswith("lost ") else self.answers).put(line.strip())

    def send(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def answer(self, timeout=120):
        return self.answers.get(timeout=timeout)

    def has_answered(self, within=0.3):
        try:
            self.answers.put(self.answers.get(timeout=within))
        except Empty:
            return False
        return True

    def do(self, *words):
        self.send(*words)
        return self.answer()

    def take_send(self, name, kind=EXCLUSIVE, wait=KEEP, wait_ms=0, lease=LEASE, watched=1):
        self.send("take", name, kind, wait, wait_ms, lease, watched)

    def take(self, name, **options):
        """(result, what follows it)"""
        self.take_send(name, **options)
        result, _, rest = self.answer().partition(" ")
        return result, rest

    def fence(self, name, **options):
        result, rest = self.take(name, **options)
        assert result == "taken", rest
        return int(rest)

    def release(self, name):
        return self.do("release", name)

    def held(self, name):
        return self.do("held", name)

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(timeout=120)
