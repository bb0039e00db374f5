"""The stack whose processes tests may stop, kill and freeze, and further processes with settings of
their own."""

import psycopg
import pytest
import redis
import requests

from audit_ground import Ground, purge
from history import DEAD_QUEUE
from process import Worker, gateway_process
from stack import wait_until

SERVICES = ("redis", "rabbitmq", "postgres")
# Small, so that the keeper acts at once.
KEEPER = {
    "COUPON_KEEPER_LEASE_MS": 1000,
    "COUPON_KEEPER_ROUND_MS": 100,
    "COUPON_RESEND_AFTER_MS": 400,
}


def make_whole(stack):
    """After any test: restarts everything and waits until it is ready."""
    names = (*SERVICES, "gateway", "worker-1")
    stack.thaw()
    for name in names:
        if stack.runs(name):
            stack.sigcont(name)
    missing = [name for name in names if not stack.runs(name)]
    if missing:
        stack.start(*missing)
    wait_until(lambda: gateway_ready(stack), timeout=30)


def gateway_ready(stack):
    try:
        return requests.get(stack.http("/readyz"), timeout=2).status_code == 200
    except requests.RequestException:
        return False


@pytest.fixture(scope="session")
def rough_stack(stack_make):
    rough = stack_make()
    rough.settings = KEEPER
    rough.services()
    rough.start("gateway", "worker-1")
    return rough


@pytest.fixture
def rough(rough_stack):
    """A stack that the test may break; it is repaired before the next one."""
    make_whole(rough_stack)
    yield rough_stack
    make_whole(rough_stack)


@pytest.fixture
def rough_redis(rough):
    with redis.Redis.from_url(rough.env["REDIS_URL"], decode_responses=True) as client:
        yield client


@pytest.fixture
def rough_pg(rough):
    with psycopg.connect(rough.env["DATABASE_URL"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def gateway_make():
    """gateway_make(stack, COUPON_X=…): one more gateway on that stack, on ports of its own."""
    made = []

    def make(stack, **settings):
        made.append(gateway_process(stack, f"gateway-{len(made) + 1}", **settings))
        return made[-1]

    yield make
    for process in made:
        process.end()


@pytest.fixture
def worker_make():
    """worker_make(stack, COUPON_X=…): one more worker."""
    made = []

    def make(stack, **settings):
        worker = Worker(stack, f"worker-extra-{len(made) + 1}", {**stack.settings, **settings})
        made.append(worker)
        wait_until(lambda: "event=ready" in worker.log(), timeout=20)
        return worker

    yield make
    for process in made:
        process.end()


@pytest.fixture
def ground_make(stack):
    """ground_make(LIMIT, on=STACK): a coupon for tests of the audit; see audit_ground.py."""
    made = []

    def make(limit, on=stack):
        if on is not stack:
            purge(on, DEAD_QUEUE)  # of tests before, which would be named as well
        made.append(Ground(on, limit))
        return made[-1]

    yield make
    for ground in made:
        ground.stack.ctl("close", ground.coupon)
        ground.close()
