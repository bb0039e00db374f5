"""Gateways, workers and the keeper killed, frozen and terminated at any moment; several processes
of a gateway."""

import os
import signal

from scenario import GATEWAY_STARTS, OUTCOMES_LATE, scenario
from scenario_point import points_of
from stack import process_tree

FROZEN_S = (2.6, 4.0)  # longer than every lease and time-out of rig.SETTINGS but the heartbeat
LONG_S = (10.0, 13.0)  # longer than two heartbeats


# At any moment


def kill_again_and_again(rig, chance, parts):
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(parts)
        rig.wait_answers(chance.randint(1, 300))
        part.kill9()
        rig.wait_answers(chance.randint(1, 100))
        part.start()


@scenario(**GATEWAY_STARTS)
def gateway_killed(rig, chance):
    """A gateway killed under load, a few times."""
    kill_again_and_again(rig, chance, rig.gateways)


@scenario(**GATEWAY_STARTS)
def gateway_killed_unconfirmed(rig, chance):
    """Every gateway killed with messages in its memory that RabbitMQ, frozen, has not confirmed:
    Redis still holds them."""
    rig.stack.sigstop("rabbitmq")
    rig.wait_accepted(chance.randint(20, 150))
    for part in rig.gateways:
        part.kill9()
    rig.stack.sigcont("rabbitmq")
    for part in rig.gateways:
        part.start()


@scenario(**OUTCOMES_LATE)
def worker_killed(rig, chance):
    """A worker killed under load, a few times; it may be the keeper."""
    kill_again_and_again(rig, chance, rig.workers)


@scenario(**GATEWAY_STARTS)
def all_killed(rig, chance):
    """Every gateway and worker killed at the same time, in any order."""
    rig.wait_answers(chance.randint(1, 300))
    for part in chance.sample(rig.parts, len(rig.parts)):
        part.kill9()


@scenario(**GATEWAY_STARTS)
def told_to_end(rig, chance):
    """SIGTERM to any of them, a few times; it exits with 0 and is restarted."""
    for _ in range(chance.randint(2, 4)):
        part = chance.choice(rig.parts)
        rig.wait_answers(chance.randint(1, 200))
        part.restart()


@scenario(**GATEWAY_STARTS)
def rolling_restart(rig, _chance):
    """Workers, then gateways, one after the other."""
    for part in [*rig.workers, *rig.gateways]:
        part.restart()
        rig.wait(part.ready)
        rig.wait_answers(50)


@scenario(**GATEWAY_STARTS)
def killed_while_it_ends(rig, chance):
    """SIGTERM, and a moment later SIGKILL."""
    for part in chance.sample(rig.parts, 2):
        part.tell_to_end()
        rig.pause(chance, 0.0, 0.05)
        part.kill9()
        part.start()
        rig.wait_answers(50)


# Frozen


def frozen(rig, chance, part, seconds):
    rig.wait_answers(chance.randint(1, 200))
    part.stop()
    rig.pause(chance, *seconds)
    part.cont()


@scenario(**GATEWAY_STARTS)
def gateway_frozen(rig, chance):
    """A gateway frozen beyond the time-outs of calls and outcomes and the keeper's wait: the keeper
    sends its messages."""
    frozen(rig, chance, chance.choice(rig.gateways), FROZEN_S)


@scenario(**GATEWAY_STARTS)
def gateway_frozen_long(rig, chance):
    """… and beyond RabbitMQ's heartbeats."""
    frozen(rig, chance, chance.choice(rig.gateways), LONG_S)


@scenario(**OUTCOMES_LATE)
def worker_frozen(rig, chance):
    """A worker that is not the keeper is frozen; its deliveries wait, or go to the other."""
    frozen(rig, chance, next(part for part in rig.workers if part is not rig.keeper()), FROZEN_S)


@scenario(**OUTCOMES_LATE)
def worker_frozen_long(rig, chance):
    """… until RabbitMQ gives its deliveries to the other; then it acks what it no longer owns."""
    frozen(rig, chance, next(part for part in rig.workers if part is not rig.keeper()), LONG_S)


def keeper_frozen_for(rig, chance, seconds):
    keeper = rig.keeper()
    keeper.stop()
    rig.wait(lambda: rig.keeper() is not keeper)
    coupon = rig.stack.coupon_make(10)
    rig.wait(lambda: rig.redis_get(coupon, "fence"))
    rig.pause(chance, *seconds)
    keeper.cont()
    ends = ("keeper_lost", "keeper_redis", "keeper_fenced")
    rig.wait(lambda: any(f"event={end}" in keeper.log() for end in ends))


@scenario(**OUTCOMES_LATE)
def keeper_frozen(rig, chance):
    """The keeper frozen beyond its lease: another takes over, and the first writes nothing when it
    continues."""
    keeper_frozen_for(rig, chance, (0.2, 2.0))


@scenario(**OUTCOMES_LATE)
def keeper_frozen_long(rig, chance):
    """… and beyond RabbitMQ's heartbeats."""
    keeper_frozen_for(rig, chance, LONG_S)


@scenario(**GATEWAY_STARTS)
def all_frozen(rig, chance):
    """Every gateway and worker frozen at the same time; they continue in any order."""
    rig.wait_answers(chance.randint(1, 200))
    for part in rig.parts:
        part.stop()
    rig.pause(chance, *FROZEN_S)
    for part in chance.sample(rig.parts, len(rig.parts)):
        part.cont()


def freeze_at(rig, chance, parts, points):
    """Frozen exactly at a point, twice."""
    for _ in range(2):
        part = chance.choice(parts)
        part.restart(fault=f"{chance.choice(points)}:{chance.randint(1, 60)}:stop")
        part.wait_fault()
        rig.pause(chance, *FROZEN_S)
        part.cont()
        rig.wait_answers(50)
        part.restart()


@scenario(**GATEWAY_STARTS)
def gateway_frozen_at_a_point(rig, chance):
    """A gateway frozen at a fault point: after a reply, between publish and confirm, …"""
    freeze_at(
        rig,
        chance,
        rig.gateways,
        [point for point in points_of("gateway_") if point != "gateway_mid_reply"],
    )


@scenario(**OUTCOMES_LATE)
def worker_frozen_at_a_point(rig, chance):
    """A worker frozen at a fault point, for instance between COMMIT and ack: its deliveries are
    settled by the other meanwhile."""
    points = [point for point in points_of("worker_") if not point.endswith(("_park", "_rescue"))]
    freeze_at(rig, chance, rig.workers, points)


@scenario(**GATEWAY_STARTS)
def slow_at_all_points(rig, chance):
    """A gateway and a worker that sleep 100 ms at each point: others overtake them everywhere."""
    for part in (chance.choice(rig.gateways), chance.choice(rig.workers)):
        points = points_of(f"{part.kind}_after")
        part.restart(fault=",".join(f"{point}:{chance.randint(1, 20)}:sleep" for point in points))
    rig.wait_answers(800)


# Several processes


@scenario(settings={"COUPON_PROCESSES": 2}, gateways=1, **GATEWAY_STARTS)
def processes_killed(rig, chance):
    """One of two processes of a gateway is killed or frozen, and the parent restarts it."""
    for _ in range(3):
        part = rig.gateways[0]
        children = process_tree(part.pid)[1:]
        assert len(children) == 2
        part.disturb()
        victim, died = chance.choice(children), part.log().count("event=process_died")
        rig.wait_answers(chance.randint(1, 200))
        if chance.random() < 0.4:
            os.kill(victim, signal.SIGSTOP)
            rig.pause(chance, *FROZEN_S)
            os.kill(victim, signal.SIGCONT)
        else:
            os.kill(victim, signal.SIGKILL)
            rig.wait(lambda part=part, died=died: part.log().count("event=process_died") > died)
        rig.wait(lambda part=part: len(process_tree(part.pid)) == 3)
        part.calm()


@scenario(settings={"COUPON_PROCESSES": 2}, **GATEWAY_STARTS)
def processes_killed_at_points(rig, chance):
    """Both processes of a gateway die at a fault point repeatedly, after every start."""
    part = rig.gateways[0]
    point = chance.choice(points_of("gateway_"))
    part.restart(fault=f"{point}:{chance.randint(40, 80)}:kill")
    rig.wait(lambda: part.log().count("event=process_died") >= 3, 40)
    part.death_expected = False
