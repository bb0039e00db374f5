"""make torture-ha: one of three machines, or what leads on it, is lost under load, and comes back.
ONLY=name,name chooses scenarios, SEED=n repeats a load; --list prints them.

Each is judged as every torture is: each accepted receive has exactly one outcome, no answer was
untrue, audit finds nothing. It prints when answers and committed rows came again, and when they
must, and counts which were late. Clients come through HAProxy."""

import itertools
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

from bed import MACHINES, Bed  # first, for the path

import psycopg

from campaign import WINDOW_SHORT, Campaign, TortureLoad
from load import Ask, now
from stack import wait_until
from verdict import Allowed
from witness import Witness

TOTAL, LIMITS = 1_000_000, (1, 3)
CALM_S = 5.0  # before the fault
WINDOW_S = 0.5
STALLED_S = 1  # without a new row
FLOWS_S = 5.0  # at half of the rate before, on the whole
AGAIN_S = 120
MINUTE_S = 60
SINGLE_S = 1  # for which a leader goes on without a standby: nobody can see that it is over
FULL_S = 20
WITHIN_S = 10  # answers and rows come again
PATRONI_S = 20  # and its ttl later, if what led PostgreSQL is lost
# A user whose slot was lost with a master may be accepted again, if the first answer was `unknown`.
ALLOWED = {
    "answers": ("unavailable", "status unavailable", "busy"),
    "reasons": ("slot_taken", "key_taken"),
    "unknown": 0.5,
}


# Half of what saturates the three machines on two cores, with a connection for each user.
CROWD_RATE = 300
CROWD_S = 60  # a scenario is over then


class Crowd:
    """Users of coupon-rush who do not wait for each other, come back with their key when they get
    no answer, and are checked."""

    def __init__(self, bed):
        self.coupon = bed.coupon_make(TOTAL, name="crowd")
        words = {
            "coupon": self.coupon,
            "rate": CROWD_RATE,
            "duration": f"{CROWD_S}s",
            "settle-timeout-s": AGAIN_S,
        }
        self.child = subprocess.Popen(
            [
                bed.build_dir / "coupon-rush",
                "--open-loop",
                *(part for name, value in words.items() for part in (f"--{name}", str(value))),
            ],
            env={**os.environ, **bed.env_of("operator")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self):
        self.child.kill()
        self.child.communicate()

    def judge(self):
        """Returns how many were accepted."""
        told = self.child.communicate(timeout=CROWD_S + 2 * AGAIN_S)[0]
        assert self.child.returncode == 0, told
        return int(re.search("PASS: ([0-9,]+) accepted", told)[1].replace(",", ""))


# ---- what is measured


class Rows:
    """How many user coupons PostgreSQL has, looked at again and again. (What is settled is counted
    for each generation, and begins anew with a rebuild.)"""

    def __init__(self, bed, coupons):
        self.bed, self.coupons = bed, [int(coupon) for coupon in coupons]
        self.seen = []  # (when, how many)
        self.asked_at = 0  # who leads
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stopping.is_set():
            try:
                with psycopg.connect(
                    self.bed.superuser(), autocommit=True, connect_timeout=2
                ) as pg:
                    while not self.stopping.wait(0.1) and not self._is_elsewhere(pg):
                        self._look(pg)
            except psycopg.Error:
                self.stopping.wait(0.1)

    def _is_elsewhere(self, pg):
        """Whether nothing comes any more because another server leads, and this one lives on."""
        since = now() - STALLED_S
        if self.asked_at > since or self.at(since) < self.at(now()):
            return False
        leads, self.asked_at = self.bed.primary(), now()
        return leads is not None and urlsplit(leads).hostname != pg.info.host

    def _look(self, pg):
        """A server that is frozen acknowledges what it does not answer."""
        hangs = threading.Timer(2, self._cut, (pg.fileno(),))
        hangs.start()
        try:
            (number,) = pg.execute(
                "SELECT sum(issued_num)::int FROM coupon WHERE id = ANY(%s)", (self.coupons,)
            ).fetchone()
        finally:
            hangs.cancel()
        self.seen.append((now(), number))

    @staticmethod
    def _cut(number):
        with socket.socket(fileno=os.dup(number)) as connection:
            connection.shutdown(socket.SHUT_RDWR)

    def at(self, moment):
        return max((number for when, number in self.seen if when <= moment), default=0)

    def stop(self):
        self.stopping.set()
        self.thread.join(30)


class LeaderWitness(Witness):
    """Looks at what leads PostgreSQL: an old primary that lives on does not have what is answered,
    and keeps the connection. What the leader lacks is false, however long it took to find it. What
    only a second server has is true, but proves nothing: it may have come there meanwhile."""

    def __init__(self, bed):
        super().__init__(bed.superuser())
        self.bed = bed
        self.is_second = False

    def _rows_exist(self, issued):
        self.is_second = False
        if super()._rows_exist(issued):
            return True
        leads = self.bed.primary()
        if leads is None:
            raise psycopg.OperationalError("no server leads")
        if urlsplit(leads).hostname == self.pg.info.host:  # it was looked at
            return False
        self.is_second, self.url = True, leads
        self._close()
        self.pg = psycopg.connect(leads, autocommit=True, connect_timeout=2)
        return super()._rows_exist(issued)

    def _is_doubtful(self, found, took_s):
        return found and (self.is_second or super()._is_doubtful(found, took_s))


class Prompt(TortureLoad):
    """What waits for Redis alone: in the other load each client soon waits for PostgreSQL, too."""

    ACKS, WEIGHTS = (None, "accepted"), (5, 1)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.accepted_at = []
        self.tell, self.on_answer = self.on_answer, self.note

    def _query_make(self, chance, campaign, user):
        return Ask("issue", user)

    def note(self, ask):
        if ask.op == "issue" and ask.code == 0:
            self.accepted_at.append(ask.answered_at)
        self.tell(ask)


class Flow:
    """Accepted receives of the prompt load and committed rows, in windows of half a second."""

    def __init__(self, load, rows):
        self.load, self.rows = load, rows
        self.before = None

    def accepted(self, begin, end):
        return sum(begin <= at < end for at in list(self.load.accepted_at))

    def settled(self, begin, end):
        return self.rows.at(end) - self.rows.at(begin)

    def measure(self):
        end = now()
        self.before = {
            count: count(end - CALM_S, end) * WINDOW_S / CALM_S
            for count in (self.accepted, self.settled)
        }
        assert all(self.before.values()), "nothing is issued before the fault"

    def again(self, count, since):
        """Seconds until half came in a window, and in the seconds that it begins; or None."""
        half, moment = self.before[count] / 2, since
        while moment + FLOWS_S <= now() - WINDOW_S:
            if (
                count(moment, moment + WINDOW_S) >= half
                and count(moment, moment + FLOWS_S) >= half * FLOWS_S / WINDOW_S
            ):
                return moment - since
            moment += WINDOW_S
        return None

    def pause(self, count, since):
        """The longest time with less than half in each window."""
        half, moment, longest, pause = self.before[count] / 2, since, 0, 0
        while moment + WINDOW_S <= now() - WINDOW_S:
            pause = pause + WINDOW_S if count(moment, moment + WINDOW_S) < half else 0
            longest = max(longest, pause)
            moment += WINDOW_S
        return longest

    def wait(self, since):
        """Seconds until answers and rows came again, each."""
        return [
            wait_until(lambda count=count: self._told(count, since), AGAIN_S, 0.5)[0]
            for count in (self.accepted, self.settled)
        ]

    def _told(self, count, since):
        told = self.again(count, since)
        return None if told is None else (told,)


# ---- the scenarios: each yields what it did, after the fault and after its repair; with the moment
# of the fault, if it was not at once

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


# What may happen to a process, or to its machine, and the end of it.
FAULTS = {
    "killed": (Bed.kill9, Bed.start),
    "frozen": (Bed.sigstop, Bed.sigcont),
    "cut": (Bed.cut, Bed.mend),
    "deaf": (lambda bed, machine: bed.cut(machine, "in"), Bed.mend),
    "mute": (lambda bed, machine: bed.cut(machine, "out"), Bed.mend),
}
# The processes of a store; PostgreSQL is started again by Patroni.
STORES = {"redis": "redis", "rabbitmq": "rabbitmq", "postgresql": "postgres", "etcd": "etcd"}
OF_MACHINE = ("cut", "deaf", "mute")


def leader_fault(store, fault):
    """A scenario: what leads this store meets this fault."""
    begin, end = FAULTS[fault]

    def meets(bed):
        if store != "postgresql":
            bed.postgresql_apart(bed.leads(store))
        target = bed.leads(store)
        if fault not in OF_MACHINE:
            target = f"{target}-{STORES[store]}"
        yield bed.leaders()
        begin(bed, target)
        yield f"{target} {fault}"
        if target.endswith("-postgres") and fault == "killed":
            return
        end(bed, target)
        yield f"{target} back"

    what = (
        f"The machine of the leader of {store}" if fault in OF_MACHINE else f"The leader of {store}"
    )
    meets.__name__, meets.__doc__ = f"{store}_{fault}", f"{what} is {fault}."
    return scenario(meets)


for one in itertools.product(STORES, FAULTS):
    leader_fault(*one)


def lost_and_back(bed, machine):
    bed.kill(machine)
    yield f"{machine} lost its power"
    bed.start(machine)
    yield f"{machine} back"


@scenario
def machine_killed(bed):
    """The machine that leads PostgreSQL loses its power."""
    yield bed.leaders()
    yield from lost_and_back(bed, bed.postgresql_leads())


@scenario
def machine_killed_without_postgresql(bed):
    """The machine that leads Redis, and not PostgreSQL, loses its power."""
    machine = bed.redis_leads()
    bed.postgresql_apart(machine)
    yield bed.leaders()
    yield from lost_and_back(bed, machine)


@scenario
def machine_frozen(bed):
    """All processes of the machine that leads Redis stand still for half a minute."""
    machine = bed.redis_leads()
    bed.postgresql_apart(machine)
    yield bed.leaders()
    bed.freeze(machine)
    begun = time.monotonic()
    yield f"{machine} frozen"
    time.sleep(max(0.0, 30 - (time.monotonic() - begun)))
    bed.thaw()
    yield f"{machine} back"


def standby_names(pg):
    return pg.execute("SHOW synchronous_standby_names").fetchone()[0]


@scenario
def patroni_restarted(bed):
    """Patroni of the leader of PostgreSQL is killed and started again at once. While
    synchronous_standby_names is empty its standbys lag, and then its machine loses its power."""
    machine = bed.postgresql_leads()
    yield bed.leaders()
    with psycopg.connect(bed.superuser(machine), autocommit=True) as pg:
        killed_at = now()
        bed.respawn(f"{machine}-patroni")
        wait_until(lambda: standby_names(pg) == "", AGAIN_S, 0.01)
        empty_s = now() - killed_at
        bed.senders_freeze(pg)
        time.sleep(SINGLE_S)
        names = standby_names(pg) or "still empty"
    lost_at = now()
    bed.kill_at_once(machine)
    yield (
        f"{machine} lost its power {lost_at - killed_at:.1f} s after its Patroni was killed (names"
        f" were empty after {empty_s:.1f} s, in the end {names})",
        lost_at,
    )
    bed.start(machine)
    yield f"{machine} back"


@scenario
def patroni_frozen(bed):
    """Patroni of the leader of PostgreSQL is frozen for longer than its ttl."""
    machine = bed.postgresql_leads()
    yield bed.leaders()
    bed.sigstop(f"{machine}-patroni")
    wait_until(lambda: bed.postgresql_leads() not in (None, machine), AGAIN_S)
    yield f"another leads than {machine}, whose Patroni is frozen", now()
    bed.thaw()
    yield f"{machine} back"


@scenario
def patroni_killed(bed):
    """Patroni of the leader of PostgreSQL is killed for good, and PostgreSQL goes on without it."""
    machine = bed.postgresql_leads()
    yield bed.leaders()
    bed.kill9(f"{machine}-patroni")
    wait_until(lambda: bed.postgresql_leads() not in (None, machine), AGAIN_S)
    yield f"another leads than {machine}, whose Patroni is killed", now()
    bed.start(f"{machine}-patroni")
    yield f"{machine} back"


def disk_full(store, lead_by=lambda bed, machine: None):
    """A scenario: the disk of a machine is full, which leads this store if that can be chosen."""
    name = STORES[store]
    service = "patroni" if store == "postgresql" else name

    def meets(bed):
        machine = next(one for one in MACHINES if one != bed.leads(store))
        target, stopped = f"{machine}-{name}", f"{machine}-{service}"
        try:
            bed.disk_small(target, stopped)
            bed.wait_whole()
            lead_by(bed, machine)
            bed.wait_whole()
            yield bed.leaders()
            bed.disk_fill(target)
            time.sleep(FULL_S)
            bed.disk_free(target)
            bed.start(machine)
            yield f"{target}: its disk was full for {FULL_S} s"
        finally:
            bed.disk_free(target)
            bed.disk_back(target, stopped)

    meets.__name__, meets.__doc__ = (
        f"{store}_disk_full",
        f"The disk of {store} on a machine is full.",
    )
    return scenario(meets)


disk_full("redis", Bed.redis_lead_by)
disk_full("rabbitmq")
disk_full("postgresql", Bed.postgresql_lead_by)
disk_full("etcd")


@scenario
def rolling_programs(bed):
    """Gateways and workers are restarted, one after the other."""
    yield bed.leaders()
    for machine in MACHINES:
        for name in (f"{machine}-worker", f"{machine}-gateway"):
            bed.restart(name)
        wait_until(lambda machine=machine: bed.is_balanced(machine))
    yield "gateways and workers restarted"


@scenario
def rolling_redis(bed):
    """Each Redis is restarted, the master last, after another has taken its place."""
    yield bed.leaders()
    master = bed.redis_leads()
    for machine in (*({*MACHINES} - {master}), master):
        if machine == master:
            bed.redis_fail_over()
        bed.restart(f"{machine}-redis")
        bed.wait_whole()
    yield "Redis restarted on each machine"


@scenario
def rolling_rabbitmq(bed):
    """Each node of RabbitMQ is restarted."""
    yield bed.leaders()
    for machine in MACHINES:
        bed.restart(f"{machine}-rabbitmq")
        bed.wait_whole()
    yield "RabbitMQ restarted on each machine"


@scenario
def rolling_postgresql(bed):
    """Each Patroni is restarted with PostgreSQL, the leader last, after a switchover."""
    yield bed.leaders()
    leader = bed.postgresql_leads()
    for machine in (*({*MACHINES} - {leader}), leader):
        if machine == leader:
            bed.postgresql_apart(machine)
        bed.restart(f"{machine}-patroni")
        bed.wait_whole()
    yield "PostgreSQL restarted on each machine"


@scenario
def two_machines_in_turn(bed):
    """A machine loses its power, and another one a minute later, when the first is whole again."""
    first = bed.redis_leads()
    yield bed.leaders()
    bed.kill(first)
    begun = time.monotonic()
    yield f"{first} lost its power"
    bed.start(first)
    yield f"{first} back"
    bed.wait_whole()
    time.sleep(max(0.0, MINUTE_S - (time.monotonic() - begun)))
    second = bed.redis_leads()
    yield from lost_and_back(bed, second)


@scenario
def machine_and_programs(bed):
    """A machine loses its power, and a minute later, while it is away, the programs of another."""
    first = bed.redis_leads()
    second = next(one for one in MACHINES if one != first)
    yield bed.leaders()
    bed.kill(first)
    begun = time.monotonic()
    yield f"{first} lost its power"
    time.sleep(max(0.0, MINUTE_S - (time.monotonic() - begun)))
    for name in ("gateway", "worker"):
        bed.kill9(f"{second}-{name}")
    yield f"gateway and worker of {second} killed"
    bed.start(second)
    bed.start(first)
    yield f"{first} and {second} back"


def limit(did, leader):
    """Within how many seconds answers and rows must come again; who led PostgreSQL before."""
    if "disk" in did:
        return FULL_S + WITHIN_S
    is_lost = did.startswith((f"{leader} ", f"{leader}-postgres "))
    return WITHIN_S + PATRONI_S * is_lost


def run(bed, chosen, seed):
    """Returns whether each of what happened was over in time."""
    timely = []
    behind = bed.behind()
    allowed = Allowed(**ALLOWED)
    campaigns = [Campaign(bed, TOTAL, user_limit, seed, allowed) for user_limit in LIMITS]
    witness = LeaderWitness(bed).start()
    gateway = ("haproxy", bed.env["COUPON_LISTEN"])
    loads = [
        kind(
            campaigns,
            lambda: [gateway],
            f"{seed} {chosen.__name__} {kind.__name__}",
            witness.on_answer,
            WINDOW_SHORT,
        ).start()
        for kind in (Prompt, TortureLoad)
    ]
    crowd = Crowd(bed)
    rows = Rows(bed, [campaign.coupon for campaign in campaigns])
    try:
        flow = Flow(loads[0], rows)
        steps = chosen(bed)
        leaders = next(steps)
        witness.url = bed.superuser()
        time.sleep(2 * CALM_S)  # the measure is the number of events in a given time
        flow.measure()
        print(
            f"{chosen.__name__}: {leaders}, {flow.before[flow.accepted] / WINDOW_S:.0f} accepted/s",
            flush=True,
        )
        leader, since = bed.postgresql_leads(), now()
        for did in steps:
            did, since = did if isinstance(did, tuple) else (did, since)
            again = flow.wait(since)
            pauses = [flow.pause(count, since) for count in (flow.accepted, flow.settled)]
            print(
                f"  {since:.1f} {did}: answers again after {again[0]:.1f} s, rows {again[1]:.1f} s,"
                f" of {limit(did, leader)} s; longest pauses {pauses[0]:.1f} s, {pauses[1]:.1f} s",
                flush=True,
            )
            timely.append(max(again) <= limit(did, leader))
            witness.url, leader, since = bed.superuser(), bed.postgresql_leads(), now()
        for load in loads:
            load.stop()
        bed.wait_whole()
        witness.stop()
        assert not witness.false, f"P3: issued before it was true: {witness.false[0]}"
        lost = [line for line in bed.behind() if line not in behind]
        assert not lost, f"committed rows were lost: {lost}"
        issued = sum(campaign.judge() for campaign in campaigns)
        accepted = crowd.judge()
    except BaseException:
        for load in loads:
            load.stopping.set()
        path = bed.run_dir / f"history-{chosen.__name__}-{seed}.jsonl"
        loads[0].history_write(path)
        print(f"  the history is in {path}", flush=True)
        raise
    finally:
        bed.thaw()
        rows.stop()
        crowd.end()
    print(
        f"  held: {issued} issued, {accepted} of the crowd, {witness.share()},"
        f" {dict(loads[0].codes())}",
        flush=True,
    )
    return timely


def main():
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    chosen = [SCENARIOS[name] for name in SCENARIOS if not only or name in only]
    if "--list" in sys.argv or not chosen:
        for name, one in SCENARIOS.items():
            print(f"{name:<34} {one.__doc__}")
        return 0 if "--list" in sys.argv else 2
    seed = int(os.environ.get("SEED") or random.randrange(1, 10**6))
    bed = Bed(os.environ.get("RUN_DIR") or ".run-torture-ha", os.environ.get("PORT_BASE") or 18400)
    print(f"torture-ha: SEED={seed}", flush=True)
    try:
        bed.remove()
        bed.script("run")
        timely = []
        for one in chosen:
            bed.wait_whole()
            timely += run(bed, one, seed)
        print(f"torture-ha: {timely.count(False)} of {len(timely)} came too late", flush=True)
    finally:
        bed.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
