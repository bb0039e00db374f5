"""Wall clocks that are an hour wrong, of gateways, workers and PostgreSQL (Redis': scenario_redis),
and one that steps back. Windows are by Redis' clock alone."""

import time

from scenario_redis import HOUR_S
from services import say

from scenario import OUTCOMES_LATE, POSTGRESQL_AWAY, REDIS_AWAY, scenario
from stack import utc
from wall_clock import WallClock

WINDOWS_S = (4, 16, 64)


def clock_make(rig, _chance):
    rig.clock = WallClock(rig.stack.run_dir)


def windows(rig):
    """Campaigns that begin soon, each with a longer window than the one before."""
    for window_s in WINDOWS_S:
        now = time.time()
        yield rig.stack.coupon_make(10**6, begin=utc(now + window_s), end=utc(now + 2 * window_s))


def window_pass(rig, coupons):
    """A whole campaign: not begun, open, ended. Returns its coupon: the first of which the machine
    was not too busy to see that."""
    for coupon in coupons:
        told, user = [], iter(range(1, 10**6))
        with rig.gateways[0].process.client() as client:
            while told[-1:] != ["ended"]:
                answer = client.issue(coupon, next(user))["status"]
                if told[-1:] != [answer]:
                    told.append(answer)
        seen = [status for status in told if status in ("not_started", "accepted", "ended")]
        assert seen == [one for one in ("not_started", "accepted", "ended") if one in seen], told
        if len(seen) == 3:
            return coupon
    raise AssertionError(told)


def status_of(rig, coupon):
    with rig.pg() as pg:
        return pg.execute(f"SELECT status FROM coupon WHERE id = {coupon}").fetchone()[0]


def closed_wait(rig, coupon):
    rig.wait(lambda: status_of(rig, coupon) == "closed")


def parts_shift(rig, chance, parts):
    rig.on_heal(lambda: rig.clock.set(0))
    for shift_s in chance.sample((HOUR_S, -HOUR_S), 2):
        rig.wait_answers(chance.randint(1, 200))
        say(f"the clocks of {', '.join(part.name for part in parts)}: {shift_s:+} s")
        rig.clock.set(shift_s)
        for part in parts:
            part.restart(**rig.clock.environment)
        rig.wait(lambda: all(part.ready() for part in rig.parts))
        closed_wait(rig, window_pass(rig, windows(rig)))
        say("the clocks step to the right time")
        rig.clock.set(0)
        closed_wait(rig, window_pass(rig, windows(rig)))
    for part in parts:
        part.restart()
    rig.wait_answers(200)


@scenario(prepare=clock_make, events="moved", **OUTCOMES_LATE)
def clock_of_gateways(rig, chance):
    """The gateways' clocks an hour ahead, and an hour behind; each steps to the right time."""
    rig.allow(answers=("unavailable",))
    parts_shift(rig, chance, rig.gateways)


@scenario(prepare=clock_make, events="moved", **OUTCOMES_LATE)
def clock_of_workers(rig, chance):
    """Shifts the clocks of the workers, and of the keeper with them."""
    parts_shift(rig, chance, rig.workers)


def clock_of_the_database(rig, chance):
    clock_make(rig, chance)
    rig.stack.restart("postgres", **rig.clock.environment)
    rig.on_end(lambda: rig.stack.restart("postgres"))
    rig.wait(lambda: all(part.ready() for part in rig.parts))


@scenario(prepare=clock_of_the_database, events="moved", **POSTGRESQL_AWAY)
def clock_of_postgresql(rig, chance):
    """PostgreSQL's clock an hour ahead, and behind: campaigns begin and end by Redis' clock, and
    are closed when both say so."""
    rig.on_heal(lambda: rig.clock.set(0))
    for shift_s in chance.sample((HOUR_S, -HOUR_S), 2):
        rig.wait_answers(chance.randint(1, 200))
        # couponctl refuses an end that has passed by PostgreSQL's clock.
        coupons = list(windows(rig))
        say(f"PostgreSQL's clock: {shift_s:+} s")
        rig.clock.set(shift_s)
        coupon = window_pass(rig, coupons)
        if shift_s > 0:
            closed_wait(rig, coupon)
        assert shift_s > 0 or status_of(rig, coupon) == "published"
        say("PostgreSQL's clock steps to the right time")
        rig.clock.set(0)
        closed_wait(rig, coupon)
    rig.wait_answers(200)


DAY_S = 86400
BEGINS_DAY, ENDS_DAY, DAYS = 2, 30, 32


def all_clocks_make(rig, chance):
    clock_make(rig, chance)
    rig.stack.stop("redis", "postgres")
    rig.stack.start("redis", "postgres", **rig.clock.environment)
    rig.on_end(lambda: [rig.stack.restart(name) for name in ("redis", "postgres")])
    for part in rig.parts:
        part.restart(**rig.clock.environment)
    rig.wait(lambda: all(part.ready() for part in rig.parts))


@scenario(prepare=all_clocks_make, events="moved", **{**POSTGRESQL_AWAY, **REDIS_AWAY})
def clock_of_a_month(rig, chance):
    """A campaign of 28 days in 28 steps of a day, of all clocks at once: each time every lease has
    run out."""
    rig.broken = True  # later its clocks would be a month behind
    begun = time.time()
    coupon = rig.stack.coupon_make(
        1000,
        begin=utc(begun + BEGINS_DAY * DAY_S),
        end=utc(begun + ENDS_DAY * DAY_S),
        valid_days=90,
    )
    user = iter(range(1, 1000))
    for day in range(DAYS):
        rig.clock.set(day * DAY_S)
        wanted = "not_started" if day < BEGINS_DAY else "accepted" if day < ENDS_DAY else "ended"
        with rig.gateways[0].process.client() as client:
            rig.wait(lambda: client.issue(coupon, next(user))["status"] == wanted)  # noqa: B023
        rig.wait_answers(chance.randint(5, 20))
    closed_wait(rig, coupon)
    with rig.pg() as pg:
        issued = f"SELECT issued_num FROM coupon WHERE id = {coupon}"
        assert pg.execute(issued).fetchone()[0] >= ENDS_DAY - BEGINS_DAY
