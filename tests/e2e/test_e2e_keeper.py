"""The keeper's work on all campaigns: it ends them, is bounded, checks their counts, and is
replaced."""

import struct
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import pytest

from coupon_seen import Seen, copied_before, keeper_fence, rounds_pass
from script_coupon import run_id_of
from stack import wait_until

ENDED = 3


def at(**from_now):
    return (datetime.now(timezone.utc) + timedelta(**from_now)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def end_move(one, end):
    one.pg.execute(
        "UPDATE coupon SET end_at = %s, version = version + 1 WHERE id = %s", (end, one.coupon)
    )


# The end of a campaign


def test_a_campaign_is_closed_after_its_end(rough, rough_coupon):
    published, paused, later = (rough_coupon(end=at(hours=1)) for _ in range(3))
    draft = rough_coupon(loaded=False, end=at(hours=1), publish=False)
    rough.ctl("pause", paused.coupon)
    end = at(seconds=1)
    for one in (published, paused, draft):
        end_move(one, end)

    def is_over():
        """A second after it, for what is under way."""
        redis_s, redis_us = published.redis.time()
        end_s = datetime.fromisoformat(end.replace("Z", "+00:00")).timestamp()
        return redis_s + redis_us / 1e6 - 1 >= end_s

    wait_until(lambda: published.row("status") == ("closed",) or is_over())
    assert is_over()
    rounds_pass(rough, 3)
    for one in (published, paused):
        assert (one.row("status"), one.field("status")) == (("closed",), "closed")
        assert rough.log("worker-1").count(f"event=coupon_ended coupon={one.coupon} ") == 1
    assert (later.row("status"), draft.row("status"), later.field("status")) == (
        ("published",),
        ("draft",),
        "open",
    )
    with rough.client() as client:
        assert client.issue(published.coupon, 1)["code"] == ENDED


def test_an_end_that_was_moved_counts(rough, rough_coupon):
    moved, other = (rough_coupon(end=at(hours=2)) for _ in range(2))
    end = at(seconds=4)
    end_move(moved, end)
    end_move(other, end)
    end_move(moved, at(hours=1))
    wait_until(lambda: other.row("status") == ("closed",))
    assert moved.row("status") == ("published",)


def test_a_new_keeper_raises_every_fence(rough, rough_coupon, worker_make):
    coupons = [rough_coupon() for _ in range(3)]
    before = keeper_fence(coupons[0].pg)
    rough.kill9("worker-1")
    worker = worker_make(rough)
    wait_until(lambda: {one.field("fence") for one in coupons} == {str(before + 1)})
    assert "keeper_elected" in worker.log()


# Bounds


@contextmanager
def published(pg, count):
    first = pg.execute("SELECT greatest(max(id), 5000000000) FROM coupon").fetchone()[0]
    made = "SELECT %s + i, 'many', 1, 'published' FROM generate_series(1, %s) AS i"
    pg.execute(f"INSERT INTO coupon (id, name, total_num, status) {made}", (first, count))
    yield range(first + 1, first + 1 + count)
    pg.execute(
        "UPDATE coupon SET status = 'closed', version = version + 1, settled_at = now(),"
        " expires_at = now() WHERE id > %s",
        (first,),
    )


@pytest.fixture
def many(rough_pg):
    """Published coupons, more than a round of the keeper can check."""
    with published(rough_pg, 1500) as coupons:
        yield coupons


def test_a_page_is_verified_by_one_statement(rough_redis, rough_pg, keeper_behind):
    _, gate = keeper_behind("DATABASE_URL")
    with published(rough_pg, 5) as coupons:
        run_id = run_id_of(rough_redis)

        def all_run_ids(command, *args):
            with rough_redis.pipeline() as pipe:
                for coupon in coupons:
                    getattr(pipe, command)(f"coupon:{{{coupon}}}", "run_id", *args)
                return set(pipe.execute())

        def unverified():
            all_run_ids("hset", "f" * 40)
            return gate.trapped_num()

        wait_until(lambda: all_run_ids("hget") == {run_id}, timeout=60)
        # Two ids in one array, as PostgreSQL's binary format has them.
        gate.trap(b"".join(struct.pack(">iq", 8, coupon) for coupon in coupons[-2:]))
        wait_until(unverified, timeout=60)
        gate.let_go()
        wait_until(lambda: all_run_ids("hget") == {run_id}, timeout=60)


@pytest.mark.long
def test_new_terms_of_one_among_many(rough, rough_redis, rough_pg, many, worker_make):
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_KEEPER_ROUND_MS=2000, COUPON_KEEPER_LEASE_MS=2000)
    wait_until(lambda: worker.metrics()["couponmq_keeper_coupons{open}"] >= len(many), timeout=120)
    elections = keeper_fence(rough_pg)
    others = worker.metrics()
    paused = others["couponmq_keeper_coupons{paused}"]
    for coupon in many[::400]:
        rough_pg.execute(
            "UPDATE coupon SET status = 'paused', version = version + 1 WHERE id = %s", (coupon,)
        )
        wait_until(
            lambda coupon=coupon: rough_redis.hget(f"coupon:{{{coupon}}}", "status") == "paused",
        )
    paused += len(many[::400])
    metrics = wait_until(
        lambda: (told := worker.metrics())["couponmq_keeper_coupons{paused}"] == paused and told,
    )
    assert metrics["couponmq_keeper_coupons{unavailable}"] == 0
    unequal = "couponmq_keeper_coupons_unequal"
    assert metrics[unequal] == others[unequal]
    assert keeper_fence(rough_pg) == elections, "the lock was kept"


@pytest.mark.long
def test_all_are_verified_after_redis_was_restarted(rough, rough_redis, many, worker_make):
    rough.stop("worker-1")
    worker = worker_make(rough)
    wait_until(lambda: worker.metrics()["couponmq_keeper_coupons{open}"] >= len(many), timeout=120)
    rough.restart("redis")
    run_id = run_id_of(rough_redis)
    wait_until(
        lambda: all(
            rough_redis.hget(f"coupon:{{{coupon}}}", "run_id") == run_id for coupon in many[::100]
        ),
    )


def others_settle(pg, cache, ids):
    """Coupons that tests before have left may always give the keeper something to do: closes
    them."""
    ids = [*map(int, ids)]
    closed = pg.execute(
        "UPDATE coupon SET status = 'closed', version = version + 1"
        " WHERE status IN ('published', 'paused') AND id <> ALL (%s) RETURNING id",
        (ids,),
    ).fetchall()
    for (one,) in closed:
        wait_until(lambda one=one: cache.hget(f"coupon:{{{one}}}", "status") == "closed")
    pg.execute(
        "UPDATE coupon SET settled_at = now(), expires_at = now() + interval '1 day'"
        " WHERE status = 'closed' AND settled_at IS NULL AND id <> ALL (%s)",
        (ids,),
    )


@pytest.mark.long
def test_at_rest_few_are_looked_at_until_something_happens(
    rough, rough_redis, rough_pg, many, worker_make
):
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_KEEPER_ROUND_MS=200)

    def rests():
        pages = len(many) // 100
        return worker.metrics()["couponmq_keeper_sweep_milliseconds"] >= pages * 200

    wait_until(lambda: worker.metrics()["couponmq_keeper_coupons{open}"] >= len(many), timeout=120)
    others_settle(rough_pg, rough_redis, many)
    wait_until(rests)
    lost = many[-1]
    rough_redis.delete(f"coupon:{{{lost}}}")
    wait_until(lambda: rough_redis.hget(f"coupon:{{{lost}}}", "generation") == "2")
    wait_until(lambda: not rests())
    wait_until(rests)
    ended = many[-2]
    end_move(Seen(ended, rough_redis, rough_pg), at(seconds=2))
    status = "SELECT status FROM coupon WHERE id = %s"
    wait_until(lambda: rough_pg.execute(status, (ended,)).fetchone() == ("closed",))


def test_what_redis_refuses_is_put_off(rough, rough_redis, rough_pg, rough_coupon):
    other = rough_coupon()  # a keeper is elected
    coupon = Seen(rough.ctl("create", "--name", "refused", "--total", 5), rough_redis, rough_pg)
    wrong = [f"{coupon.key}:fill:{generation}:users" for generation in range(1, 10)]
    rough_redis.mset(dict.fromkeys(wrong, "not a hash"))
    try:
        rough.ctl("publish", coupon.coupon, "--wait-s", 0)
        line = f"event=coupon_put_off coupon={coupon.coupon} for_ms="
        wait_until(lambda: rough.log_has("worker-1", line + "2000"))
        assert coupon.row("generation")[0] <= 3, "one for each attempt, not for each round"
        assert set(coupon.field("run_id")) == {"0"}, "it is not open"
        rough.ctl("pause", other.coupon)
        wait_until(lambda: other.field("status") == "paused")
    finally:
        rough_redis.delete(*wrong)
    rough.ctl("pause", coupon.coupon)
    wait_until(lambda: coupon.field("status") == "paused")


# The numbers


def unequal(worker):
    """The count over all coupons, those of other tests too."""
    return worker.metrics()["couponmq_keeper_coupons_unequal"]


def test_numbers_that_do_not_add_up_are_told_once(rough, rough_coupon, worker_make):
    coupon = rough_coupon(total=10)
    rough.stop("worker-1")
    worker = worker_make(rough)
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
        wait_until(lambda: worker.metrics()["couponmq_keeper_rounds_total"] > 5)
        others = unequal(worker)
        coupon.redis.hincrby(coupon.key, "stock", 1)
        wait_until(lambda: unequal(worker) == others + 1)
        assert client.issue(coupon.coupon, 2, ack="issued")["status"] == "issued"
        rounds_pass(worker)
        assert unequal(worker) == others + 1
    assert worker.log().count(f"event=coupon_unequal coupon={coupon.coupon} ") == 1
    coupon.redis.hincrby(coupon.key, "stock", -1)
    wait_until(lambda: unequal(worker) == others)


def test_what_is_in_flight_and_in_the_outbox(rough, rough_coupon, worker_make):
    coupon = rough_coupon(total=10)
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_RESEND_AFTER_MS=3_600_000)
    wait_until(lambda: worker.metrics()["couponmq_keeper_elected"] == 1)
    worker_names = ("couponmq_keeper_receives_in_flight", "couponmq_keeper_outbox_messages")
    rounds_pass(worker)
    before = [worker.metrics()[name] for name in worker_names]  # of coupons of other tests

    def told():
        return [worker.metrics()[name] - count for name, count in zip(worker_names, before)]

    coupon.redis.hincrby(coupon.key, "seq", 1)
    coupon.redis.hincrby(coupon.key, "stock", -1)
    coupon.redis.hset(coupon.key + ":outbox", "0" * 26, "not a message")
    others = unequal(worker)
    wait_until(lambda: told() == [1, 1])
    assert unequal(worker) == others
    coupon.redis.delete(coupon.key + ":outbox")
    coupon.redis.hincrby(coupon.key, "seq", -1)
    coupon.redis.hincrby(coupon.key, "stock", 1)
    wait_until(lambda: told() == [0, 0])


def test_only_the_keeper_tells_of_coupons(rough, rough_coupon, worker_make):
    rough_coupon()
    other = worker_make(rough)
    wait_until(lambda: other.metrics()["couponmq_keeper_redis_up"] == 1)
    assert other.metrics()["couponmq_keeper_elected"] == 0
    assert {
        value
        for name, value in other.metrics().items()
        if name.startswith("couponmq_keeper_coupons{")
    } == {0}


# A PostgreSQL that may be put back


def test_the_number_of_new_terms_is_copied_before_redis_gets_them(rough, rough_coupon, rough_owner):
    """They are committed after the keeper has compared the numbers, and before it reads them: it
    waits for the row of another coupon meanwhile."""
    one = rough_coupon(total=10)
    counts = "SELECT stripe::text, num::text FROM change_count"
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    raised = "UPDATE coupon SET total_num = 20, version = version + 1 WHERE id = %s"
    rough.sigstop("worker-1")
    other = rough.coupon_make(10)
    with one.redis.monitor() as monitor:
        with rough_owner.transaction():
            rough_owner.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (other,))
            rough.sigcont("worker-1")
            wait_until(lambda: one.pg.execute(waiting).rowcount > 0)
            before = set(one.pg.execute(counts).fetchall())
            one.pg.execute(raised, (one.coupon,))
            grown = dict(set(one.pg.execute(counts).fetchall()) - before)
        wait_until(lambda: one.field("total") == "20")
        assert grown.items() <= copied_before(monitor, one.coupon, "20").items()
    assert len(grown) == 1
