"""A short selection of `make torture`, the same each time: SEED=n chooses another."""

import os
import random

import pytest

from rig import Rig  # first: it finds the others

from scenario import scenarios_load
from stack import PORT_BASE, RUN_DIR, port_base_free

SEED = int(os.environ.get("SEED") or 4)
SCENARIOS = 6


def chosen():
    """Of each file one after the other, of those that kill processes two."""
    chance = random.Random(SEED)
    files = {}
    for one in scenarios_load().values():
        if one.short:
            files.setdefault(one.function.__module__, []).append(one)
    for ones in files.values():
        chance.shuffle(ones)
    found = []
    while len(found) < SCENARIOS and any(files.values()):
        for name, ones in files.items():
            found += [
                ones.pop()
                for _ in range(2 if name in ("scenario_point", "scenario_process") else 1)
                if ones
            ]
    return found[:SCENARIOS]


CHOSEN = chosen()


@pytest.fixture(scope="module")
def rig_make():
    """rig_make(): the rig of the test before; another one after a violation."""
    made = []

    def make():
        if made and made[-1].broken:
            made[-1].down()
        if not made or made[-1].broken:
            made.append(Rig(f"{RUN_DIR}-torture-{len(made) + 1}", port_base_free(PORT_BASE + 500)))
            made[-1].up()
        return made[-1]

    yield make
    for one in made:
        one.down()


@pytest.mark.parametrize("scenario", CHOSEN, ids=lambda one: one.name)
def test_torture(rig_make, scenario):
    print(f"again: make torture SEED={SEED} ONLY={scenario.name}")
    told = rig_make().run(scenario, SEED)
    assert told["issued"] > 0, told
