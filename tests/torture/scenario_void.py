"""Issued receives are voided under load, under both terms, while other things fail. The judge knows
every void: tests/voids.py."""

import collections
import shutil

from faults import FAULTS
from operate import AT_MOST_S, receive_choose, terms_change, voids
from scenario_postgresql_lost import base_backup, put_back
from services import say

from scenario import POSTGRESQL_BACK, scenario

FAULTS_MET = (
    "redis_killed",
    "redis_flushed",
    "postgresql_killed",
    "postgresql_commits_wait",
    "keeper_frozen",
    "workers_killed",
)
VOIDS = 10  # before, during and after the fault, each
KILLED = 5  # at a fault point


def void_killed_at(rig, chance, point):
    """Commands die at it, under both terms; the keeper does the rest."""
    killed, tries = 0, 0
    rig.wait_answers(chance.randint(200, 600))
    while killed < KILLED:
        campaign = chance.choice(rig.load.campaigns)
        terms_change(rig, campaign, chance.choice(("yes", "no")))
        receive = receive_choose(chance, campaign)
        if receive:
            voiding = campaign.void(receive, AT_MOST_S, fault=f"{point}:1:kill")
            killed += voiding.result is None
        tries += 1
        assert tries < 20 * KILLED, f"{results(rig)}: so few come to {point}"


def results(rig):
    return dict(
        collections.Counter(
            str(voiding.result) for campaign in rig.load.campaigns for voiding in campaign.voidings
        )
    )


def voids_with(fault):
    def run(rig, chance):
        rig.wait_answers(chance.randint(200, 600))
        voids(rig, chance, VOIDS)
        with FAULTS[fault].lasting(rig, chance):
            voids(rig, chance, VOIDS)
        voids(rig, chance, VOIDS)
        say(f"voids: {results(rig)}")
        rig.wait_answers(200)

    run.__name__ = f"voids_{fault}"
    run.__doc__ = (
        f"Issued receives are voided, by commands that are killed, and meanwhile: {fault}."
    )
    return run


for _name in FAULTS_MET:
    scenario()(voids_with(_name))


@scenario(**POSTGRESQL_BACK)
def voids_put_back(rig, chance):
    """Issued receives are voided, then PostgreSQL is replaced by a base backup of before."""
    rig.wait_answers(chance.randint(200, 600))
    voids(rig, chance, VOIDS, killed=0)
    data, backup = base_backup(rig)
    rig.on_end(lambda: shutil.rmtree(backup, ignore_errors=True))
    rig.wait_answers(chance.randint(100, 300))
    voids(rig, chance, 2 * VOIDS, killed=0)
    rig.wait_answers(chance.randint(1, 200))
    put_back(rig, data, backup)
    rig.pause(chance, 0, 2)
    say(rig.stack.ctl("recover", "--all").splitlines()[-1])
    voids(rig, chance, VOIDS)
    say(f"voids: {results(rig)}")
    rig.wait_answers(200)
