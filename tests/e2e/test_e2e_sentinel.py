"""Redis with a replica and Sentinels: a master is lost, and the next one opens."""

import pytest
import redis

from history import History
from process import Worker, gateway_process
from script_coupon import run_id_of
from sentinels import Sentinels
from stack import Client, wait_until

UNAVAILABLE = 21


@pytest.fixture(scope="module")
def ground(stack_make, tmp_path_factory):
    """A stack of services, with a replica and Sentinels."""
    stack = stack_make()
    stack.services()
    group = Sentinels(stack, tmp_path_factory.mktemp("sentinels"))
    yield stack, group
    group.end()


def test_the_master_is_lost(ground):
    stack, group = ground
    settings = {"COUPON_KEEPER_ROUND_MS": 100, "COUPON_KEEPER_LEASE_MS": 1000}
    worker = Worker(stack, "worker-s", {**settings, **group.settings("worker")})
    gateway = gateway_process(stack, "gateway-s", **group.settings("gateway"))
    try:
        coupon = stack.coupon_make(10_000)
        with gateway.client() as client:
            wait_until(lambda: client.issue(coupon, "first", ack="issued")["code"] == 0)
            stack.kill9("redis")
            wait_until(lambda: group.masters() == {group.second}, timeout=60)
            wait_until(lambda: client.issue(coupon, "second", ack="issued")["code"] == 0, 60)
            assert client.issue(coupon, "first", ack="issued")["code"] == 4
    finally:
        gateway.end()
        worker.end()
