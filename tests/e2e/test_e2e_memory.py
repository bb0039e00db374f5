"""Memory that is not there: one allocation on the way of a request fails, some of them by the seed,
with ALL=1 each. The program may end with a message, and gives no wrong answer."""

import contextlib
import itertools
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from seed import SEED
from stack import wait_until

SOURCE = Path(__file__).with_name("failing_malloc.c")
ALL = bool(os.environ.get("ALL"))
STRIDE = 1 if ALL else 17
# By this project, libevent, any library; hiredis 0.14 has an assertion where a callback of its is
# missing.
HIREDIS_CRASHES = 1  # 0.14 reads a buffer that it could not allocate after it has written
SAID = ("level=fatal", "[err]", "memory", "Assertion")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        "address" in os.environ.get("BUILD_DIR", "") or "thread" in os.environ.get("BUILD_DIR", ""),
        reason="sanitizers have their own malloc",
    ),
]


class FailingMalloc:
    def __init__(self, folder):
        library, self.file = folder / "failing_malloc.so", folder / "failing_malloc"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
        self.set(0)
        self.environment = {"LD_PRELOAD": library, "FAILING_MALLOC": self.file}

    def set(self, at):
        with open(self.file, "r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("<qq", at, 0))

    def count(self):
        return struct.unpack("<qq", self.file.read_bytes())[1]


@pytest.fixture
def failing(tmp_path):
    return FailingMalloc(tmp_path)


def asked(gateway, coupon, user):
    """The answer, or None if the connection or the gateway has ended."""
    with contextlib.suppress(OSError, AssertionError), gateway.client(timeout=30) as client:
        return client.issue(coupon, user, key="k", ack="issued")
    return None


def pings(gateway):
    with contextlib.suppress(OSError, AssertionError), gateway.client(timeout=30) as client:
        return client.call("ping")["code"] == 0
    return False


def says_why(process, crashed):
    """It ended itself, and not in a handler of memory that was not there."""
    code = process.child.returncode
    if code == -signal.SIGSEGV:
        crashed.append(process)
        assert len(crashed) <= HIREDIS_CRASHES
        return
    assert code not in (-signal.SIGBUS, 0)
    assert any(word in process.log() for word in SAID), (code, process.log())


def test_each_allocation_of_a_gateway(rough, gateway_make, failing):
    coupon = rough.coupon_make(1_000_000, limit=100)
    gateway, ended, told, crashed = None, 0, {}, []
    for at in itertools.count(1 + SEED % STRIDE, STRIDE):
        if gateway is None:
            gateway = gateway_make(rough, COUPON_PROCESSES=1, **failing.environment)
            assert asked(gateway, coupon, f"warm-{at}")["status"] == "issued"
        failing.set(at)
        first = asked(gateway, coupon, f"user-{at}")
        is_over = failing.count() < at
        failing.set(0)
        if first is None:
            wait_until(lambda: gateway.child.poll() is not None or pings(gateway))  # noqa: B023
        if gateway.child.poll() is not None:
            says_why(gateway, crashed)
            ended += 1
            gateway = None
        told[at] = first and first["status"]
        again = wait_until(lambda: sure(rough, coupon, f"user-{at}"))  # noqa: B023
        if told[at] == "issued":
            assert (first["receive"], first["slot"]) == (again["receive"], again["slot"])
        if is_over:
            break
    print(f"{at} allocations, the gateway ended at {ended}: {told}")
    assert set(told.values()) <= {None, "issued", "unknown", "unavailable"}
    assert len(told) > 2


def sure(stack, coupon, user):
    """By the stack's own gateway, which has memory: the same receive, and no second one."""
    with stack.client() as client:
        reply = client.issue(coupon, user, key="k", ack="issued")
        if reply["status"] != "issued":
            return None
        receives = client.call("status", coupon=coupon, user=user)["receives"]
    assert [one["receive"] for one in receives] == [reply["receive"]]
    return reply


def test_each_allocation_of_a_worker(rough, rough_pg, worker_make, failing):
    coupon = rough.coupon_make(1_000_000)
    rough.stop("worker-1")
    worker, ended, crashed = None, 0, []

    def has_row(user):
        return rough_pg.execute(
            "SELECT 1 FROM user_coupon WHERE coupon_id = %s AND user_id = %s", (coupon, user)
        ).fetchone()

    with rough.client() as client:
        for at in itertools.count(1 + SEED % STRIDE, STRIDE):
            if worker is None:
                worker = worker_make(rough, **failing.environment)
                warm = client.issue(coupon, f"warm-{at}", ack="queued")
                assert warm["status"] == "queued", warm
                wait_until(lambda: has_row(f"warm-{at}"))  # noqa: B023
            failing.set(at)
            assert client.issue(coupon, f"user-{at}", ack="queued")["status"] == "queued"
            wait_until(
                lambda: has_row(f"user-{at}") or worker.child.poll() is not None  # noqa: B023
            )
            is_over = has_row(f"user-{at}") and failing.count() < at
            failing.set(0)
            if worker.child.poll() is not None:
                says_why(worker, crashed)
                ended += 1
                worker = None
            if is_over:
                break
    print(f"{at} allocations, the worker ended at {ended}")
    assert at > 2 * STRIDE
    worker = worker or worker_make(rough)
    issued = f"SELECT issued_num FROM coupon WHERE id = {coupon}"
    rows = f"SELECT count(DISTINCT user_id), count(*) FROM user_coupon WHERE coupon_id = {coupon}"
    wait_until(lambda: has_row(f"user-{at}"))
    users, all_rows = rough_pg.execute(rows).fetchone()
    assert (users, all_rows) == (all_rows, rough_pg.execute(issued).fetchone()[0])
