"""Gateways, workers and the keeper killed, frozen and told to end."""

from scenario import scenario


@scenario(short=True)
def gateway_killed(rig, chance):
    """A gateway killed under load, a few times."""
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(rig.gateways)
        rig.wait_answers(chance.randint(1, 200))
        part.kill9()
        rig.wait_answers(100)
        part.start()


@scenario(short=True)
def worker_killed(rig, chance):
    """A worker killed under load, a few times; it may be the keeper."""
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(rig.workers)
        rig.wait_answers(chance.randint(1, 200))
        part.kill9()
        rig.wait_answers(100)
        part.start()
