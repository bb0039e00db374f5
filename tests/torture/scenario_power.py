"""Power cuts: of the machine of a store, of several at once, of all with the programs. What the
disks were not told to flush is gone, or a part of it (tests/power/disk.py). Nothing that a
client was told may be lost: the settings are those of docs/guides/deploy.md."""

from disk import Machine, NoDisk, power_cut
from services import say

from scenario import OUTCOMES_LATE, POSTGRESQL_AWAY, REDIS_AWAY, Skipped, scenario
from stack import SERVICES

AWAY = {
    "redis": REDIS_AWAY,
    "rabbitmq": OUTCOMES_LATE,
    "postgres": POSTGRESQL_AWAY,
}
ALL_AWAY = {"answers": ("unavailable", "status unavailable"), "unknown": 0.6}
TIMES = 3


def machines_make(rig, names):
    rig.machines = []
    for name in names:
        try:
            machine = Machine(rig.stack, name)
        except NoDisk as why:
            raise Skipped(f"no disk for power cuts: {why}") from why
        rig.on_end(lambda machine=machine: machine_close(rig, machine))
        rig.machines.append(machine)
    rig.wait(lambda: all(part.ready() for part in rig.parts))


def machine_close(rig, machine):
    machine.close()
    rig.stack.start(machine.name)


def cut(rig, chance, machines, also=lambda: None):
    # RabbitMQ does not sync what was declared: the subscriber's binding could be gone.
    rig.stack.rabbitmq_eval("mnesia:sync_log()")
    rig.wait_answers(chance.randint(1, 300))
    if any(machine.name == "rabbitmq" for machine in machines):
        rig.stack.queues_register()
    for line in power_cut(machines, chance, chance.choice((0, chance.randint(1, 50))), also):
        say(line)
    rig.pause(chance, 0.0, 1.0)
    rig.stack.start(*(machine.name for machine in machines))


def power_scenario(name, names, doc, times=1, **allowed):
    def run(rig, chance):
        for _ in range(times):
            cut(rig, chance, rig.machines)
            rig.wait_answers(200)

    run.__name__, run.__doc__ = f"power_{name}", doc
    scenario(prepare=lambda rig, _chance: machines_make(rig, names), **allowed)(run)


for service, allowed in AWAY.items():
    power_scenario(service, (service,), f"The machine of {service} loses power.", **allowed)
    power_scenario(
        f"{service}_again", (service,), f"The same, {TIMES} times in a row.", TIMES, **allowed
    )


@scenario(prepare=lambda rig, _chance: machines_make(rig, SERVICES), **ALL_AWAY)
def power_two(rig, chance):
    """The machines of two stores lose power at once, chosen by the seed; twice."""
    for _ in range(2):
        cut(rig, chance, chance.sample(rig.machines, 2))
        rig.wait_answers(200)


@scenario(prepare=lambda rig, _chance: machines_make(rig, SERVICES), **ALL_AWAY)
def power_all(rig, chance):
    """Everything loses power at once: the three stores, gateways and workers; twice."""

    def programs_kill():
        for part in rig.parts:
            part.kill9()

    for _ in range(2):
        cut(rig, chance, rig.machines, programs_kill)
        for part in rig.parts:
            part.start(**part.settings_own)
        rig.wait_answers(200)
