"""Wall clocks that are an hour wrong, of gateways, workers and PostgreSQL (Redis': scenario_redis),
and one that steps back. Windows are by Redis' clock alone."""

import time

from scenario_redis import HOUR_S, utc
from services import say

from scenario import OUTCOMES_LATE, POSTGRESQL_AWAY, REDIS_AWAY, scenario
from wall_clock import WallClock

WINDOW_S = 4


def clock_make(rig, _chance):
    rig.clock = WallClock(rig.stack.run_dir)


def window_pass(rig, closes=True):
    """A whole campaign: not begun, open, ended, and closed by the keeper."""
    now = time.time()
    coupon = rig.stack.coupon_make(100, begin=utc(now + WINDOW_S), end=utc(now + 2 * WINDOW_S))
    user = iter(range(1, 100_000))
    with rig.gateways[0].process.client() as client:
        told = []

        def is_told(status):
            answer = client.issue(coupon, next(user))["status"]
            if answer not in told:
                told.append(answer)
            return answer == status

        rig.wait(lambda: is_told("not_started"))
        rig.wait(lambda: is_told("accepted"))
        rig.wait(lambda: is_told("ended") or is_told("out_of_stock"))
        rig.wait(lambda: is_told("ended"))
    order = [status for status in told if status in ("not_started", "accepted", "ended")]
    assert order == ["not_started", "accepted", "ended"], told
    with rig.pg() as pg:
        status = f"SELECT status FROM coupon WHERE id = {coupon}"
        if closes:
            rig.wait(lambda: pg.execute(status).fetchone()[0] == "closed")
    return coupon


def parts_shift(rig, chance, parts):
    rig.on_heal(lambda: rig.clock.set(0))
    for shift_s in chance.sample((HOUR_S, -HOUR_S), 2):
        rig.wait_answers(chance.randint(1, 200))
        say(f"the clocks of {', '.join(part.name for part in parts)}: {shift_s:+} s")
        rig.clock.set(shift_s)
        for part in parts:
            part.restart(**rig.clock.environment)
        rig.wait(lambda: all(part.ready() for part in rig.parts))
        window_pass(rig)
        say("the clocks step to the right time")
        rig.clock.set(0)
        window_pass(rig)
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
    """The same of the workers', and of the keeper's with them."""
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
        say(f"PostgreSQL's clock: {shift_s:+} s")
        rig.clock.set(shift_s)
        coupon = window_pass(rig, closes=shift_s > 0)
        say("PostgreSQL's clock steps to the right time")
        rig.clock.set(0)
        with rig.pg() as pg:
            status = f"SELECT status FROM coupon WHERE id = {coupon}"
            rig.wait(lambda: pg.execute(status).fetchone()[0] == "closed")  # noqa: B023
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
    with rig.pg() as pg:
        closed = f"SELECT status = 'closed' AND issued_num > 0 FROM coupon WHERE id = {coupon}"
        rig.wait(lambda: pg.execute(closed).fetchone()[0])
