"""The kernel's OOM killer takes each process at its peak: when it asks for more than there is."""

import contextlib

from scenario_postgresql import ROLE, SETTLING, server_wait
from services import MemoryLimit, pg_superuser, say

from scenario import GATEWAY_STARTS, OUTCOMES_LATE, POSTGRESQL_AWAY, REDIS_AWAY, scenario
from stack import dial, process_gone


def killed_for_memory(rig, pid, name, ask=lambda: None):
    """ask: something that makes it ask for memory."""
    limit = MemoryLimit(pid)
    rig.on_end(limit.remove)
    say(f"no more memory for {name}")
    rig.wait(lambda: ask() or process_gone(pid))


def part_loses(rig, chance, part, ask=lambda: None):
    rig.wait_answers(chance.randint(1, 300))
    part.doom()
    killed_for_memory(rig, part.pid, part.name, ask)
    rig.wait_answers(100)
    part.start()
    rig.wait_answers(200)


@scenario(**GATEWAY_STARTS)
def memory_of_gateway(rig, chance):
    """A gateway's, when many connect to it."""
    part = chance.choice(rig.gateways)
    with contextlib.ExitStack() as connections:

        def connect():
            with contextlib.suppress(OSError):
                connections.enter_context(dial(part.listen))

        part_loses(rig, chance, part, connect)


@scenario(**OUTCOMES_LATE)
def memory_of_worker(rig, chance):
    """A worker's; it may be the keeper."""
    part_loses(rig, chance, chance.choice(rig.workers))


def service_loses(rig, chance, name):
    rig.wait_answers(chance.randint(1, 300))
    killed_for_memory(rig, rig.stack.pid(name), name)
    rig.pause(chance, 0.0, 1.0)
    rig.stack.start(name)
    rig.wait_answers(200)


@scenario(**REDIS_AWAY)
def memory_of_redis(rig, chance):
    """Redis'."""
    service_loses(rig, chance, "redis")


@scenario(**OUTCOMES_LATE)
def memory_of_rabbitmq(rig, chance):
    """RabbitMQ's."""
    service_loses(rig, chance, "rabbitmq")


@scenario(**POSTGRESQL_AWAY)
def memory_of_postgresql(rig, chance):
    """The process of PostgreSQL that settles runs out of memory: all its sessions end, and it
    recovers."""
    rig.wait_answers(chance.randint(1, 300))

    def settling():
        with pg_superuser(rig.stack) as pg:
            found = pg.execute(SETTLING, (ROLE,)).fetchall()
        return found and chance.choice(found)[0]

    killed_for_memory(rig, rig.wait(settling), "the process that settles")
    server_wait(rig)
    rig.wait_answers(200)
