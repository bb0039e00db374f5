"""couponctl audit of a coupon at rest: finds every planted error exactly, and changes nothing."""

import psycopg
import pytest

from audit_ground import SETTLED_USERS, Ground, check_told, user, wrong
from audit_plants import ANYWHERE, AT_REST, OF_ANY_LIMIT, OF_ORDERS, slot_removed

WORKERS = ("worker-1", "worker-2")


@pytest.fixture(scope="module")
def resting(stack, request):
    """A coupon of this limit without load. No worker runs: a keeper would mend what is planted."""
    ground = Ground(stack, request.param)
    assert ground.rejected
    stack.stop(*WORKERS)
    assert wrong(stack, ground.coupon) == []
    yield ground
    stack.start(*WORKERS)
    stack.ctl("close", ground.coupon)
    ground.close()


def finds(stack, ground, plant):
    expected, undo = plant(ground)
    told = wrong(stack, ground.coupon)
    undo()
    check_told(told, expected, ground.coupon)
    assert wrong(stack, ground.coupon) == [], "it is as it was"


@pytest.mark.long
@pytest.mark.parametrize(
    "resting, plant",
    [(1, plant) for plant in OF_ANY_LIMIT] + [(2, plant) for plant in ANYWHERE + AT_REST],
    indirect=["resting"],
)
def test_finds_at_rest(stack, resting, plant):
    finds(stack, resting, plant)


@pytest.mark.long
@pytest.mark.parametrize(
    "resting, plant", [(2, plant) for plant in OF_ORDERS], indirect=["resting"]
)
def test_finds_what_orders_did(stack, resting, plant):
    finds(stack, resting, plant)


@pytest.mark.parametrize("resting", [2], indirect=True)
def test_a_line_names_the_place(stack, resting):
    expected, undo = slot_removed(resting)
    try:
        result = stack.ctl_run("audit", resting.coupon)
    finally:
        undo()
    line = result.stdout.splitlines()[0]
    assert line.startswith(
        f"WRONG P4: coupon {resting.coupon}, user {user(8)}, slot 1, receive"
        f" {expected['receive']}: "
    )
    assert (
        line.endswith("(slot_missing)")
        and result.stdout.splitlines()[-1] == "FAIL: 1 coupon audited, 1 wrong"
    )


def rows_read(coupon, pg):
    """Every row of the coupon with its version, which each write and each row lock changes."""
    tables = ("coupon", "coupon_generation", "coupon_late", "user_coupon", "receive_rejected")
    return {
        table: sorted(
            pg.execute(
                f"SELECT t.tableoid::text, t.ctid::text, t.xmin::text, t.xmax::text, t::text"
                f" FROM {table} AS t WHERE {'id' if table == 'coupon' else 'coupon_id'} = %s",
                (coupon,),
            ).fetchall()
        )
        for table in tables
    }


@pytest.mark.parametrize("resting", [2], indirect=True)
def test_changes_nothing(stack, resting, pg_owner):
    """Neither Redis nor PostgreSQL is changed by an audit; it takes no row locks either."""

    def state():
        keys = (resting.key + suffix for suffix in ("", ":users", ":outbox"))
        return [resting.redis.dump(key) for key in keys], rows_read(resting.coupon, pg_owner)

    def is_same_after_an_audit():
        before = state()
        assert len(before[1]["user_coupon"]) >= SETTLED_USERS
        commands = resting.redis.info("commandstats")
        wrong(stack, resting.coupon)
        used = {
            name
            for name, told in resting.redis.info("commandstats").items()
            if told["calls"] > commands.get(name, {"calls": 0})["calls"]
        }
        assert {"cmdstat_hscan", "cmdstat_hmget"} <= used
        return state() == before

    assert is_same_after_an_audit()
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (resting.coupon,))
        holder.execute("SELECT FROM user_coupon WHERE coupon_id = %s FOR UPDATE", (resting.coupon,))
        assert wrong(stack, resting.coupon) == [], "it does not wait for another session's lock"
