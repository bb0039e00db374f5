"""couponctl audit --all pauses for all coupons together, however many need several looks."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from audit_ground import FAILED, STALLED, outbox_lose, purge, user
from stack import wait_until

SOURCE = Path(__file__).parent / "count_sleeps.c"
COUPONS = 4


@pytest.fixture
def audit_counted(rough, tmp_path):
    """Audits, and returns the figures by coupon, and the number of pauses. The exit status of --all
    is also that of the coupons of other tests."""
    library, counted = tmp_path / "count_sleeps.so", tmp_path / "counted"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)

    def run(*arguments):
        counted.unlink(missing_ok=True)
        result = subprocess.run(
            [rough.build_dir / "couponctl", "audit", "--json", *arguments],
            env={
                **os.environ,
                **rough.env,
                "LD_PRELOAD": str(library),
                "COUNT_SLEEPS": str(counted),
                "ASAN_OPTIONS": "verify_asan_link_order=0",
            },
            stdout=subprocess.PIPE,
            check=False,
            timeout=120,
        )
        assert result.returncode in (STALLED, FAILED), "not undecided"
        coupons = {one["coupon"]: one for one in json.loads(result.stdout)["coupons"]}
        return coupons, counted.stat().st_size if counted.exists() else 0

    return run


@pytest.mark.long
def test_pauses_do_not_grow_with_the_number_of_coupons(rough, audit_counted):
    """Overdue and stalled receives of several coupons, whose messages are in the queue and not in
    the outbox. With a limit above 1, a pass waits for their outcomes as well."""
    coupons = [rough.coupon_make(10, 2) for _ in range(COUPONS)]
    with rough.client() as client:
        for coupon in coupons:
            wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        rough.stop("worker-1")
        stalled = [
            client.issue(coupon, user(number), ack="queued")["receive"]
            for coupon in coupons
            for number in range(2)
        ]
    for coupon in coupons:
        outbox_lose(rough, coupon)
    accepted_at = time.time()
    wait_until(lambda: time.time() > accepted_at + 1.1)
    young = ("--grace", "1", "--stalled-after-s", "1")
    one, pauses_of_one = audit_counted(coupons[0], *young)
    assert one[coupons[0]]["stalled"] == 2 and pauses_of_one > 2
    all_, pauses = audit_counted("--all", *young)
    assert sum(all_[coupon]["stalled"] for coupon in coupons) == len(stalled)
    assert all(all_[coupon]["waits_for"][0]["what"] == "queue" for coupon in coupons)
    assert pauses <= 2 * pauses_of_one, f"of one coupon: {pauses_of_one}"
    purge(rough)

    def all_are_lost():
        """Nothing consumes. On a busy machine, looks that take long leave one undecided."""
        found, _ = audit_counted("--all", *young)
        return all(found[coupon]["stalled"] == 0 for coupon in coupons)

    wait_until(all_are_lost)
    rough.start("worker-1")
    for coupon in coupons:
        rough.ctl("rebuild", coupon, "--give-up-lost", "--older-than-s", 1)
