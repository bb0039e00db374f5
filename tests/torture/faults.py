"""
Single faults that can be composed: each is a generator that begins the fault, yields while it
lasts, and ends it. None of them waits for a part that another fault may have stopped.
"""

import contextlib
import re

import psycopg
from scenario_link import heal_all
from services import pg_superuser, rabbitmqctl, say

from scenario import GATEWAY_STARTS, OUTCOMES_LATE, POSTGRESQL_AWAY, REDIS_AWAY, REDIS_LOSES

FAULTS = {}


class Fault:
    def __init__(self, name, function, target, allowed):
        self.name, self.function = name, function
        self.target, self.allowed = target, allowed

    @contextlib.contextmanager
    def lasting(self, rig, chance):
        rig.allow(**self.allowed)
        say(f"begins: {self.name}")
        yield from self.function(rig, chance)
        say(f"ended: {self.name}")


def fault(target, allowed, name=None):
    """Only faults of different targets are composed. The name is that of the function, unless it is
    given."""

    def register(function):
        own_name = name or function.__name__
        FAULTS[own_name] = Fault(own_name, function, target, allowed)
        return function

    return register


# Processes


def part_start(part):
    part.start(**part.settings_own)


@fault("gateway", GATEWAY_STARTS)
def gateway_killed(rig, chance):
    part = chance.choice(rig.gateways)
    part.kill9()
    yield
    part_start(part)


@fault("gateway", GATEWAY_STARTS)
def gateway_frozen(rig, chance):
    part = chance.choice(rig.gateways)
    part.stop()
    yield
    part.cont()


@fault("worker", OUTCOMES_LATE)
def worker_killed(rig, chance):
    part = chance.choice(rig.workers)
    part.kill9()
    yield
    part_start(part)


@fault("worker", OUTCOMES_LATE)
def workers_killed(rig, _chance):
    for part in rig.workers:
        part.kill9()
    yield
    for part in rig.workers:
        part_start(part)


def fence_of(part):
    """The fence of its last election in this life."""
    return max(map(int, re.findall(r"event=keeper_elected fence=(\d+)", part.log())), default=0)


@fault("worker", OUTCOMES_LATE)
def keeper_frozen(rig, _chance):
    part = max(rig.workers, key=fence_of)
    part.stop()
    yield
    part.cont()


# Services


def service_faults(target, process, allowed):
    """The process is killed, or frozen: TARGET_killed, TARGET_frozen."""

    @fault(target, allowed, f"{target}_killed")
    def killed(rig, _chance):
        rig.stack.kill9(process)
        yield
        if not rig.stack.runs(process):
            rig.stack.start(process)

    @fault(target, allowed, f"{target}_frozen")
    def frozen(rig, _chance):
        rig.stack.sigstop(process)
        yield
        rig.stack.sigcont(process)


service_faults("redis", "redis", REDIS_AWAY)


@fault("redis", REDIS_AWAY)
def redis_out_of_memory(rig, _chance):
    with rig.redis() as cache:
        rig.expect_trim()
        rig.on_heal(lambda: cache.config_set("maxmemory", 0))
        cache.config_set("maxmemory", "1mb")
        yield
        cache.config_set("maxmemory", 0)


@fault("redis", REDIS_LOSES)
def redis_flushed(rig, _chance):
    with rig.redis() as cache:
        cache.flushall()
    yield


service_faults("rabbitmq", "rabbitmq", OUTCOMES_LATE)


@fault("rabbitmq", OUTCOMES_LATE)
def rabbitmq_connections_closed(rig, _chance):
    rabbitmqctl(rig.stack, "close_all_connections", "torture")
    yield


service_faults("postgresql", "postgres", POSTGRESQL_AWAY)


@fault("postgresql", POSTGRESQL_AWAY)
def postgresql_coupon_locked(rig, chance):
    try:
        with pg_superuser(rig.stack) as pg, pg.transaction():
            coupon = chance.choice(rig.load.campaigns[:2]).coupon
            pg.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupon,))
            yield
    except psycopg.OperationalError:
        pass


@fault("postgresql", POSTGRESQL_AWAY)
def postgresql_commits_wait(rig, _chance):
    """Each COMMIT waits for a standby that does not exist: until then its rows are not visible, and
    no client may be told that they are issued."""
    standby_set(rig, "nobody")
    rig.on_heal(lambda: standby_set(rig, ""))
    yield
    standby_set(rig, "")


def standby_set(rig, name):
    with pg_superuser(rig.stack) as pg:
        pg.execute("SET synchronous_commit = off")
        pg.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        pg.execute("SELECT pg_reload_conf()")


# Links. Their relays are opened before the load begins.


def link_fault(way, allowed):
    def run(rig, chance):
        for relay in chance.sample(rig.relays, chance.randint(1, len(rig.relays))):
            way(relay)
        yield
        heal_all(rig)

    run.__name__ = f"link_{way.__name__}"
    fault("link", allowed)(run)


def black_hole(relay):
    relay.mode("lose")


def held(relay):
    relay.mode("hold")


def slow(relay):
    relay.mode("delay", ms=200, jitter_ms=100)


for _way in (black_hole, held, slow):
    link_fault(_way, {"unknown": 0.3})
