"""Two or three faults at once, of different parts, chosen by the seed."""

import contextlib

from faults import FAULTS
from scenario_link import LINKS, link_open
from services import say

from scenario import scenario

OVERLAP_S = (0.2, 1.5)  # from one fault to the next
LASTS_S = (0.5, 3.0)
ALLOWED = {"unknown": 0.6}
# Only the gateway has what Redis loses. Of the two at once only P1, P2 and P8 are promised.
NOT_WITH_FLUSHED = ("gateway", "client_gateway", "gateway_redis")
LINKS_USED = [name for name in LINKS if name != "client_gateway"]


def link_choose(rig, chance):
    """Each run has relays on one link, whether a fault uses them or not."""
    rig.link = chance.choice(LINKS_USED)
    link_open(rig, LINKS[rig.link])


def faults_choose(rig, chance, number):
    targets = chance.sample(sorted({one.target for one in FAULTS.values()}), number)
    chosen = [
        chance.choice([one for one in FAULTS.values() if one.target == target])
        for target in targets
    ]
    if any(one.name == "redis_flushed" for one in chosen) and (
        "gateway" in targets or "link" in targets and rig.link in NOT_WITH_FLUSHED
    ):
        return faults_choose(rig, chance, number)
    return chosen


def compose(rig, chance, number):
    chosen = faults_choose(rig, chance, number)
    say(f"{', '.join(one.name for one in chosen)}; the link is {rig.link}")
    if any(one.target == "link" for one in chosen):
        rig.allow(**LINKS[rig.link].allowed)
    rig.wait_answers(chance.randint(1, 300))
    lasting = []
    with contextlib.ExitStack() as stack:
        for one in chosen:
            lasting.append(contextlib.ExitStack())
            stack.push(lasting[-1])
            lasting[-1].enter_context(one.lasting(rig, chance))
            rig.pause(chance, *OVERLAP_S)
        rig.pause(chance, *LASTS_S)
        for one in chance.sample(lasting, len(lasting)):
            one.close()
            rig.pause(chance, 0.0, OVERLAP_S[0])
    rig.wait_answers(200)


def composed_scenario(number, word, nth):
    def run(rig, chance):
        compose(rig, chance, number)

    run.__name__ = f"composed_{word}_{nth}"
    run.__doc__ = f"{word.capitalize()} faults at once, by the seed: choice {nth}."
    scenario(prepare=link_choose, **ALLOWED)(run)


for _nth in range(1, 5):
    composed_scenario(2, "two", _nth)
    composed_scenario(3, "three", _nth)
