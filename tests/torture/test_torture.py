"""Some scenarios of `make torture`: those of tests/selection.py."""

import pytest

from rig import Rig  # first on the path, to import the others

from campaign import WINDOW_SHORT
from scenario import Skipped, scenarios_load
from seed import SEED
from selection import scenarios_selected
from stack import PORT_BASE, RUN_DIR, port_base_free


def selected():
    kinds = {}
    for one in scenarios_load().values():
        if one.beside:
            kinds.setdefault(one.function.__module__, []).append(one.name)
    return scenarios_selected(kinds)


SELECTED = selected()


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


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in SELECTED else pytest.mark.unchosen)
        for one in scenarios_load().values()
    ],
)
def test_torture(rig_make, scenario):
    print(f"again: make torture SEED={SEED} ONLY={scenario.name}")
    try:
        told = rig_make().run(scenario, SEED)
    except Skipped as why:
        pytest.skip(str(why))
    assert told["issued"] > 0, told
