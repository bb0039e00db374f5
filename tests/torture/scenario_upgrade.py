"""An older commit's programs beside this tree's, in the order of docs/operations.md. Older programs
take only numbers as users."""

from history import DEAD_QUEUE, queue_length
from older import database_empty, migrate, older_build, rows_fill
from scenario_rabbitmq import queue_unsettled
from services import say

from scenario import GATEWAY_STARTS, scenario

ROWS = 200_000  # in the tables when they are migrated


def older_start(rig, _chance):
    """Everything on the older schema, with the older programs."""
    rig.older = older_build(rig.stack.run_dir)
    rig.newer = rig.stack.build_dir
    for part in rig.parts:
        part.terminate()
    rig.on_end(lambda: newer_stay(rig))
    database_empty(rig.stack)
    with rig.redis() as cache:
        cache.flushall()
    rig.stack.build_dir, rig.stack.own_logins = rig.older, False
    migrate(rig.stack, rig.older)
    rows_fill(rig.stack, rig.stack.coupon_make(1, publish=False), ROWS)
    for part in rig.parts:
        part.start()
    rig.wait(lambda: all(part.ready() for part in rig.parts), 30)


def newer_stay(rig):
    """The scenarios that follow have this tree's programs and its schema."""
    if rig.stack.build_dir == rig.older:
        rig.stack.build_dir = rig.newer
        for part in rig.parts:
            if part.alive():
                part.terminate()
    migrate(rig.stack, rig.newer)
    rig.stack.own_logins = True


def exchange(rig, parts, build_dir):
    """One after the other, under load, each beside those of the other version."""
    rig.stack.build_dir = build_dir
    for part in parts:
        part.restart()
        rig.wait(part.ready, 30)
        rig.wait_accepted(100)
        rig.wait_answers(200)


@scenario(beside=False, prepare=older_start, around=False, user_numbers=True, **GATEWAY_STARTS)
def upgrade_and_back(rig, chance):
    """An older version migrated and upgraded under load: migrate, workers, gateways; then back:
    gateways, workers; then forward again."""
    rig.wait_accepted(chance.randint(200, 400))
    say("couponctl migrate: " + " ".join(migrate(rig.stack, rig.newer).split()))
    rig.wait_accepted(200)
    rig.wait_answers(300)
    say("workers, then gateways")
    exchange(rig, rig.workers, rig.newer)
    exchange(rig, rig.gateways, rig.newer)
    say("back: gateways, then workers")
    exchange(rig, rig.gateways, rig.older)
    rig.wait(lambda: queue_unsettled(rig) == 0, 60)  # messages of a new version, if there is one
    exchange(rig, rig.workers, rig.older)
    say("forward: workers, then gateways")
    exchange(rig, rig.workers, rig.newer)
    exchange(rig, rig.gateways, rig.newer)


@scenario(beside=False, prepare=older_start, around=False, user_numbers=True, **GATEWAY_STARTS)
def upgrade_gateways_first(rig, _chance):
    """The order of docs/operations.md is not kept: older workers cannot read all messages of the
    newer gateways. Those are dead-lettered, and requeued when the workers are newer, too."""
    migrate(rig.stack, rig.newer)
    say("gateways")
    exchange(rig, rig.gateways, rig.newer)
    for part in rig.workers:
        part.stop()  # so that batches wait for each other
    rig.wait_accepted(200)
    for part in rig.workers:
        part.cont()
    rig.wait_answers(200)
    say("workers")
    exchange(rig, rig.workers, rig.newer)
    dead = queue_length(rig.stack, DEAD_QUEUE)
    say(f"{dead} dead letters: " + rig.stack.ctl("dead", "requeue", "--all"))
    rig.wait(lambda: queue_unsettled(rig) == 0, 60)
