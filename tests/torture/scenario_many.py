"""
Faults while requests are spread over 300 coupons, so that messages carry many batches and
transactions many coupons. `coupon-rush` checks P1 to P3 of each coupon, the audit all of them.
"""

from concurrent.futures import ThreadPoolExecutor

import psycopg
from crowd import ENDS_S, rushes
from faults import FAULTS
from scenario_broker_lost import purged
from scenario_saturated import ALLOWED
from services import say

from scenario import OUTCOMES_LATE, scenario

COUPONS = 300
USERS, RATE = 20_000, 1_500  # of each gateway, so 13 s
MAKE = """INSERT INTO coupon (id, name, total_num, user_limit, valid_days, status, version)
    SELECT coupon_id_next(), 'many', %s, 1, 30, 'published', 1 FROM generate_series(1, %s)
    RETURNING id"""


def of_each(rig, coupons, field):
    with rig.redis() as cache, cache.pipeline(transaction=False) as pipeline:
        for coupon in coupons:
            pipeline.hget(f"coupon:{{{coupon}}}", field)
        return pipeline.execute()


def accepted_n(rig, coupons):
    return sum(int(seq or 0) for seq in of_each(rig, coupons, "seq"))


def coupons_close(rig, coupons):
    """Each waits until the gateways know."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda coupon: rig.stack.ctl("close", coupon), coupons))


def coupons_make(rig):
    """A third of them is sold out before all users have asked. They are closed at the end."""
    with psycopg.connect(rig.stack.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        ids = [str(row[0]) for total, n in ((60, COUPONS // 3), (10**6, COUPONS - COUPONS // 3))
               for row in pg.execute(MAKE, (total, n))]  # fmt: skip
    rig.on_end(lambda: coupons_close(rig, ids))
    rig.wait(lambda: all(of_each(rig, ids, "run_id")), 60)
    return ids


def many(rig, coupons):
    """The load on these coupons, which ends by itself."""
    return rushes(rig, ("--coupon", ",".join(coupons)), 10**6, USERS, RATE)


def audited(rig):
    rig.wait(lambda: rig.stack.ctl_run("audit", "--all").returncode == 0, ENDS_S)


def many_scenario(fault):
    def run(rig, chance):
        coupons = coupons_make(rig)
        with many(rig, coupons):
            for _ in range(3):
                before = accepted_n(rig, coupons)
                rig.wait(lambda: accepted_n(rig, coupons) > before + 500)  # noqa: B023
                with FAULTS[fault].lasting(rig, chance):
                    rig.pause(chance, 0.1, 1.0)
        say(f"{accepted_n(rig, coupons)} accepted of {COUPONS} coupons")
        audited(rig)

    run.__name__ = f"many_{fault}"
    run.__doc__ = f"{fault} three times, while 300 coupons are asked for."
    scenario(beside=False, rate=False, crowd=False, **ALLOWED)(run)


for _fault in ("gateway_killed", "workers_killed", "rabbitmq_connections_closed",
               "postgresql_commits_wait", "postgresql_coupon_locked"):  # fmt: skip
    many_scenario(_fault)


@scenario(beside=False, rate=False, crowd=False, **{**ALLOWED, **OUTCOMES_LATE})
def many_purged(rig, chance):
    """RabbitMQ loses messages of 300 coupons that it has confirmed: the keeper publishes them
    again."""
    coupons = coupons_make(rig)
    with many(rig, coupons):
        for part in rig.workers:
            part.kill9()
        before = accepted_n(rig, coupons)
        rig.wait(lambda: accepted_n(rig, coupons) > before + chance.randint(500, 2000))
        purged(rig)
        for part in rig.workers:
            part.start()
    audited(rig)
