"""make torture-ha: one of three machines, or what leads on it, is lost under load, and comes back.
ONLY=name,name chooses scenarios, SEED=n repeats a load; --list prints them.

Each is judged as every torture is: each accepted receive has exactly one outcome, no answer was
untrue, audit finds nothing. It prints when answers and committed rows came again. Clients come
through HAProxy."""

import os
import random
import sys
import threading
import time

from bed import Bed  # first, for the path

import psycopg

from campaign import WINDOW_SHORT, Campaign, TortureLoad
from load import now
from stack import wait_until
from verdict import Allowed
from witness import Witness

TOTAL, LIMITS = 1_000_000, (1, 3)
CALM_S = 5.0  # before the fault
WINDOW_S = 0.5
FLOWS_S = 5.0  # without a window of less than half of the rate before
AGAIN_S = 120.0
# A user whose slot was lost with a master may be accepted again, if the first answer was `unknown`.
ALLOWED = {
    "answers": ("unavailable", "status unavailable", "busy"),
    "reasons": ("slot_taken", "key_taken"),
    "unknown": 0.5,
}


# ---- what is measured


class Rows:
    """How many outcomes are in PostgreSQL, looked at again and again."""

    def __init__(self, bed, coupons):
        self.bed, self.coupons = bed, [int(coupon) for coupon in coupons]
        self.seen = []  # (when, how many)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stopping.is_set():
            try:
                with psycopg.connect(
                    self.bed.superuser(), autocommit=True, connect_timeout=2
                ) as pg:
                    pg.execute("SET statement_timeout = '1s'")
                    while not self.stopping.wait(0.1):
                        (number,) = pg.execute(
                            "SELECT sum(settled_num)::int FROM coupon WHERE id = ANY(%s)",
                            (self.coupons,),
                        ).fetchone()
                        self.seen.append((now(), number))
            except psycopg.Error:
                self.stopping.wait(0.1)

    def at(self, moment):
        return max((number for when, number in self.seen if when <= moment), default=0)

    def stop(self):
        self.stopping.set()
        self.thread.join(30)


class Flow:
    """Accepted receives and committed rows, in windows of half a second."""

    def __init__(self, load, rows):
        self.load, self.rows = load, rows
        self.before = None

    def accepted(self, begin, end):
        return sum(
            begin <= ask.answered_at < end
            for campaign in self.load.campaigns
            for ask in list(campaign.asked)
            if ask.op == "issue" and ask.answered_at is not None and ask.code == 0
        )

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
        """Seconds until the last window in which less than half came; None while it is young."""
        half, moment, last = self.before[count] / 2, since, since
        until = now() - WINDOW_S
        while moment + WINDOW_S <= until:
            moment += WINDOW_S
            if count(moment - WINDOW_S, moment) < half:
                last = moment
        return last - since if until - last >= FLOWS_S else None

    def wait(self, since):
        """Seconds until answers and rows came again, each."""
        return [
            wait_until(lambda count=count: self._told(count, since), AGAIN_S, 0.5)[0]
            for count in (self.accepted, self.settled)
        ]

    def _told(self, count, since):
        told = self.again(count, since)
        return None if told is None else (told,)


# ---- the scenarios: each yields what it did, after the fault and after its repair


def redis_killed(bed):
    """The process of the master of Redis is killed."""
    name = f"{bed.redis_leads()}-redis"
    bed.kill9(name)
    yield f"{name} killed"
    bed.start(name)
    yield f"{name} started"


def machine_killed(bed):
    """The machine that leads PostgreSQL loses its power, and comes back."""
    machine = bed.postgresql_leads()
    bed.kill(machine)
    yield f"{machine} lost its power"
    bed.start(machine)
    yield f"{machine} started"


def machine_cut(bed):
    """The machine that leads Redis is cut off, and connected again."""
    machine = bed.redis_leads()
    bed.cut(machine)
    yield f"{machine} cut off"
    bed.mend(machine)
    yield f"{machine} connected again"


SCENARIOS = (redis_killed, machine_killed, machine_cut)


def run(bed, scenario, seed):
    allowed = Allowed(**ALLOWED)
    campaigns = [Campaign(bed, TOTAL, limit, seed, allowed) for limit in LIMITS]
    witness = Witness(bed.superuser()).start()
    gateway = ("haproxy", bed.env["COUPON_LISTEN"])
    load = TortureLoad(
        campaigns, lambda: [gateway], f"{seed} {scenario.__name__}", witness.on_answer, WINDOW_SHORT
    ).start()
    rows = Rows(bed, [campaign.coupon for campaign in campaigns])
    try:
        flow = Flow(load, rows)
        time.sleep(2 * CALM_S)  # the measure is the number of events in a given time
        flow.measure()
        print(
            f"{scenario.__name__}: Redis on {bed.redis_leads()}, PostgreSQL on"
            f" {bed.postgresql_leads()}, {flow.before[flow.accepted] / WINDOW_S:.0f} accepted/s",
            flush=True,
        )
        steps, since = scenario(bed), now()
        for did in steps:
            answers_s, rows_s = flow.wait(since)
            print(
                f"  {since:.1f} {did}: answers again after {answers_s:.1f} s, rows {rows_s:.1f} s",
                flush=True,
            )
            witness.url, since = bed.superuser(), now()
        load.stop()
        bed.wait_whole()
        witness.stop()
        assert not witness.false, f"P3: issued before it was true: {witness.false[0]}"
        issued = sum(campaign.judge() for campaign in campaigns)
    except BaseException:
        load.stopping.set()
        path = bed.run_dir / f"history-{scenario.__name__}-{seed}.jsonl"
        load.history_write(path)
        print(f"  the history is in {path}", flush=True)
        raise
    finally:
        rows.stop()
    print(f"  held: {issued} issued, {witness.share()}, {dict(load.codes())}", flush=True)


def main():
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    chosen = [one for one in SCENARIOS if not only or one.__name__ in only]
    if "--list" in sys.argv or not chosen:
        for one in SCENARIOS:
            print(f"{one.__name__:<20} {one.__doc__}")
        return 0 if "--list" in sys.argv else 2
    seed = int(os.environ.get("SEED") or random.randrange(1, 10**6))
    bed = Bed(os.environ.get("RUN_DIR") or ".run-torture-ha", os.environ.get("PORT_BASE") or 18400)
    print(f"torture-ha: SEED={seed}", flush=True)
    try:
        bed.remove()
        bed.script("run")
        for scenario in chosen:
            bed.wait_whole()
            run(bed, scenario, seed)
    finally:
        bed.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
