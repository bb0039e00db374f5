"""An artificial next version's programs beside this tree's, in the order of
docs/guides/upgrade.md."""

import os
import subprocess

import psycopg
from history import DEAD_QUEUE, queue_length
from next_version import next_version_build
from scenario_rabbitmq import queue_unsettled
from services import pg_superuser, say

from scenario import GATEWAY_STARTS, scenario

ROWS = 200_000  # in the tables when they are migrated


def migrate(stack, build_dir):
    """`couponctl migrate` of these programs."""
    done = subprocess.run(
        [str(build_dir / "couponctl"), "migrate"],
        env={**os.environ, **stack.env}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"couponctl migrate: {done.stdout}{done.stderr}"
    return done.stdout


def database_new(rig):
    """A database with this tree's tables, and Redis without coupons. No program may run."""
    with pg_superuser(rig.stack, "postgres") as pg:
        pg.execute("DROP DATABASE couponmq WITH (FORCE)")
        pg.execute("CREATE DATABASE couponmq OWNER couponmq_owner")
    with rig.redis() as cache:
        cache.flushall()
    migrate(rig.stack, rig.present)


def rows_fill(stack, coupon, number):
    """User coupons of a coupon that is not under load: a migration meets tables with data."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, batch, idx, received_at,"
            " valid_from) SELECT user_id, %s, 1, gen_random_uuid(), 0, now(), now()"
            " FROM generate_series(1, %s) AS user_id",
            (coupon, number),
        )
        pg.execute(
            "UPDATE coupon SET total_num = %s, issued_num = %s WHERE id = %s",
            (number, number, coupon),
        )


def present_start(rig, _chance):
    say("building the next version")
    rig.next = next_version_build(rig.stack.run_dir)
    rig.present = rig.stack.build_dir
    rig.on_end(lambda: present_stays(rig))
    rows_fill(rig.stack, rig.stack.coupon_make(1, publish=False), ROWS)


def present_stays(rig):
    """The scenarios that follow have this tree's programs and its schema."""
    rig.stack.build_dir = rig.present
    for part in rig.parts:
        if part.alive():
            part.terminate()
    database_new(rig)


def exchange(rig, parts, build_dir):
    """One after the other, under load, each beside those of the other version."""
    rig.stack.build_dir = build_dir
    for part in parts:
        part.restart()
        rig.wait(part.ready, 30)
        rig.wait_accepted(100)
        rig.wait_answers(200)


@scenario(beside=False, prepare=present_start, **GATEWAY_STARTS)
def upgrade_and_back(rig, chance):
    """Upgraded to the next version under load: migrate, workers, gateways; then back: gateways,
    workers; then forward again."""
    rig.wait_accepted(chance.randint(200, 400))
    say("couponctl migrate: " + " ".join(migrate(rig.stack, rig.next).split()))
    rig.wait_accepted(200)
    rig.wait_answers(300)
    say("workers, then gateways")
    exchange(rig, rig.workers, rig.next)
    exchange(rig, rig.gateways, rig.next)
    say("back: gateways, then workers")
    exchange(rig, rig.gateways, rig.present)
    rig.wait(lambda: queue_unsettled(rig) == 0, 60)  # messages of the next version
    exchange(rig, rig.workers, rig.present)
    say("forward: workers, then gateways")
    exchange(rig, rig.workers, rig.next)
    exchange(rig, rig.gateways, rig.next)


@scenario(beside=False, prepare=present_start, **GATEWAY_STARTS)
def upgrade_gateways_first(rig, _chance):
    """The order of docs/guides/upgrade.md is not kept: workers of this version cannot read the
    packed messages of the next one's gateways. Those are dead-lettered, and requeued when the
    workers are of the next version, too."""
    migrate(rig.stack, rig.next)
    say("gateways")
    exchange(rig, rig.gateways, rig.next)
    for part in rig.workers:
        part.stop()  # so that batches wait for each other
    rig.wait_accepted(200)
    for part in rig.workers:
        part.cont()
    rig.wait_answers(200)
    say("workers")
    exchange(rig, rig.workers, rig.next)
    dead = queue_length(rig.stack, DEAD_QUEUE)
    say(f"{dead} dead letters: " + rig.stack.ctl("dead", "requeue", "--all"))
    rig.wait(lambda: queue_unsettled(rig) == 0, 60)
