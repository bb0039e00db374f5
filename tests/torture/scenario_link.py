"""Each link between two parts with each kind of fault, through relay.py: link_LINK_WAY."""

import contextlib

from relay import Relay, port_of
from services import say

from scenario import OUTCOMES_LATE, POSTGRESQL_AWAY, REDIS_AWAY, scenario

RST_TIMES = 4
NOTICED_S = 25.0  # beyond two heartbeats


class Link:
    """From the parts of one kind to the service of that setting, or from clients: one relay for
    each part."""

    def __init__(self, parts, setting, allowed):
        self.parts, self.setting, self.allowed = parts, setting, allowed


LINKS = {
    "client_gateway": Link("gateways", None, {"unknown": 0.1}),
    "gateway_redis": Link("gateways", "REDIS_URL", REDIS_AWAY),
    "gateway_rabbitmq": Link("gateways", "AMQP_URL", OUTCOMES_LATE),
    "gateway_postgresql": Link("gateways", "DATABASE_URL", POSTGRESQL_AWAY),
    "worker_rabbitmq": Link("workers", "AMQP_URL", OUTCOMES_LATE),
    "worker_postgresql": Link("workers", "DATABASE_URL", OUTCOMES_LATE),
    "worker_redis": Link("workers", "REDIS_URL", {}),
}


def relay_make(rig, target, number):
    relay = Relay(port_of(target), rig.seed + number)
    rig.on_end(relay.close)
    return relay


def link_open(rig, link):
    """Puts the relays in between."""
    rig.relays = []
    for number, part in enumerate(getattr(rig, link.parts)):
        if link.setting:
            target = rig.stack.env_of(link.parts.removesuffix("s"))[link.setting]
            relay = relay_make(rig, target, number)
            part.restart(**{link.setting: relay.url(target)})
        else:
            relay = relay_make(rig, part.listen, number)
            part.via = f"127.0.0.1:{relay.port}"
            rig.on_end(lambda part=part: setattr(part, "via", None))
        rig.relays.append(relay)
    rig.wait(lambda: all(part.ready() for part in rig.parts))


def heal_all(rig):
    for relay in rig.relays:
        relay.heal()


# Ways: way(rig, chance, relays, link) injects the fault and ends it.


def black_hole(rig, chance, relays, _link):
    """everything is discarded, nothing is closed, for some seconds"""
    for relay in relays:
        relay.mode("lose")
    rig.pause(chance, 0.5, 5.0)


def one_way_hole(rig, chance, relays, _link):
    """what one side sends is discarded, and the other is heard, for some seconds"""
    way = chance.choice(("up", "down"))
    say(f"the way {way}")
    for relay in relays:
        relay.mode("lose", way)
    rig.pause(chance, 0.5, 5.0)


def late(rig, chance, relays, _link):
    """nothing passes for some seconds, then all of it arrives, late"""
    for relay in relays:
        relay.mode("hold")
    rig.pause(chance, 0.5, 5.0)


def one_way_late(rig, chance, relays, _link):
    """what one side sends takes two to four seconds, and the other is heard at once"""
    way = chance.choice(("up", "down"))
    say(f"the way {way}")
    for relay in relays:
        relay.mode("delay", way, ms=2000, jitter_ms=2000)
    rig.pause(chance, 3.0, 6.0)


def reset(rig, chance, relays, _link):
    """a connection is reset in the middle of a message, again and again"""
    for _ in range(RST_TIMES):
        way = chance.choice(("up", "down"))
        for relay in relays:
            before = relay.cut_num()
            relay.reset_in_piece(way)
            rig.wait(lambda: relay.cut_num() > before)  # noqa: B023
        rig.pause(chance, 0.0, 0.5)


def slow(rig, chance, relays, _link):
    """each piece takes 200 to 300 ms"""
    for relay in relays:
        relay.mode("delay", ms=200, jitter_ms=100)
    rig.pause(chance, 3.0, 5.0)


def trickle(rig, chance, relays, _link):
    """one byte a second, in one direction or in both"""
    ways = chance.choice((("up",), ("down",), ("up", "down")))
    for relay in relays:
        relay.mode("trickle", *ways, ms=1000)
    rig.pause(chance, 2.0, 5.0)


def reads_ask(rig):
    """A session that has nothing to do notices nothing: all get something to read at once."""
    for part in rig.gateways:
        with contextlib.suppress(OSError, AssertionError), part.process.client(10) as client:
            client.pipeline([{"op": "coupons", "user": f"reader-{n}"} for n in range(16)])


def half_open(rig, chance, relays, link):
    """one side's connections are gone and the other side is not notified: a time-out detects it"""
    deaf = chance.choice(("client", "server"))
    say(f"the {deaf} is deaf")
    for relay in relays:
        relay.half_open(deaf)
    if deaf == "client" or link.setting == "AMQP_URL":
        rig.wait(lambda: reads_ask(rig) or not any(relay.deaf_num() for relay in relays), NOTICED_S)
    rig.pause(chance, 0.5, 2.0)


WAYS = (black_hole, one_way_hole, late, one_way_late, reset, slow, trickle, half_open)


def link_scenario(name, link, way):
    def run(rig, chance):
        rig.on_heal(lambda: heal_all(rig))
        rig.wait_answers(chance.randint(1, 300))
        if not link.setting:
            for part in rig.gateways:
                part.disturb()  # its clients may get no answer
        relays = chance.sample(rig.relays, chance.randint(1, len(rig.relays)))
        say(f"{name}, {len(relays)} of {len(rig.relays)}: {way.__doc__}")
        way(rig, chance, relays, link)
        heal_all(rig)
        rig.wait_answers(200)

    run.__name__ = f"link_{name}_{way.__name__}"
    run.__doc__ = f"{name.replace('_', '–')}: {way.__doc__}."
    scenario(prepare=lambda rig, _chance: link_open(rig, link), **link.allowed)(run)


for link_name, one in LINKS.items():
    for each in WAYS:
        link_scenario(link_name, one, each)
