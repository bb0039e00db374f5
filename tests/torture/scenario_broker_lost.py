"""RabbitMQ loses messages that it has confirmed, twice: the keeper publishes them again from the
outboxes."""

import shutil

from history import QUEUE
from scenario_rabbitmq import POLICY, channel_open, queue_state
from services import say

from scenario import OUTCOMES_LATE, scenario


def lost_twice(rig, chance, lose):
    """The second time, copies of the first loss may be among the messages."""
    for _ in range(2):
        rig.wait_answers(chance.randint(1, 300))
        for part in rig.workers:
            part.kill9()  # so that there are messages in it that no consumer has read
        messages = chance.randint(2, 40)
        rig.wait(lambda: queue_state(rig)[0] >= messages)  # noqa: B023
        say(f"{lose.__name__}, with {queue_state(rig)[0]} messages")
        lose(rig)
        for part in rig.workers:
            part.start()
        if chance.random() < 0.5:
            rig.wait(lambda: any("event=outbox_resent" in part.log() for part in rig.workers))
        else:
            rig.wait_answers(200)


def purged(rig):
    with channel_open(rig) as channel:
        channel.queue_purge(QUEUE)


def deleted(rig):
    with channel_open(rig) as channel:
        channel.queue_delete(QUEUE)


def wiped(rig):
    rig.stack.kill9("rabbitmq")
    shutil.rmtree(rig.stack.run_dir / "rabbitmq" / "mnesia")
    rig.stack.start("rabbitmq")


def limited(rig):
    arguments = '{"max-length":1,"overflow":"drop-head"}'
    rig.on_heal(lambda: rig.stack.policy_clear(POLICY))
    rig.stack.policy_set(POLICY, f"^{QUEUE}$", arguments)
    rig.wait_accepted(20)
    rig.wait(lambda: queue_state(rig)[0] <= 1)
    rig.stack.policy_clear(POLICY)


@scenario(**OUTCOMES_LATE)
def broker_lost_purged(rig, chance):
    """The queue purged with confirmed messages in it, twice."""
    lost_twice(rig, chance, purged)


@scenario(**OUTCOMES_LATE)
def broker_lost_deleted(rig, chance):
    """The queue deleted with confirmed messages in it, twice."""
    lost_twice(rig, chance, deleted)


@scenario(events="lost", **OUTCOMES_LATE)
def broker_lost_wiped(rig, chance):
    """RabbitMQ killed, and started without its data, twice."""
    lost_twice(rig, chance, wiped)


@scenario(**OUTCOMES_LATE)
def broker_lost_limit(rig, chance):
    """A policy limits the queue to one message and drops the others, twice."""
    lost_twice(rig, chance, limited)
