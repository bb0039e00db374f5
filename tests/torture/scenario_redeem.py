"""Users redeem exchange codes while other things fail: tests/torture/redeemers.py judges."""

from faults import FAULTS
from redeemers import Redeemers
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


def redeem_with(fault):
    def run(rig, chance):
        redeemers = Redeemers(rig, chance)
        rig.on_stop(redeemers.stop)
        rig.on_judge(lambda: say(f"redeemed: {redeemers.judge()}"))
        rig.wait_answers(chance.randint(200, 500))
        with FAULTS[fault].lasting(rig, chance):
            rig.pause(chance, 0.2, 1.0)
        rig.wait_answers(300)

    run.__name__ = f"redeem_{fault}"
    run.__doc__ = f"Users redeem codes, few and again and again, and meanwhile: {fault}."
    return run


for _name in FAULTS_MET:
    scenario(short=_name == "redis_killed")(redeem_with(_name))
