"""Gateways, workers and the keeper killed, frozen and told to end, at any moment and at each fault point."""

import datetime
import os
import re
import signal

from history import ulid_make, ulid_uuid
from scenario import scenario
from stack import ROOT, process_tree

FROZEN_S = (2.6, 4.0)  # longer than every lease and time-out of rig.SETTINGS but the heartbeat
LONG_S = (10.0, 13.0)  # longer than two heartbeats
POINTS = re.findall(r'^FAULT\(\w+, "(\w+)"\)$', (ROOT / "common/fault_table.h").read_text(), re.MULTILINE)
SHORT_POINTS = ("gateway_after_reply", "worker_after_commit", "keeper_before_remove")


def points_of(prefix):
    return [point for point in POINTS if point.startswith(prefix)]


# At any moment


def kill_again_and_again(rig, chance, parts):
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(parts)
        rig.wait_answers(chance.randint(1, 300))
        part.kill9()
        rig.wait_answers(chance.randint(1, 100))
        part.start()


@scenario()
def gateway_killed(rig, chance):
    """A gateway killed under load, a few times."""
    kill_again_and_again(rig, chance, rig.gateways)


@scenario(short=True)
def gateway_killed_unconfirmed(rig, chance):
    """Every gateway killed with messages in its memory that RabbitMQ, frozen, has not confirmed: Redis has them still."""
    rig.stack.sigstop("rabbitmq")
    rig.wait_accepted(chance.randint(20, 150))
    for part in rig.gateways:
        part.kill9()
    rig.stack.sigcont("rabbitmq")
    for part in rig.gateways:
        part.start()


@scenario()
def worker_killed(rig, chance):
    """A worker killed under load, a few times; it may be the keeper."""
    kill_again_and_again(rig, chance, rig.workers)


@scenario(short=True)
def all_killed(rig, chance):
    """Every gateway and worker killed at the same time, in any order."""
    rig.wait_answers(chance.randint(1, 300))
    for part in chance.sample(rig.parts, len(rig.parts)):
        part.kill9()


@scenario()
def told_to_end(rig, chance):
    """SIGTERM to any of them, a few times; it exits with 0 and is started again."""
    for _ in range(chance.randint(2, 4)):
        part = chance.choice(rig.parts)
        rig.wait_answers(chance.randint(1, 200))
        part.restart()


@scenario()
def rolling_restart(rig, _chance):
    """Workers, then gateways, one after the other."""
    for part in [*rig.workers, *rig.gateways]:
        part.restart()
        rig.wait(part.ready)
        rig.wait_answers(50)


@scenario()
def killed_while_it_ends(rig, chance):
    """SIGTERM, and a moment later SIGKILL."""
    for part in chance.sample(rig.parts, 2):
        part.tell_to_end()
        rig.pause(chance, 0.0, 0.05)
        part.kill9()
        part.start()
        rig.wait_answers(50)


# Frozen


def frozen(rig, chance, part, seconds):
    rig.wait_answers(chance.randint(1, 200))
    part.stop()
    rig.pause(chance, *seconds)
    part.cont()


@scenario(short=True)
def gateway_frozen(rig, chance):
    """A gateway frozen beyond the time-outs of calls, outcomes and the keeper's patience: its messages are sent without it."""
    frozen(rig, chance, chance.choice(rig.gateways), FROZEN_S)


@scenario()
def gateway_frozen_long(rig, chance):
    """… and beyond RabbitMQ's patience."""
    frozen(rig, chance, chance.choice(rig.gateways), LONG_S)


@scenario()
def worker_frozen(rig, chance):
    """A worker that is not the keeper frozen; what it holds waits, or goes to the other."""
    frozen(rig, chance, next(part for part in rig.workers if part is not rig.keeper()), FROZEN_S)


@scenario()
def worker_frozen_long(rig, chance):
    """… until RabbitMQ gives its deliveries to the other; then it acks what is not its own any more."""
    frozen(rig, chance, next(part for part in rig.workers if part is not rig.keeper()), LONG_S)


def keeper_frozen_for(rig, chance, seconds):
    keeper = rig.keeper()
    keeper.stop()
    rig.wait(lambda: rig.keeper() is not keeper)
    coupon = rig.stack.coupon_make(10)
    rig.wait(lambda: rig.redis_get(coupon, "fence"))
    rig.pause(chance, *seconds)
    keeper.cont()
    rig.wait(lambda: "event=keeper_lost" in keeper.log() or "event=keeper_redis" in keeper.log())


@scenario(short=True)
def keeper_frozen(rig, chance):
    """The keeper frozen beyond its lease: another takes over, and the first writes nothing when it wakes up."""
    keeper_frozen_for(rig, chance, (0.2, 2.0))


@scenario()
def keeper_frozen_long(rig, chance):
    """… and beyond RabbitMQ's patience."""
    keeper_frozen_for(rig, chance, LONG_S)


@scenario()
def all_frozen(rig, chance):
    """Every gateway and worker frozen at the same time; they wake up in any order."""
    rig.wait_answers(chance.randint(1, 200))
    for part in rig.parts:
        part.stop()
    rig.pause(chance, *FROZEN_S)
    for part in chance.sample(rig.parts, len(rig.parts)):
        part.cont()


def freeze_at(rig, chance, parts, points):
    """Frozen exactly at a point, twice."""
    for _ in range(2):
        part = chance.choice(parts)
        part.restart(fault=f"{chance.choice(points)}:{chance.randint(1, 60)}:stop")
        part.wait_fault()
        rig.pause(chance, *FROZEN_S)
        part.cont()
        rig.wait_answers(50)
        part.restart()


@scenario()
def gateway_frozen_at_a_point(rig, chance):
    """A gateway frozen at a fault point: after a reply, between publish and confirm, …"""
    freeze_at(rig, chance, rig.gateways, [point for point in points_of("gateway_") if point != "gateway_mid_reply"])


@scenario()
def worker_frozen_at_a_point(rig, chance):
    """A worker frozen at a fault point, for instance between COMMIT and ack: its deliveries are settled by the other meanwhile."""
    freeze_at(rig, chance, rig.workers, points_of("worker_"))


@scenario()
def slow_at_all_points(rig, chance):
    """A gateway and a worker that sleep 100 ms at each point of the way: others overtake them everywhere."""
    for part in (chance.choice(rig.gateways), chance.choice(rig.workers)):
        points = points_of(f"{part.kind}_after")
        part.restart(fault=",".join(f"{point}:{chance.randint(1, 20)}:sleep" for point in points))
    rig.wait_answers(800)


# At each fault point


def kill_at(rig, chance, parts, point):
    """At the n-th time, several times; each start counts anew."""
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(parts)
        if part.alive():
            part.terminate()
        part.start(fault=f"{point}:{chance.randint(1, 40)}:kill")
        part.wait_fault()
    part.start()


def keeper_only(rig, fault):
    """One worker with the fault, which is elected for want of another."""
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


def keeper_after_generation(rig, _chance):
    part = keeper_only(rig, "keeper_after_generation:1:kill")
    coupon = rig.stack.coupon_make(10)
    killed_keeper_is_replaced(rig, part)
    coupon_is_open(rig, coupon)


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
    told = rig.stack.ctl_run("stock", coupon, "--total", 20, "--redis-url", "redis://127.0.0.1:1/0")
    assert "a keeper will" in told.stderr, told
    killed_keeper_is_replaced(rig, part)
    rig.wait(lambda: rig.redis_get(coupon, "total") == "20")


def keeper_before_close(rig, chance):
    part = keeper_only(rig, "keeper_before_close:1:kill")
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=chance.uniform(0.5, 1.5))
    coupon = rig.stack.coupon_make(10, end=end.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    killed_keeper_is_replaced(rig, part)

    def closed():
        with rig.pg() as pg:
            return pg.execute("SELECT status FROM coupon WHERE id = %s", (coupon,)).fetchone() == ("closed",)

    rig.wait(closed)


def keeper_settles(rig, point):
    """A closed campaign is settled, its keys are given their end, and that is recorded, whichever of these the keeper dies at."""
    coupon = rig.stack.coupon_make(10)
    coupon_is_open(rig, coupon)
    with rig.gateways[0].process.client() as client:
        assert client.issue(coupon, 1)["code"] == 0
    part = keeper_only(rig, f"{point}:1:kill")
    rig.stack.ctl("close", coupon)
    killed_keeper_is_replaced(rig, part)

    def settled():
        with rig.pg() as pg:
            marks = "SELECT settled_at IS NOT NULL, expires_at IS NOT NULL FROM coupon WHERE id = %s"
            return pg.execute(marks, (coupon,)).fetchone() == (True, True)

    rig.wait(settled)
    with rig.redis() as cache:
        assert all(cache.pttl(key) > 0 for key in cache.keys(f"coupon:{{{coupon}}}*"))


def keeper_before_remove(rig, chance):
    part = keeper_only(rig, f"keeper_before_remove:{chance.randint(1, 2)}:kill")
    rig.keeper()
    while part.alive():
        gateway = rig.gateways[0]
        gateway.terminate()
        gateway.start(fault=f"gateway_after_reply:{chance.randint(1, 10)}:kill")  # leaves an entry in the outbox
        gateway.wait_fault()
        gateway.start()
        rig.wait(lambda: not part.alive() or not rig.outbox_length())
    killed_keeper_is_replaced(rig, part)


def flush(rig):
    with rig.redis() as cache:
        cache.flushall()


def keeper_in_a_rebuild(rig, chance, point):
    """Three campaigns are rebuilt: each point is met so often."""
    part = keeper_only(rig, f"{point}:{chance.randint(1, 3)}:kill")
    rig.keeper()
    flush(rig)
    killed_keeper_is_replaced(rig, part)


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


KEEPER_KILLS = {
    "keeper_after_election": keeper_after_election,
    "keeper_after_generation": keeper_after_generation,
    "keeper_before_verify": lambda rig, chance: keeper_verify(rig, chance, "keeper_before_verify"),
    "keeper_after_verify": lambda rig, chance: keeper_verify(rig, chance, "keeper_after_verify"),
    "keeper_before_terms": keeper_before_terms,
    "keeper_before_close": keeper_before_close,
    "keeper_before_settled": lambda rig, _chance: keeper_settles(rig, "keeper_before_settled"),
    "keeper_before_expire": lambda rig, _chance: keeper_settles(rig, "keeper_before_expire"),
    "keeper_before_expiry_mark": lambda rig, _chance: keeper_settles(rig, "keeper_before_expiry_mark"),
    "keeper_before_remove": keeper_before_remove,
}


def plant(pg, coupon, user):
    """A row that Redis knows nothing of, so that the next receive of this user is rejected. Returns the record of its slot."""
    batch = ulid_make()
    pg.execute("INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
               " VALUES (%s, %s, 1, 0, %s, now(), now())", (user, coupon, ulid_uuid(batch)))  # fmt: skip
    pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))
    return f"1:{batch}:0:"


def release_killed_at(rig, chance, point):
    """Receives are rejected, and the worker dies while it gives back what they hold: another does it, once."""
    coupon, users = rig.stack.coupon_make(1000), range(1, 21)
    coupon_is_open(rig, coupon)
    with rig.pg() as pg:
        records = {str(user): plant(pg, coupon, user) for user in users}
    part = keeper_only(rig, f"{point}:1:kill")
    with rig.gateways[0].process.client() as client:
        for user in users:
            assert client.issue(coupon, user)["code"] == 0
    part.wait_fault()
    for worker in chance.sample(rig.workers, 2):
        worker.start()

    def released():
        with rig.pg() as pg:
            done = "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND released_at IS NOT NULL"
            return pg.execute(done, (coupon,)).fetchone() == (len(users),)

    def judge():
        rig.wait(released)
        with rig.redis() as cache:
            assert cache.hgetall(f"coupon:{{{coupon}}}:users") == records, "each slot is whose it is in PostgreSQL"
            assert cache.hmget(f"coupon:{{{coupon}}}", "stock", "lost") in (["980", None], ["980", "0"])

    rig.on_judge(judge)


def kill_scenario(point):
    """The scenario that kills at this point."""

    def run(rig, chance):
        if point in KEEPER_KILLS:
            KEEPER_KILLS[point](rig, chance)
        elif point.startswith("rebuild_"):
            keeper_in_a_rebuild(rig, chance, point)
        elif point == "late_counted":
            late_counted(rig, chance)
        elif point.startswith("release_"):
            release_killed_at(rig, chance, point)
        else:
            kill_at(rig, chance, rig.gateways if point.startswith("gateway_") else rig.workers, point)

    run.__name__ = f"kill_{point}"
    run.__doc__ = f"Killed at the n-th time it comes to {point}."
    scenario(short=point in SHORT_POINTS)(run)


for _point in POINTS:
    kill_scenario(_point)


# Several processes


@scenario(settings={"COUPON_PROCESSES": 2}, gateways=1)
def processes_killed(rig, chance):
    """Of a gateway with two processes one is killed or frozen, and the parent starts it again."""
    for _ in range(3):
        part = rig.gateways[0]
        children = process_tree(part.pid)[1:]
        assert len(children) == 2
        part.disturb()
        victim, died = chance.choice(children), part.log().count("event=process_died")
        rig.wait_answers(chance.randint(1, 200))
        if chance.random() < 0.4:
            os.kill(victim, signal.SIGSTOP)
            rig.pause(chance, *FROZEN_S)
            os.kill(victim, signal.SIGCONT)
        else:
            os.kill(victim, signal.SIGKILL)
            rig.wait(lambda part=part, died=died: part.log().count("event=process_died") > died)
        rig.wait(lambda part=part: len(process_tree(part.pid)) == 3)


@scenario(settings={"COUPON_PROCESSES": 2})
def processes_killed_at_points(rig, chance):
    """Both processes of a gateway die at a fault point again and again, each start anew."""
    part = rig.gateways[0]
    point = chance.choice(points_of("gateway_"))
    part.restart(fault=f"{point}:{chance.randint(40, 80)}:kill")
    rig.wait(lambda: part.log().count("event=process_died") >= 3, 40)
    part.death_expected = False
