"""The election of the keeper: it holds a lock of the library."""

import itertools
import os
import subprocess
from datetime import datetime, timedelta

import pytest

from coupon_seen import KEEPER_LOCK, keeper_fence, keeper_holders, keeper_usurp
from lock_agent import BUILD
from stack import wait_until


def elections_lost(stack):
    return stack.log("worker-1").count("event=keeper_lost")


def asked(cache, times=20):
    """Until scripts have run so often: who is no keeper asks for the lock in each round."""
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


def test_it_holds_the_lock_and_gives_it_up(rough, rough_redis):
    (holder,) = wait_until(lambda: keeper_holders(rough_redis))
    assert int(rough_redis.hget(KEEPER_LOCK, holder).split()[2]) == 1000, "the lease of the tests"
    rough.stop("worker-1")
    assert not keeper_holders(rough_redis)


def test_without_it_it_is_no_keeper(rough, rough_redis, rough_pg):
    wait_until(lambda: keeper_holders(rough_redis))
    fence, lost = keeper_fence(rough_pg), elections_lost(rough)
    rough_redis.delete(KEEPER_LOCK)
    wait_until(lambda: elections_lost(rough) > lost)
    wait_until(lambda: keeper_fence(rough_pg) > fence)
    wait_until(lambda: keeper_holders(rough_redis))


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


def test_frozen_it_loses_the_lock_with_its_lease(rough_redis, alone):
    one = alone()
    wait_until(one.is_elected)

    def ends():
        return int(rough_redis.hget(KEEPER_LOCK, keeper_holders(rough_redis)[0]).split()[0])

    first = ends()
    wait_until(lambda: ends() > first + 2000)
    one.worker.signal(19)
    try:
        keeper_usurp(rough_redis)
        one.worker.signal(18)
        wait_until(lambda: "keeper_lost" in one.worker.log())
    finally:
        rough_redis.delete(KEEPER_LOCK)


def test_without_an_answer_to_a_renewal_it_keeps_its_lease(rough, rough_redis, worker_make):
    """Redis refuses to write, for less than the lease: then the same holder is the keeper again."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_KEEPER_LEASE_MS=15000)
    holder = wait_until(lambda: keeper_holders(rough_redis))
    limit = rough_redis.config_get("maxmemory")["maxmemory"]
    rough_redis.config_set("maxmemory", "1")
    try:
        wait_until(lambda: "keeper_lost" in worker.log())
    finally:
        rough_redis.config_set("maxmemory", limit)
    wait_until(lambda: worker.log().count("keeper_elected") == 2)
    assert keeper_holders(rough_redis) == holder


def test_between_two_sessions_that_are_refused_there_is_a_pause(rough, rough_pg, worker_make):
    """PostgreSQL takes the session and refuses its first statement."""
    rough.stop("worker-1")
    worker = worker_make(rough)
    rough_pg.execute("REVOKE SELECT ON change_count FROM couponmq_worker")
    try:

        def lost():
            lines = [line for line in worker.log().splitlines() if "=keeper_database_lost" in line]
            return [datetime.fromisoformat(line[5:28]) for line in lines]

        wait_until(lambda: len(lost()) > 5)
    finally:
        rough_pg.execute("GRANT SELECT ON change_count TO couponmq_worker")
    pauses = [after - before for before, after in itertools.pairwise(lost())]
    # Each pause has 100 to 200 ms (BACKOFF_CONNECT_MS); the log cuts off parts of a ms.
    assert min(pauses) >= timedelta(milliseconds=98), pauses
