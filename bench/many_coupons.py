"""Requests spread over many coupons at random, of users with random ids."""

import time

import cpu
from idle import idle_percent
from rig import (
    AMPLE,
    SCALE,
    at_least,
    database_open,
    failures,
    figures,
    has,
    redis_open,
    rows_per_s,
    rush,
    times,
)

COUNTS = [max(1, count // SCALE) for count in (1, 30, 1000, 10_000)]
USERS = 200_000 // SCALE
OPTIONS = ("--connections", 50, "--pipeline", 64, "--user-seed", 1, "--settle-timeout-s", 120)
# The least rate of rows, as a share of the rate of one coupon, by the number of coupons.
WANTED = {1000: 0.40, 10_000: 0.25}
LOAD_TIMEOUT_S = 300


def coupons_make(count):
    """Published in one transaction. Returns them when the keeper has opened them all in Redis, and
    how long that took."""
    with database_open() as db:
        made = db.execute(
            "INSERT INTO coupon (id, name, total_num, valid_days, status)"
            " SELECT coupon_id_next(), 'many coupons', %s, 30, 'published'"
            " FROM generate_series(1, %s) RETURNING id",
            (AMPLE // 1000, count),
        )
        coupons = [coupon for (coupon,) in made]
    begin_s = time.monotonic()
    client = redis_open()
    waiting = coupons
    while waiting and time.monotonic() - begin_s < LOAD_TIMEOUT_S:
        time.sleep(0.05)
        pipeline = client.pipeline(transaction=False)
        for coupon in waiting:
            pipeline.hget(f"coupon:{{{coupon}}}", "status")
        found = zip(waiting, pipeline.execute())
        waiting = [coupon for coupon, status in found if status != b"open"]
    if waiting:
        failures.append(f"{len(waiting)} of {count} coupons not open after {LOAD_TIMEOUT_S} s")
    return coupons, time.monotonic() - begin_s


def spread_over(coupons):
    count = len(coupons)
    with cpu.Meter() as meter:
        result = rush(coupons, USERS, *OPTIONS, name=f"{count} coupons")
        figures[f"many_{count}_cpu_us"] = meter.rush_costs(result)
    figures[f"many_{count}_answers_per_s"] = result["per_second"]
    figures[f"many_{count}_rows_per_s"] = rows_per_s(result)


def many_coupons_measure():
    for count in COUNTS:
        coupons, figures[f"many_{count}_open_s"] = coupons_make(count)
        spread_over(coupons)
    figures["many_idle_percent"] = idle_percent()


MEASURES = (many_coupons_measure,)


def rows():
    f = figures
    if not has(f"many_{COUNTS[-1]}_rows_per_s"):
        return
    yield "many coupons, 50 connections x 64, random users", None, None
    for count in COUNTS:
        label = f"  {count:,} coupon{'s' if count > 1 else ''}: answers / committed rows"
        name = f"many_{count}_rows_per_s"
        rates = f"{f[f'many_{count}_answers_per_s']:,.0f} / {f[name]:,.0f} /s"
        ratio = times(name, "many_1_rows_per_s", "one coupon", 2) if count > 1 else ""
        if count in WANTED:
            ratio += f", {at_least(f[name] / f['many_1_rows_per_s'], WANTED[count])}"
        yield label, rates, ratio
        yield cpu.row(f[f"many_{count}_cpu_us"], "receive")
    count = COUNTS[-1]
    opened_s = f[f"many_{count}_open_s"]
    label = f"  {count:,} coupons from published to open"
    yield label, f"{opened_s:.1f} s", f"{count / opened_s:,.0f} /s"
    label = f"  at rest, {sum(COUNTS):,} open: CPU of gateway and 2 workers"
    yield label, f"{f['many_idle_percent']:.2f} %", "of a core"
