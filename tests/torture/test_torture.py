"""A short selection of `make torture`: one scenario of each kind of part, chosen by seed. SEED=n
repeats it."""

import random

import pytest

from rig import Rig  # first on the path, to import the others

from campaign import WINDOW_SHORT
from scenario import scenarios_load
from seed import SEED
from stack import PORT_BASE, RUN_DIR, port_base_free

KINDS = ("process", "redis", "rabbitmq", "postgresql", "link", "client")
# in scenario_KIND.py
OTHERS = ("point", "delivery", "composed")
STORES = ("broker_lost", "postgresql_lost")
# Of them five are chosen: a store that is lost, one of OTHERS, and three of KINDS.


def chosen():
    chance = random.Random(SEED)
    found = []
    for kind in (*chance.sample(KINDS, 3), chance.choice(OTHERS), chance.choice(STORES)):
        module = f"scenario_{kind}"
        short = [
            one
            for one in scenarios_load().values()
            if one.short and one.function.__module__ == module
        ]
        assert short, f"no scenario of {module} is short"
        found.append(chance.choice(short))
    return found


CHOSEN = chosen()


@pytest.fixture(scope="module")
def rig_make():
    """rig_make(): the rig of the test before; another one after a violation."""
    made = []

    def make():
        if made and made[-1].broken:
            made[-1].down()
        if not made or made[-1].broken:
            folder = f"{RUN_DIR}-torture-{len(made) + 1}"
            made.append(Rig(folder, port_base_free(PORT_BASE + 100), WINDOW_SHORT, has_rates=False))
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
