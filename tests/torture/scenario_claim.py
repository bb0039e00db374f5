"""Users claim exchange codes while other things fail: tests/torture/claimers.py judges."""

from faults import FAULTS
from claimers import Claimers, Revokers
from services import say

from scenario import scenario

FAULTS_MET = (
    "gateway_killed",
    "redis_killed",
    "redis_flushed",
    "rabbitmq_killed",
    "postgresql_killed",
    "workers_killed",
    "keeper_frozen",
)


def claim_with(fault):
    def run(rig, chance):
        claimers = Claimers(rig, chance)
        rig.on_stop(claimers.stop)
        rig.on_judge(lambda: say(f"claimed: {claimers.judge()}"))
        rig.wait_answers(chance.randint(200, 500))
        with FAULTS[fault].lasting(rig, chance):
            rig.pause(chance, 0.2, 1.0)
        rig.wait_answers(300)

    run.__name__ = f"claim_{fault}"
    run.__doc__ = f"Users claim codes, few and again and again, and meanwhile: {fault}."
    return run


for _name in FAULTS_MET:
    scenario()(claim_with(_name))


# Codes that are revoked meanwhile


def revoke_with(name, act):
    def run(rig, chance):
        revokers = Revokers(rig, chance)
        rig.on_stop(revokers.stop)
        rig.on_judge(lambda: say(f"claimed: {revokers.judge()}"))
        rig.wait_answers(chance.randint(100, 300))
        act(rig, chance, revokers)
        rig.wait_answers(300)

    run.__name__ = f"revoke_{name}"
    run.__doc__ = f"Codes are revoked while users claim them, and meanwhile: {name}."
    return run


def fault_act(fault):
    def act(rig, chance, _revokers):
        with FAULTS[fault].lasting(rig, chance):
            rig.pause(chance, 0.2, 1.0)

    return act


def rebuilds_act(rig, chance, revokers):
    for _ in range(chance.randint(3, 6)):
        with rig.redis() as cache:
            cache.hset(f"coupon:{{{revokers.coupon}}}", "rebuild", 1)
        rig.pause(chance, 0.1, 0.5)


for _name in ("redis_flushed", "redis_killed", "workers_killed", "keeper_frozen"):
    scenario()(revoke_with(_name, fault_act(_name)))
scenario()(revoke_with("rebuilds", rebuilds_act))
