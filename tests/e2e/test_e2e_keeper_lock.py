"""The election of the keeper: it holds a lock of the library, and the key that keepers of the
version before know."""

import os
import subprocess

import pytest

from coupon_seen import keeper_fence
from lock_agent import BUILD
from stack import wait_until

KEY, LOCK = "couponmq:keeper", "couponmq:lock:{keeper}"


def holders(cache):
    return [field for field in cache.hkeys(LOCK) if ":" in field]


def elections_lost(stack):
    return stack.log("worker-1").count("event=keeper_lost")


def asked(cache, times=20):
    """Until scripts have run so often: a worker that is no keeper asks for the key once a round."""
    before = cache.info("commandstats")["cmdstat_eval"]["calls"]
    wait_until(lambda: cache.info("commandstats")["cmdstat_eval"]["calls"] >= before + times)


@pytest.fixture
def alone(rough, rough_pg, worker_make):
    """The only worker, which is not the keeper, and whether it was elected since."""

    class Alone:
        def __init__(self):
            self.fence = keeper_fence(rough_pg)
            self.worker = worker_make(rough)

        def is_elected(self):
            return keeper_fence(rough_pg) > self.fence

    rough.stop("worker-1")
    return Alone


def test_it_holds_the_lock_and_the_key_and_gives_up_both(rough, rough_redis):
    wait_until(lambda: rough_redis.exists(KEY) and holders(rough_redis))
    (holder,) = holders(rough_redis)
    wait_until(lambda: 0 < rough_redis.pttl(KEY) <= 1000)
    assert int(rough_redis.hget(LOCK, holder).split()[2]) == 1000, "the lease of the tests"
    rough.stop("worker-1")
    assert not rough_redis.exists(KEY) and not holders(rough_redis)


@pytest.mark.parametrize("name", [KEY, LOCK])
def test_without_one_of_them_it_is_no_keeper(rough, rough_redis, rough_pg, name):
    wait_until(lambda: rough_redis.exists(KEY) and holders(rough_redis))
    fence, lost = keeper_fence(rough_pg), elections_lost(rough)
    rough_redis.delete(name)
    wait_until(lambda: elections_lost(rough) > lost)
    wait_until(lambda: keeper_fence(rough_pg) > fence)
    wait_until(lambda: rough_redis.exists(KEY) and holders(rough_redis))


def test_another_owner_of_the_lock_keeps_workers_out(rough, rough_redis, alone):
    words = ("keeper", "--lease", "2000", "--", "sh", "-c", "echo in; exec sleep 60")
    owner = subprocess.Popen(
        [BUILD / "couponctl", "lock", *words],
        env={**os.environ, **rough.env},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout.readline() == "in\n"
        one = alone()
        asked(rough_redis)
        assert not one.is_elected()
    finally:
        owner.terminate()
        owner.communicate(timeout=120)
    wait_until(one.is_elected)


def test_a_keeper_of_the_version_before_keeps_workers_out(rough, rough_redis, alone):
    rough_redis.set(KEY, "of the version before", px=600_000)
    try:
        one = alone()
        asked(rough_redis)
        assert not one.is_elected() and not holders(rough_redis)
    finally:
        rough_redis.delete(KEY)
    wait_until(one.is_elected)


def test_it_keeps_workers_of_the_version_before_out(rough_redis, alone):
    """Frozen, it loses the key with its lease, and the lock is no obstacle to them."""
    one = alone()
    wait_until(one.is_elected)

    def take():
        return rough_redis.set(KEY, "of the version before", px=600_000, nx=True)

    def ends():
        assert not take()
        return int(rough_redis.hget(LOCK, holders(rough_redis)[0]).split()[0])

    first = ends()
    wait_until(lambda: ends() > first + 2000)
    one.worker.signal(19)
    try:
        wait_until(take)
        one.worker.signal(18)
        wait_until(lambda: "keeper_lost" in one.worker.log())
    finally:
        rough_redis.delete(KEY)
