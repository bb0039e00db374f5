"""The real stack under the suite, by the folder in which `make run` or a test has started it."""

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120  # generous: only what never comes takes so long


class RealStack:
    def __init__(self, run_dir):
        self.run_dir = Path(run_dir).resolve()
        words = [shlex.split(line) for line in (self.run_dir / "env").read_text().splitlines()]
        self.env = dict(line[1].split("=", 1) for line in words if line[:1] == ["export"])
        self.build = ROOT / os.environ.get("BUILD_DIR", "build")
        self.host, _, port = self.env["COUPON_HTTP_LISTEN"].rpartition(":")
        self.port = int(port)
        self.ca = self.env.get("COUPON_TLS_CA")
        self.db = psycopg.connect(self.env["DATABASE_ADMIN_URL"], autocommit=True)

    @property
    def url(self):
        return f"{'https' if self.ca else 'http'}://{self.host}:{self.port}"

    def ctl(self, *arguments):
        """couponctl; returns what it printed."""
        done = subprocess.run(
            [self.build / "couponctl", *map(str, arguments)],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"couponctl {shlex.join(map(str, arguments))}: {done.stderr}")
        return done.stdout.strip()

    def coupon_make(self, terms, codes=()):
        """A published coupon with these exchange codes; terms as the options of couponctl."""
        if "valid-from" not in terms:
            terms = {"valid-days": 30, **terms}
        terms = {"name": "conformance", "total": 100, "limit": 5, **terms}
        options = [part for name, one in terms.items() for part in (f"--{name}", str(one))]
        coupon = self.ctl("create", *options)
        if codes:
            with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
                print("code", *codes, sep="\n", file=file, flush=True)
                self.ctl("codes", "import", coupon, file.name)
        self.ctl("publish", coupon)
        return coupon

    def rows(self, coupon):
        """What PostgreSQL has of the coupon: user coupons, receives that an order holds or has
        used, and operations that changed something."""
        counts = self.db.execute(
            "SELECT (SELECT count(*) FROM user_coupon WHERE coupon_id = %(id)s),"
            " (SELECT count(*) FROM receive_use WHERE coupon_id = %(id)s AND state = 'held'),"
            " (SELECT count(*) FROM receive_use WHERE coupon_id = %(id)s AND state = 'used'),"
            " (SELECT count(*) FROM use_operation WHERE coupon_id = %(id)s"
            "  AND to_state IS NOT NULL)",
            {"id": coupon},
        ).fetchone()
        return dict(zip(("issued", "held", "used", "operations"), counts))

    def is_settled(self, coupon):
        """Whether each receive has its outcome."""
        shown = json.loads(self.ctl("show", coupon, "--json"))
        return shown["in_flight"] == 0 and shown["redis"]["outbox"] == 0

    def process(self, do, name):
        """start or stop one process of the stack, whose folder has its ports and whether it has
        TLS: those of the environment may be of another one."""
        others = {one: "" for one in ("PORT_BASE", "TLS")}
        subprocess.run(
            [ROOT / "scripts/stack.sh", do, name],
            env={**os.environ, **others, "RUN_DIR": str(self.run_dir)},
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def kill(self, name):
        """Kills a process, and starts it when it has gone: a start would find it running before."""
        pid = int((self.run_dir / f"{name}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        if not wait_until(lambda: not Path(f"/proc/{pid}").exists()):
            raise RuntimeError(f"{name}, process {pid}, is still there after SIGKILL")
        self.process("start", name)


def wait_until(condition):
    """Returns the first true value of condition(), or the last one after a long time."""
    deadline = time.monotonic() + WAIT_S
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value
