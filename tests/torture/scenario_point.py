"""Gateways, workers and the keeper killed at each fault point of common/fault_table.h."""

import datetime
import itertools
import os
import re
import shutil
import subprocess

import pika

from events import Subscriber, in_order
from guests import KEYS, Guests, keys_agree
from history import DEAD_QUEUE, PARKED_QUEUE, QUEUE, queue_length
from claimers import Revokers
from rig import TELL_WITHIN_S
from scenario import (
    GATEWAY_STARTS,
    OUTCOMES_LATE,
    POSTGRESQL_BACK,
    REDIS_AWAY,
    REDIS_LOSES,
    scenario,
)
from scenario_void import void_killed_at
from services import say
from stack import ROOT
from ulid import ulid_make, ulid_of, ulid_uuid
from user_ids import user_of
from uses import CHANGES, USES

POINTS = re.findall(
    r'^FAULT\(\w+, "(\w+)"\)$', (ROOT / "common/fault_table.h").read_text(), re.MULTILINE
)
RESCUED_FROM = 8
UNREADABLE = 3  # entries of an outbox
RECOVER_OFTEN = ("recover_terms", "recover_rejected", "recover_settled", "recover_opened")
QUEUES = (QUEUE, PARKED_QUEUE, DEAD_QUEUE)


def points_of(prefix):
    return [point for point in POINTS if point.startswith(prefix)]


def kill_at(rig, chance, parts, point):
    """At the n-th time, several times; each start counts from the beginning."""
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(parts)
        if part.alive():
            part.terminate()
        part.start(fault=f"{point}:{chance.randint(1, 40)}:kill")
        part.wait_fault()
    part.start()


def worker_parks(rig, chance, point):
    """An operator's open transaction holds a coupon: a worker parks its messages, and dies at
    it."""
    part = chance.choice(rig.workers)
    part.terminate()
    part.start(fault=f"{point}:{chance.randint(1, 20)}:kill")
    with rig.pg() as pg, pg.transaction():
        pg.execute(
            "SELECT FROM coupon WHERE id = %s FOR UPDATE",
            (chance.choice(rig.load.campaigns[:2]).coupon,),
        )
        part.wait_fault()
    part.start()


def worker_rescues(rig, chance, point):
    """Messages have been delivered often: a worker publishes them anew, and dies at it. Meanwhile
    nothing is published, so that each time the same messages are at the head of the queue."""
    for part in rig.workers:
        part.terminate()
    rig.wait(lambda: queue_length(rig.stack, QUEUE) >= 20)
    for part in rig.gateways:
        part.terminate()
    length = queue_length(rig.stack, QUEUE)
    with pika.BlockingConnection(pika.URLParameters(rig.stack.env["AMQP_URL"])) as connection:
        for _ in range(RESCUED_FROM):
            channel = connection.channel()
            for _ in range(20):
                channel.basic_get(QUEUE)
            channel.close()  # they return
            rig.wait(lambda: queue_length(rig.stack, QUEUE) == length)
    for part in rig.gateways:
        part.start()
    part = chance.choice(rig.workers)
    part.start(fault=f"{point}:{chance.randint(1, 10)}:kill")
    part.wait_fault()
    for part in rig.workers:
        part.start()


def queues_replace(rig):
    """Queues with an argument that is not ours, as after an upgrade of the broker."""
    for part in rig.gateways:
        part.terminate()
    rig.wait(lambda: rig.outbox_length() == 0)
    rig.wait(lambda: all(queue_length(rig.stack, queue) == 0 for queue in QUEUES))
    for part in rig.workers:
        part.terminate()
    with pika.BlockingConnection(pika.URLParameters(rig.stack.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            assert channel.queue_declare(queue, passive=True).method.message_count == 0
            channel.queue_delete(queue)
            channel.queue_declare(
                queue,
                durable=True,
                arguments={"x-queue-type": "quorum", "x-max-length": 10_000_000},
            )
    for part in (*rig.workers, *rig.gateways):
        part.start()


def move_killed(rig, chance, point):
    """couponctl queue move is killed, at any of its three queues; the next run finishes it."""
    queues_replace(rig)
    rig.wait_accepted(100)
    at = chance.randint(1, 2)
    killed = subprocess.run(
        [str(rig.stack.build_dir / "couponctl"), "queue", "move"],
        env={**os.environ, **rig.stack.env_of("operator"), "COUPON_FAULT": f"{point}:{at}:kill"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert killed.returncode in (-9, 0), killed
    rig.wait_accepted(chance.randint(1, 200))
    told = rig.stack.ctl_run("queue", "move")
    assert told.returncode == 0, told
    listed = rig.stack.queues_told()
    assert "max-length" not in listed and ".moving" not in listed, listed


def recover_killed(rig, chance, point):
    """PostgreSQL is put back to an earlier moment; couponctl recover is killed, and run again."""
    data = (rig.stack.run_dir / "postgres").resolve() / "data"
    backup = data.with_name("backup")
    rig.on_end(lambda: shutil.rmtree(backup, ignore_errors=True))
    rig.stack.stop("postgres")
    subprocess.run(["cp", "-a", data, backup], check=True)
    rig.stack.start("postgres")
    rig.wait_answers(chance.randint(200, 1000))
    rig.stack.stop("postgres")
    shutil.rmtree(data)
    backup.rename(data)
    rig.stack.start("postgres")
    at = chance.randint(1, 3) if point in RECOVER_OFTEN else 1
    for number in range(2):
        killed = subprocess.run(
            [str(rig.stack.build_dir / "couponctl"), "recover", "--all"],
            env={
                **os.environ,
                **rig.stack.env_of("operator"),
                "COUPON_FAULT": f"{point}:{at}:kill",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        # Receives are settled once: a run that comes so far may have none left.
        assert killed.returncode == -9 or number > 0, killed
    told = rig.stack.ctl_run("recover", "--all")
    assert told.returncode == 0 and "rejected: receive" not in told.stdout, told
    rig.wait_answers(200)


def keeper_only(rig, fault):
    """One worker with the fault, which is elected because there is no other."""
    for part in rig.workers:
        part.terminate()
    return rig.workers[0].start(fault=fault)


def killed_keeper_is_replaced(rig, part):
    part.wait_fault()
    rig.workers[1].start()
    rig.keeper()


def keeper_after_election(rig, chance):
    for _ in range(chance.randint(1, 3)):
        part = keeper_only(rig, "keeper_after_election:1:kill")
        part.wait_fault()
        rig.workers[1].start()
        rig.keeper()
        part.start()


def coupon_is_open(rig, coupon):
    with rig.gateways[0].process.client() as client:
        rig.wait(lambda: client.call("coupon", coupon=coupon)["code"] == 0)


def keeper_verify(rig, chance, point):
    part = keeper_only(rig, f"{point}:{chance.randint(1, 3)}:kill")
    rig.keeper()
    rig.stack.kill9("redis")
    rig.stack.start("redis")
    killed_keeper_is_replaced(rig, part)


def keeper_before_terms(rig, _chance):
    coupon = rig.stack.coupon_make(10)
    coupon_is_open(rig, coupon)
    part = keeper_only(rig, "keeper_before_terms:1:kill")
    # As couponctl does, which is killed before it tells Redis.
    with rig.pg() as pg:
        pg.execute(
            "UPDATE coupon SET total_num = 20, version = version + 1 WHERE id = %s", (coupon,)
        )
    killed_keeper_is_replaced(rig, part)
    rig.wait(lambda: rig.redis_get(coupon, "total") == "20")


def keeper_before_close(rig, chance):
    part = keeper_only(rig, "keeper_before_close:1:kill")
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(
        seconds=chance.uniform(0.5, 1.5)
    )
    coupon = rig.stack.coupon_make(
        10, end=end.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    killed_keeper_is_replaced(rig, part)

    def closed():
        with rig.pg() as pg:
            return pg.execute("SELECT status FROM coupon WHERE id = %s", (coupon,)).fetchone() == (
                "closed",
            )

    rig.wait(closed)


def keeper_settles(rig, point):
    """A closed campaign is settled, its keys get their expiry, and that is recorded, at whichever
    of these points the keeper dies."""
    coupon = rig.stack.coupon_make(10)
    coupon_is_open(rig, coupon)
    with rig.gateways[0].process.client() as client:
        assert client.issue(coupon, 1)["code"] == 0
    part = keeper_only(rig, f"{point}:1:kill")
    rig.stack.ctl("close", coupon)
    killed_keeper_is_replaced(rig, part)

    def settled():
        with rig.pg() as pg:
            marks = (
                "SELECT settled_at IS NOT NULL, expires_at IS NOT NULL FROM coupon WHERE id = %s"
            )
            return pg.execute(marks, (coupon,)).fetchone() == (True, True)

    rig.wait(settled)
    with rig.redis() as cache:
        assert all(cache.pttl(key) > 0 for key in cache.keys(f"coupon:{{{coupon}}}*"))


def keeper_before_remove(rig, chance):
    """The outbox has entries that cannot be read: the keeper publishes them, so that they become
    dead letters, and dies before it removes one."""
    part = keeper_only(rig, f"keeper_before_remove:{chance.randint(1, UNREADABLE)}:kill")
    rig.keeper()
    rig.expect_dead(UNREADABLE * 3)  # some are published twice, or again while a confirm is late
    outbox = f"coupon:{{{rig.load.campaigns[0].coupon}}}:outbox"
    with rig.redis() as cache:
        cache.hset(outbox, mapping={ulid_make(chance): "no message" for _ in range(UNREADABLE)})
    killed_keeper_is_replaced(rig, part)


def flush(rig):
    with rig.redis() as cache:
        cache.flushall()


def keeper_in_a_rebuild(rig, chance, point):
    """Three campaigns are rebuilt, each by itself: each point is reached three times."""
    part = keeper_only(rig, f"{point}:{chance.randint(1, 3)}:kill")
    rig.keeper()
    with rig.redis() as cache:
        for campaign in rig.load.campaigns:
            cache.hset(f"coupon:{{{campaign.coupon}}}", "rebuild", 1)
    killed_keeper_is_replaced(rig, part)


def keeper_in_a_page(rig, point):
    """Small campaigns are rebuilt together."""
    for coupon in [rig.stack.coupon_make(10) for _ in range(3)]:
        coupon_is_open(rig, coupon)
    part = keeper_only(rig, f"{point}:1:kill")
    rig.keeper()
    flush(rig)
    killed_keeper_is_replaced(rig, part)


def rebuild_page_opened(rig, chance):
    """The keeper fills a page of several campaigns, or loads one for the first time."""
    if chance.randint(0, 1):
        keeper_in_a_page(rig, "rebuild_page_opened")
        return
    part = keeper_only(rig, "rebuild_page_opened:1:kill")
    coupon = rig.stack.coupon_make(10)
    killed_keeper_is_replaced(rig, part)
    coupon_is_open(rig, coupon)


def late_counted(rig, _chance):
    """Nothing is settled while the coupons are rebuilt, so that all that is in flight is late."""
    part = keeper_only(rig, "late_counted:1:kill")
    rig.keeper()
    with rig.pg() as pg, pg.transaction():
        pg.execute("LOCK TABLE user_coupon IN SHARE MODE")
        rig.wait_accepted(50)
        flush(rig)
        rig.wait_accepted(20)
    killed_keeper_is_replaced(rig, part)


def keeper_copies_keys(rig, chance, point):
    """Redis has none of the API keys, which are several pages: the keeper dies at one of them."""
    with rig.pg() as pg:
        pg.execute(
            "SELECT api_key_create(lpad(n::text, 10, '0'), 'x', '{read}', NULL, NULL, NULL, NULL,"
            " decode(repeat('ab', 32), 'hex')) FROM generate_series(1, 250) AS n"
            " WHERE NOT EXISTS (SELECT FROM api_key WHERE id = lpad(n::text, 10, '0'))"
        )
    rig.wait(lambda: keys_agree(rig))
    part = keeper_only(rig, f"{point}:{chance.randint(1, 3)}:kill")
    with rig.redis() as cache:
        while part.alive():  # a command of the guests may have copied them
            cache.delete(KEYS)
            rig.wait(lambda: not part.alive() or keys_agree(rig))
    killed_keeper_is_replaced(rig, part)
    rig.wait(lambda: keys_agree(rig))


def keeper_ends_holds(rig, chance):
    """In some of its rounds; the shoppers' holds end all the time."""
    part = keeper_only(rig, f"keeper_holds_ended:{chance.randint(1, 20)}:kill")
    killed_keeper_is_replaced(rig, part)


def keeper_fills_uses(rig, point):
    """Redis has lost what orders have done with receives: the keeper dies while it fills that."""
    for part in rig.workers:
        part.terminate()
    with rig.redis() as cache:
        cache.delete(USES)
        cache.hdel(CHANGES, "uses_run")
    part = rig.workers[0].start(fault=f"{point}:1:kill")
    killed_keeper_is_replaced(rig, part)


KEEPER_KILLS = {
    "keeper_after_election": keeper_after_election,
    "rebuild_page_opened": rebuild_page_opened,
    "keeper_before_verify": lambda rig, chance: keeper_verify(rig, chance, "keeper_before_verify"),
    "keeper_after_verify": lambda rig, chance: keeper_verify(rig, chance, "keeper_after_verify"),
    "keeper_before_terms": keeper_before_terms,
    "keeper_before_close": keeper_before_close,
    "keeper_before_settled": lambda rig, _chance: keeper_settles(rig, "keeper_before_settled"),
    "keeper_before_expire": lambda rig, _chance: keeper_settles(rig, "keeper_before_expire"),
    "keeper_before_expiry_mark": lambda rig, _chance: keeper_settles(
        rig, "keeper_before_expiry_mark"
    ),
    "keeper_before_remove": keeper_before_remove,
    "keeper_before_keys": lambda rig, chance: keeper_copies_keys(rig, chance, "keeper_before_keys"),
    "keeper_after_keys": lambda rig, chance: keeper_copies_keys(rig, chance, "keeper_after_keys"),
    "keeper_holds_ended": keeper_ends_holds,
    "keeper_before_fill": lambda rig, _chance: keeper_fills_uses(rig, "keeper_before_fill"),
    "keeper_filling": lambda rig, _chance: keeper_fills_uses(rig, "keeper_filling"),
}


def plant(pg, coupon, user):
    """A row that is unknown to Redis, so that the next receive of this user is rejected. Returns
    the record of its slot."""
    batch = ulid_make()
    pg.execute(
        "INSERT INTO user_coupon"
        " (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " VALUES (%s, %s, 1, 0, %s, now(), now())",
        (user, coupon, ulid_uuid(batch)),
    )
    pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))
    return f"1:{batch}:0:"


def slot_free_killed_at(rig, chance, point):
    """Receives are rejected, and the worker dies while it frees their slots: another worker does
    it, once."""
    coupon, users = rig.stack.coupon_make(1000), [user_of(n, rig.seed) for n in range(1, 21)]
    coupon_is_open(rig, coupon)
    with rig.pg() as pg:
        records = {user: plant(pg, coupon, user) for user in users}
    part = keeper_only(rig, f"{point}:1:kill")
    with rig.gateways[0].process.client() as client:
        for user in users:
            assert client.issue(coupon, user)["code"] == 0
    part.wait_fault()
    for worker in chance.sample(rig.workers, 2):
        worker.start()

    def freed():
        with rig.pg() as pg:
            done = (
                "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND freed_at IS"
                " NOT NULL"
            )
            return pg.execute(done, (coupon,)).fetchone() == (len(users),)

    def judge():
        rig.wait(freed)
        with rig.redis() as cache:
            assert (
                cache.hgetall(f"coupon:{{{coupon}}}:users") == records
            ), "each slot has its owner of PostgreSQL"
            assert cache.hmget(f"coupon:{{{coupon}}}", "stock", "lost") in (
                ["980", None],
                ["980", "0"],
            )

    rig.on_judge(judge)


def relay_killed_at(rig, chance, point):
    """The worker that publishes events dies, several times: each event is published, and in
    order."""
    coupon = rig.stack.coupon_make(1_000_000, events="on")
    coupon_is_open(rig, coupon)
    events = Subscriber(rig.stack, f"event.{coupon}.#", name=f"events-{coupon}")
    rig.on_end(events.close)
    users = itertools.count(1)
    for _ in range(chance.randint(1, 3)):
        part = keeper_only(rig, f"{point}:{chance.randint(1, 20)}:kill")
        with rig.gateways[0].process.client() as client:
            while part.alive():
                client.issue(coupon, user_of(next(users), rig.seed))
        part.wait_fault()
        rig.workers[1].start()
        rig.keeper()
        part.start()

    def judge():
        with rig.pg() as pg:
            rig.wait(lambda: pg.execute("SELECT count(*) FROM event_log").fetchone() == (0,))
            rows = pg.execute(
                "SELECT user_id, batch, idx FROM user_coupon WHERE coupon_id = %s", (coupon,)
            ).fetchall()
        firsts = events.firsts()
        receives = [one["data"]["receive"] for one in firsts if one["type"] == "coupon.issued"]
        assert sorted(receives) == sorted(
            f"{coupon}.{user}.{ulid_of(batch)}.{index}" for user, batch, index in rows
        ), "an event of each row"
        assert in_order(firsts)

    rig.on_judge(judge)


def expiring_killed_at(rig, chance, point):
    """Passes over two campaigns of the load, whose coupon.expiring are asked for again, later."""
    part = keeper_only(rig, f"{point}:{chance.randint(1, 10)}:kill")
    for campaign in rig.load.campaigns[1:]:
        rig.expiring_ask(campaign, TELL_WITHIN_S + 1)
    killed_keeper_is_replaced(rig, part)
    part.start()


def revoke_killed_at(rig, chance, point):
    """Commands die at it; the keeper does the rest."""
    revokers = Revokers(rig, chance, fault=point)
    rig.on_stop(revokers.stop)
    rig.on_judge(lambda: say(f"claimed: {revokers.judge()}"))
    rig.wait_answers(300)


def key_killed_at(rig, chance, point):
    """Commands of API keys die at it, one after the other; the keeper tells Redis."""
    guests = Guests(rig, chance, fault=point, every_s=(0.0, 0.2))
    rig.on_stop(guests.stop)
    rig.on_judge(guests.judge)
    rig.wait(lambda: guests.killed >= 10)


def allowed_at(point):
    if point.startswith("rebuild_") or point == "late_counted":
        return REDIS_LOSES
    if point.startswith("recover_"):
        return POSTGRESQL_BACK
    if point.startswith(("gateway_", "move_")) or point.endswith("_rescue"):
        return GATEWAY_STARTS
    return REDIS_AWAY if point.endswith("_verify") else OUTCOMES_LATE


def kill_scenario(point):
    """The scenario that kills at this point."""

    def run(rig, chance):
        if point in KEEPER_KILLS:
            KEEPER_KILLS[point](rig, chance)
        elif point.startswith("rebuild_page_"):
            keeper_in_a_page(rig, point)
        elif point.startswith("rebuild_"):
            keeper_in_a_rebuild(rig, chance, point)
        elif point == "late_counted":
            late_counted(rig, chance)
        elif point.endswith("_park"):
            worker_parks(rig, chance, point)
        elif point.endswith("_rescue"):
            worker_rescues(rig, chance, point)
        elif point.startswith("move_"):
            move_killed(rig, chance, point)
        elif point.startswith("recover_"):
            recover_killed(rig, chance, point)
        elif point.startswith("relay_"):
            relay_killed_at(rig, chance, point)
        elif point == "expiring_step":
            expiring_killed_at(rig, chance, point)
        elif point == "revoke_committed":
            revoke_killed_at(rig, chance, point)
        elif point.startswith("key_"):
            key_killed_at(rig, chance, point)
        elif point.startswith("void_"):
            void_killed_at(rig, chance, point)
        elif point.startswith("free_"):
            slot_free_killed_at(rig, chance, point)
        else:
            kill_at(
                rig, chance, rig.gateways if point.startswith("gateway_") else rig.workers, point
            )

    assert point in KEEPER_KILLS or not point.startswith(
        "keeper_"
    ), f"the keeper has no step for {point}"
    run.__name__ = f"kill_{point}"
    run.__doc__ = f"Killed at the n-th time it comes to {point}."
    scenario(**allowed_at(point))(run)


for _point in POINTS:
    kill_scenario(_point)
