"""
A private stack under torture: its three services, gateways and workers built with fault points, a
steady load, and its verification.

The interface for scenarios (the load is running and was measured; after the scenario returns,
everything that it broke is repaired, and all promises are checked):

  rig.stack                 tests/stack.py: kill9, sigstop, sigcont, start, stop of "redis",
                            "rabbitmq", "postgres"; .env has their URLs
  rig.gateways, rig.workers lists of Part:
    part.kill9()                    the death is then expected
    part.doom()                     it is killed soon, by something else
    part.terminate()                SIGTERM; it must exit with 0 in time
    part.tell_to_end()              SIGTERM only
    part.stop(), part.cont()        SIGSTOP and SIGCONT, its children too
    part.start(fault="", **settings)   again, at the same address; settings come on top of the
                                    rig's. fault: see common/fault.h
    part.restart(fault="", **settings) terminate() and start()
    part.wait_fault()               until the fault has killed or stopped it
    part.disturb(), part.calm()     from and until when it may leave clients without an answer,
                                    by what no other function here did; healing calms it too
    part.pid, part.log() (of this life), part.alive(), part.metrics() (of a gateway)
  rig.keeper()              the worker that is elected
  rig.load                  campaign.py: .accepted, .sure (answers so far), .codes(), .campaigns
  rig.wait_accepted(n)      until n more requests are accepted
  rig.wait_answers(n)       until n more have a sure answer
  rig.check_served()        during the scenario: the load is answered as fast as before it
  rig.pause(chance, a, b)   a random time between a and b seconds
  rig.wait(condition, timeout)       as stack.wait_until
  rig.on_heal(function)     called first of all when the scenario has returned or failed: open the
                            link again, …
  rig.on_stop(function)     called when the load has ended, before all is waited for
  rig.on_judge(function)    called when all is settled, to check more
  rig.on_end(function)      called after the judgement: close the relay, …
  rig.settings_all(**settings)       in prepare(): settings for every gateway and worker of this
                            scenario (a relay's URL)
  rig.expiring_ask(campaign, within_s)     its user coupons have coupon.expiring then
  rig.pg(), rig.redis()     connections, to be used in `with`
  rig.redis_get(coupon, field), rig.outbox_length()    of a coupon's hash, of all the campaigns
  rig.expect_dead(n)        n messages may be in the dead-letter queue afterwards
  rig.expect_trim()         Redis is full: the oldest uses may be removed from it
  rig.allow(answers=(), reasons=(), unknown=0.0)    besides what the scenario has declared
"""

import json
import random
import re
import statistics
import sys
import time
from pathlib import Path

import psycopg
import redis

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parent / "power")]

from around import Around  # noqa: E402
from crowd import Crowd  # noqa: E402
from campaign import ANSWER_S, WINDOW, Campaign, TortureLoad  # noqa: E402
from history import DEAD_QUEUE, PARKED_QUEUE, QUEUE, USE_QUEUE, queue_length  # noqa: E402
from load import now  # noqa: E402
from part import Part, Violation  # noqa: E402
from scenario import REDIS_AWAY, Skipped  # noqa: E402
from stack import SERVICES, Stack, wait_until  # noqa: E402
from verdict import Allowed  # noqa: E402
from webhooks import SOON  # noqa: E402
from witness import Witness  # noqa: E402

# Small, so that waits of seconds or minutes are short.
SETTINGS = {
    "COUPON_KEEPER_LEASE_MS": 1000, "COUPON_KEEPER_ROUND_MS": 100, "COUPON_RESEND_AFTER_MS": 400,
    "COUPON_CALL_TIMEOUT_MS": 700, "COUPON_ISSUED_TIMEOUT_MS": 1500,
    "COUPON_SETTLE_TIMEOUT_MS": 3000, **SOON,
}  # fmt: skip
HEARTBEAT_S = 4  # RabbitMQ's proposal to its clients
CAMPAIGNS = (
    (1_000_000, 1),
    (1_000_000, 3),
    (300, 2),
)  # total, limit: the last one is sold out soon
VALID_S = 3600  # the user coupons of the load, from when their campaign is made
TELL_WITHIN_S = 10  # of the fault: their coupon.expiring is due
WINDOW_S = 0.25
WINDOWS = 6
RATE_SHARE = 0.9
RATE_WITHIN_S = 10.0
# What has waited while a service was away is settled by the third that the crowd leaves.
RATE_WITHIN_CROWD_S = 40.0
RATE_STAYS_S = 5.0
SERVED = 100  # sure answers, where no rate is checked
RSS_FACTOR, RSS_SLACK_KB = 1.5, 24 * 1024
REPORTS = (
    "AddressSanitizer",
    "LeakSanitizer",
    "ThreadSanitizer",
    "UndefinedBehaviorSanitizer",
    "runtime error:",
)


def fault_build_dir(build_dir):
    """The folders of the programs with fault points, and of those without."""
    return (
        build_dir
        if build_dir.name.endswith("-fault")
        else build_dir.with_name(f"{build_dir.name}-fault")
    )


class Rig:
    def __init__(self, run_dir, port_base, window=WINDOW, has_rates=True):
        """has_rates: whether a scenario also fails if the rate does not come back in time; else it
        is enough that requests are answered and settled again."""
        self.around = None  # of the present scenario
        self.stack = Stack(run_dir, port_base)
        self.stack.build_dir = fault_build_dir(self.stack.build_dir)
        self.stack.settings = {"RABBITMQ_HEARTBEAT_S": HEARTBEAT_S}
        self.gateways, self.workers = [], []
        self.settings = dict(SETTINGS)
        self.window = window  # of each client of the load
        self.has_rates = has_rates
        self.within_s = RATE_WITHIN_S
        self.crowded = 0  # receives of all crowds that this stack has
        self.machine_rate = 0.0  # receives that are accepted and settled a second; 0: not measured
        self.load = self.seed = self.rate_before = None
        self._healers, self._stoppers, self._judges, self._enders = [], [], [], []
        self._dead_expected, self.trim_expected = 0, False
        self._allowed = None
        self.witness = None
        self._rss = {}
        self.broken = False  # not to be reused, after a violation for instance

    # The stack's life

    def up(self):
        self.stack.remove()
        self.stack.services()
        # New queues are not killed in their first seconds: waits until a message has passed.
        self.prepare_parts(1, 1, {})
        coupon = self.stack.coupon_make(1)
        with self.gateways[0].process.client() as client:
            wait_until(lambda: client.issue(coupon, 1, key="k", ack="issued")["code"] == 0)

    def down(self):
        for part in self.parts:
            if part.process:
                part.cont()
                part.process.end()
        self.stack.thaw()
        self.stack.down()

    @property
    def parts(self):
        return [*self.gateways, *self.workers]

    def prepare_parts(self, gateways, workers, settings):
        """Runs this number of each, with these settings and without a fault."""
        self.settings = {**SETTINGS, **settings}
        for kind, parts, wanted in (
            ("gateway", self.gateways, gateways),
            ("worker", self.workers, workers),
        ):
            while len(parts) > wanted:
                parts.pop().process.end()
            while len(parts) < wanted:
                parts.append(Part(self, kind, len(parts) + 1))
        for part in self.parts:
            if part.alive() and part.settings != ("", self.settings):
                part.terminate()
            if not part.alive():
                part.start()
        wait_until(lambda: all(part.ready() for part in self.parts))

    # Interface for scenarios

    def on_heal(self, function):
        self._healers.append(function)

    def on_stop(self, function):
        self._stoppers.append(function)

    def on_judge(self, function):
        self._judges.append(function)

    def on_end(self, function):
        self._enders.append(function)

    def expect_dead(self, number):
        self._dead_expected += number

    def expect_trim(self):
        self.trim_expected = True

    def allow(self, **more):
        self._allowed.add(**more)

    def settings_all(self, **settings):
        self.prepare_parts(len(self.gateways), len(self.workers), {**self.settings, **settings})

    def pg(self):
        return psycopg.connect(
            self.stack.env["DATABASE_ADMIN_URL"], autocommit=True, connect_timeout=5
        )

    def redis(self):
        return redis.Redis.from_url(
            self.stack.env["REDIS_URL"], decode_responses=True, socket_timeout=5
        )

    def redis_get(self, coupon, field):
        with self.redis() as cache:
            return cache.hget(f"coupon:{{{coupon}}}", field)

    def expiring_ask(self, campaign, within_s):
        """In mid-sale: coupon.expiring of what is received until then, at that time."""
        before_s = int(campaign.valid_until - time.time() - within_s)

        def is_asked():
            """The operator may have changed the campaign meanwhile."""
            shown = json.loads(self.stack.ctl("show", campaign.coupon, "--json"))
            version = shown["postgresql"]["version"]
            edit = ("edit", campaign.coupon, "--version", version)
            return self.stack.ctl_run(*edit, "--tell-before", f"{before_s}s").returncode == 0

        wait_until(is_asked)

    def outbox_length(self):
        with self.redis() as cache:
            return sum(
                cache.hlen(f"coupon:{{{campaign.coupon}}}:outbox")
                for campaign in self.load.campaigns
            )

    def keeper(self):
        """The worker that was elected last."""

        def elected():
            with self.pg() as pg:
                (fence,) = pg.execute("SELECT fence FROM keeper").fetchone()
            return next(
                (
                    part
                    for part in self.workers
                    if part.alive() and f"event=keeper_elected fence={fence}\n" in part.log()
                ),
                None,
            )

        return wait_until(elected)

    def wait(self, condition, timeout=120):
        """Returns the value that is true."""
        return wait_until(condition, timeout)

    def wait_accepted(self, more, timeout=120):
        aim = self.load.accepted + more
        wait_until(lambda: self.load.errors or self.load.accepted >= aim, timeout)

    def wait_answers(self, more, timeout=120):
        aim = self.load.sure + more
        wait_until(lambda: self.load.errors or self.load.sure >= aim, timeout)

    def pause(self, chance, least, most):
        until = time.monotonic() + chance.uniform(least, most)
        wait_until(lambda: time.monotonic() >= until, most + 5)

    # Rates: sure answers of short windows, and outcomes in PostgreSQL, which must keep up with the
    # accepted receives

    def _counts(self, pg):
        ids = [int(campaign.coupon) for campaign in self.load.campaigns]
        (settled,) = pg.execute(
            "SELECT coalesce(sum(settled_num), 0) FROM coupon WHERE id = ANY(%s)", (ids,)
        ).fetchone()
        return time.monotonic(), self.load.sure, self.load.accepted, int(settled)

    def _window(self, pg):
        """Sure answers, accepted receives and outcomes a second."""
        begun = self._counts(pg)
        time.sleep(WINDOW_S)  # the measure is the number of events in a given time
        ended = self._counts(pg)
        return tuple(
            (after - before) / (ended[0] - begun[0]) for before, after in zip(begun[1:], ended[1:])
        )

    def rate_measure(self):
        """Sure answers a second."""
        if not self.has_rates:
            self.wait_answers(SERVED)
            return 0.0
        with self.pg() as pg:
            self._window(pg)
            return statistics.median(self._window(pg)[0] for _ in range(WINDOWS))

    def _served_again(self):
        self.wait_answers(SERVED)
        with self.pg() as pg:
            *_, settled = self._counts(pg)
            wait_until(lambda: self._counts(pg)[-1] != settled)

    def rate_check(self, before, stays_s=0.0):
        """Waits until the former rate is reached and stays for so long; returns how long it took
        to reach it."""
        begun, reached = time.monotonic(), None
        if not self.has_rates:
            self._served_again()
            return time.monotonic() - begun
        windows, stay = [], 0  # stay: how many of the last ones are of the former rate
        with self.pg() as pg:
            while True:
                windows.append(self._window(pg))
                answers = statistics.median(window[0] for window in windows[-4:])
                stay = stay + 1 if len(windows) >= 4 and answers >= RATE_SHARE * before else 0
                # Outcomes come many at a time.
                accepted, outcomes = (
                    statistics.mean(window[place] for window in windows[-max(stay, 4) :])
                    for place in (1, 2)
                )
                if stay == 1:
                    reached = time.monotonic()
                if stay and outcomes >= RATE_SHARE * accepted:
                    if time.monotonic() - reached >= stays_s:
                        return reached - begun
                if time.monotonic() - (reached if stay else begun) > self.within_s:
                    raise Violation(
                        f"{before:.0f} answers a second before, and {self.within_s} s after "
                        f"healing {answers:.0f}, {accepted:.0f} accepted, {outcomes:.0f} outcomes"
                    )

    def check_served(self):
        self.rate_check(self.rate_before)

    # One scenario

    def heal(self):
        while self._healers:
            self._healers.pop()()
        self.stack.thaw()
        missing = [name for name in SERVICES if not self.stack.runs(name)]
        if missing:
            self.stack.start(*missing)
        for part in self.parts:
            part.cont()
            part.check_death()
            if part.alive() and part.settings[0]:
                part.terminate()  # its fault was not reached, or froze it
            if not part.alive():
                part.start(**part.settings_own)
            part.calm()

    def run(self, scenario, seed):
        """Returns figures of the run, or raises the violation."""
        chance = random.Random(f"{seed} {scenario.name}")
        self.seed = seed
        self.prepare_parts(scenario.gateways, scenario.workers, scenario.settings)
        try:
            if scenario.prepare:
                scenario.prepare(self, chance)
            return self._run_loaded(scenario, chance, seed)
        except Skipped:
            raise
        except BaseException:
            self.broken = True
            raise
        finally:
            while self._enders:
                self._enders.pop()()

    def _run_loaded(self, scenario, chance, seed):
        began = time.monotonic()
        self._allowed = Allowed(scenario.answers, scenario.reasons, scenario.unknown)
        self.postgresql_goes_back = scenario.events == "complete"
        around = self.around = Around(self)
        self.on_end(around.close)
        has_times = scenario.events != "moved"
        campaigns = [
            Campaign(self.stack, total, limit, seed, self._allowed, VALID_S if has_times else None)
            for total, limit in CAMPAIGNS
        ]
        self._open_wait(campaigns)
        for part in self.parts:
            part.disturbances.clear()
        self._log_sizes = {part.name: part.log_size() for part in self.parts}
        self.witness = Witness(self.stack.env["DATABASE_ADMIN_URL"]).start()
        self.load = TortureLoad(
            campaigns,
            lambda: [(part.name, part.via or part.listen) for part in self.gateways],
            f"{seed} {scenario.name}",
            self.witness.on_answer,
            self.window,
        ).start()
        try:
            around.start(chance)
            self.on_stop(around.stop)
            crowd = Crowd(self) if self.has_rates and scenario.crowd else None
            self.within_s = RATE_WITHIN_CROWD_S if crowd else RATE_WITHIN_S
            self.rate_before = self.rate_measure()
            self._rss = {part.name: part.rss_kb() for part in self.parts}
            for campaign in campaigns[1:] if has_times else ():
                self.expiring_ask(campaign, chance.uniform(1, TELL_WITHIN_S))
            begun_s = now()
            try:
                scenario.function(self, chance)
            finally:
                self.heal()
            if self.has_rates:  # of time-outs as well: other work beside it would exceed some
                self._allowed.moment = (begun_s - ANSWER_S, now() + ANSWER_S)
            back_s, slow = self._rate_back(scenario)
            self.load.stop()
            crowded = crowd.stop() if crowd else 0
            self.crowded += crowded
            self._check_witness()
            self._slow_disk_allow()
            while self._stoppers:
                self._stoppers.pop()()
            issued = sum(campaign.judge() for campaign in campaigns)
            while self._judges:
                self._judges.pop()()
            around.judge(scenario.events)
            self._check_rest()
            if slow:
                raise slow  # last: a loss slows the rate as well
            for campaign in campaigns:
                self.stack.ctl(
                    "close", campaign.coupon
                )  # else later scenarios that flush Redis wait for their rebuild too
        except BaseException:
            self.broken = True
            self.load.stopping.set()
            self._history_write(scenario, seed)
            raise
        finally:
            self.load.stopping.set()
            self._dead_expected, self.trim_expected = 0, False
            self._stoppers.clear()
            self._judges.clear()
        return {
            "asked": sum(len(campaign.lines()) for campaign in campaigns),
            "issued": issued,
            "crowd": crowded,
            "rate": self.rate_before,
            "back_s": back_s,
            "s": time.monotonic() - began,
            "seen": self.witness.share(),
            "codes": dict(self.load.codes()),
        }

    def _rate_back(self, scenario):
        """The seconds until the rate was back, or the violation."""
        try:
            if not scenario.rate:
                return 0.0, None
            return self.rate_check(self.rate_before, RATE_STAYS_S), None
        except Violation as violation:
            return self.within_s, violation

    def _history_write(self, scenario, seed):
        path = self.stack.run_dir / f"history-{scenario.name}-{seed}.jsonl"
        self.load.history_write(path)
        print(f"torture: the history is in {path}", flush=True)

    def _open_wait(self, campaigns):
        for part in self.gateways:
            with part.process.client() as client:
                for campaign in campaigns:
                    wait_until(lambda: client.call("coupon", coupon=campaign.coupon)["code"] == 0)

    def _slow_disk_allow(self):
        """On a busy machine a write of Redis may exceed the time-out of a call. The gateway has
        logged it, and its clients were answered as if Redis was away."""
        slow = sum(
            part.log_since(self._log_sizes[part.name]).count('error="a command')
            for part in self.gateways
        )
        if slow:
            print(f"torture: {slow} connections lost, because Redis was too slow", flush=True)
            self.allow(**REDIS_AWAY)

    def _check_witness(self):
        self.witness.stop()
        if self.witness.false:
            raise Violation(f"P3, P12: answered before it was true: {self.witness.false[0]}")

    def _check_rest(self):
        for part in self.parts:
            part.check_death()
            text = part.process.log_path.read_text(errors="replace")
            if report := next((word for word in REPORTS if word in text), None):
                raise Violation(f"{part.name}: {report} in {part.process.log_path}")
            if any(
                status != "9" for status in re.findall(r"event=process_died .*status=(\d+)", text)
            ):
                raise Violation(
                    f"{part.name}: one of its processes died unexpectedly: {part.process.log_path}"
                )
        disturbances = {part.name: part.disturbances for part in self.gateways}
        if unanswered := self.load.unanswered(lambda name: disturbances.get(name, ())):
            raise Violation(
                "P9: no answer, and nothing happened to that gateway then"
                f" ({disturbances}): {unanswered[0]}"
            )
        for queue in (QUEUE, PARKED_QUEUE, USE_QUEUE):
            wait_until(lambda queue=queue: queue_length(self.stack, queue) == 0)
        dead = queue_length(self.stack, DEAD_QUEUE)
        if dead > self._dead_expected:
            raise Violation(f"{dead} dead letters")
        if dead:
            self._dead_purge()
        if not any(name in self.stack.build_dir.name for name in ("address", "thread")):
            for part in self.parts:
                self._check_memory(part)

    def _dead_purge(self):
        import pika  # pylint: disable=import-outside-toplevel

        with pika.BlockingConnection(pika.URLParameters(self.stack.env["AMQP_URL"])) as connection:
            connection.channel().queue_purge(DEAD_QUEUE)

    def _check_memory(self, part):
        bound = self._rss[part.name] * RSS_FACTOR + RSS_SLACK_KB

        def fits():
            return part.rss_kb() <= bound

        try:
            wait_until(fits)
        except AssertionError:
            raise Violation(
                f"{part.name} has {part.rss_kb()} KB, and had {self._rss[part.name]}"
            ) from None
