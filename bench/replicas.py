"""What it costs that `accepted` waits for a replica of Redis: two gateways, one of which waits
(COUPON_REDIS_REPLICAS=1), take turns on one Redis, which has a replica and three Sentinels."""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from gate import PAIRS, Gateway, in_turns
from rig import AMPLE, RUN, SCALE, at_least, ctl, figures, has, rush, settled_wait
from rig import stack as stack_run

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from process import Worker  # noqa: E402
from sentinels import Sentinels  # noqa: E402
from stack import Client, Stack, wait_until  # noqa: E402

USERS = 600_000 // SCALE
# More than elsewhere: in a loop that is closed, what waits for a replica is not sent again yet.
LOAD = ("--connections", 20, "--pipeline", 384)
WANTED = 0.9  # of the rate without waiting


def is_open(gateway, coupon):
    """By one user, who is accepted again and again by his key."""
    with Client(gateway.lines) as client:
        return client.issue(coupon, "nobody", key="replicas")["code"] == 0


def replicas_measure():
    stack = Stack(RUN, os.environ["PORT_BASE"])
    stack_run("stop", "gateway", "worker-1", "worker-2")
    with ExitStack() as ends:
        # In memory: another machine's disk, instead of the one that the master syncs to.
        group = Sentinels(stack, Path(ends.enter_context(TemporaryDirectory(dir="/dev/shm"))))
        ends.callback(group.end)
        gateways = [
            ends.enter_context(
                Gateway(
                    f"replicas-{number}",
                    COUPON_REDIS_REPLICAS=str(number),
                    **group.settings("gateway"),
                )
            )
            for number in (0, 1)
        ]

        def with_worker(wait):
            """Which is here only for that."""
            worker = Worker(stack, "bench-replicas-worker", group.settings("worker"))
            try:
                wait()
            finally:
                worker.end()

        def coupon_open():
            """Each round opens its own coupon: the more users one has, the slower each is found."""
            terms = ("--total", AMPLE, "--events", "off")
            coupon = ctl("create", "--name", "replicas", *terms)
            ctl("publish", "--wait-s", 0, coupon)
            for gateway in gateways:
                wait_until(lambda one=gateway: is_open(one, coupon))
            return coupon

        def admission(gateway):
            """Accepted answers a second while no worker runs, until the replica has them all: on
            the same cores it would otherwise be served after the end."""
            coupon = coupons.pop()
            words = ("--listen", gateway.lines, *LOAD)
            result = rush(coupon, USERS, *words, name="replicas", verify=False)
            with group.connect(group.first) as master:
                master.set("couponmq:bench", "")
                master.execute_command("WAIT", 1, 0)
            took_us = time.monotonic_ns() / 1000 - result["begin_us"]
            with_worker(lambda: settled_wait(coupon))
            return result["answers"]["accepted"] / took_us * 1e6

        coupons = []
        with_worker(lambda: coupons.extend(coupon_open() for _ in range(2 * PAIRS)))
        in_turns("replicas", *(lambda one=one: admission(one) for one in gateways))
    stack_run("start", "gateway", "worker-1", "worker-2")


MEASURES = (replicas_measure,)


def rows():
    if not has("gate_replicas"):
        return
    without, with_it = figures["gate_replicas"]
    note = f"{with_it / without:.2f} x without, {at_least(with_it / without, WANTED)}"
    yield "Redis with Sentinels, in turns: COUPON_REDIS_REPLICAS=0 / 1", None, None
    yield "  admission", f"{without:,.0f} / {with_it:,.0f} /s", note
