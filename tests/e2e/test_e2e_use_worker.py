"""Uses of receives, from the queue to the reply: what PostgreSQL and Redis have then."""

import json
import time
from datetime import datetime

import pytest

from stack import wait_until
from uses import CHANGES, USES, Shop, receive_of


@pytest.fixture
def shop_of():
    made = []

    def make(stack):
        made.append(Shop(stack))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


def test_used_and_given_back(stack, shop_of, redis_client, pg):
    shop, coupon = shop_of(stack), stack.coupon_make(10)
    one, other = (receive_of(stack, coupon, user) for user in ("1", "2"))
    assert shop.use(("hold", "a", one), ("use", "b", one), ("use", "b", other)) == [
        "held",
        "held_by_other",
        "used",
    ]
    kept = [json.loads(record) for record in redis_client.lrange(USES, 0, -1)]
    assert [(r[7], r[10], r[13]) for r in kept if r[3] == str(coupon)] == [
        ("hold", "a", "held"),
        ("use", "b", "used"),
    ]
    assert shop.use(
        ("use", "a", one), ("rollback", "b", other), ("use", "a", [str(coupon), "2"])
    ) == [
        "used",
        "rolled_back",
        "used",
    ]
    assert (
        pg.execute(
            "SELECT state, order_id FROM receive_use WHERE coupon_id = %s", (coupon,)
        ).fetchall()
        == [("used", "a")] * 2
    )


def test_what_is_no_use_is_dead_lettered(stack, shop_of):
    shop, coupon = shop_of(stack), stack.coupon_make(10)
    one = receive_of(stack, coupon, "1")
    shop.send(("burn", "a", one))
    assert shop.use(("use", "a", one)) == ["used"]
    wait_until(lambda: any(b'"burn"' in body for body in dead_take(shop)))


def dead_take(shop):
    _, _, body = shop.channel.basic_get("coupon.receive.dead", auto_ack=True)
    return [body] if body else []


# Redis away, killed workers, a server that was started again


def used_num(pg, coupon):
    query = "SELECT count(*) FROM receive_use WHERE coupon_id = %s AND state = 'used'"
    return pg.execute(query, (coupon,)).fetchone()[0]


def test_killed_between_commit_and_redis(rough, shop_of, rough_redis, rough_pg):
    """It is answered when both have it, by the worker that gets the message again."""
    shop, coupon = shop_of(rough), rough.coupon_make(10)
    one, other = (receive_of(rough, coupon, user) for user in ("1", "2"))
    assert shop.use(("use", "a", one)) == ["used"]
    failed = rough.log("worker-1").count("uses_failed")
    rough.sigstop("redis")
    batch = shop.send(("use", "b", other))
    wait_until(lambda: used_num(rough_pg, coupon) == 2)
    wait_until(lambda: rough.log("worker-1").count("uses_failed") > failed)
    rough.kill9("worker-1")
    rough.sigcont("redis")
    shop.connection.process_data_events(0.5)
    assert not [reply for reply in shop.replies if reply["batch"] == batch]
    rough.start("worker-1")
    assert shop.reply(batch) == ["used"]
    kept = [json.loads(record) for record in rough_redis.lrange(USES, 0, -1)]
    orders = [r[10] for r in kept if r[3] == str(coupon)]
    assert [orders[0], *{*orders[1:]}] == ["a", "b"], "a copy of a record does no harm"


def test_redis_is_away_for_a_while(rough, shop_of, rough_redis, rough_pg):
    shop, coupon = shop_of(rough), rough.coupon_make(10)
    one = receive_of(rough, coupon, "1")
    rough.kill9("redis")
    batch = shop.send(("use", "a", one))
    wait_until(lambda: used_num(rough_pg, coupon) == 1)
    rough.start("redis")
    assert shop.reply(batch, 60) == ["used"]
    assert json.loads(rough_redis.lindex(USES, -1))[10] == "a"


def test_what_an_earlier_server_has_committed_is_executed_again(rough, shop_of, rough_redis):
    """Another session has met a server since that was started later. This one is left, and the
    next one finds what is there."""
    shop, coupon = shop_of(rough), rough.coupon_make(10)
    one, other = (receive_of(rough, coupon, user) for user in ("1", "2"))
    assert shop.use(("use", "a", one)) == ["used"]
    rough_redis.hset("couponmq:changes", "started", "another")
    assert shop.use(("use", "b", other)) == ["used"]
    assert rough_redis.hget("couponmq:changes", "started") != "another"
    orders = [json.loads(record)[10] for record in rough_redis.lrange(USES, 0, -1)]
    assert orders[-2:] == ["a", "b"]


# The keeper fills Redis again


def list_lost(stack, cache):
    """And all that tells that it was there, with the process."""
    cache.delete(USES)
    cache.hdel(CHANGES, "uses_run", "uses_from", "uses_bytes", "uses_since")
    stack.kill9("redis")
    stack.start("redis")


@pytest.mark.parametrize(
    "lose",
    [list_lost, lambda _, cache: cache.delete(USES), lambda _, cache: cache.flushall()],
    ids=["whole", "evicted", "flushed"],
)
def test_redis_has_lost_the_list(rough, shop_of, rough_redis, rough_pg, lose):
    """It gets the same records in the same order, and those that came meanwhile."""
    shop, coupon = shop_of(rough), rough.coupon_make(10)
    receives = [receive_of(rough, coupon, str(user)) for user in range(3)]
    for one in receives[:2]:
        assert shop.use(("hold", "a", one), ("use", "a", one)) == ["held", "used"]
    before = [*dict.fromkeys(rough_redis.lrange(USES, 0, -1))]  # there may be copies
    rough_redis.hset(CHANGES, "uses_from", "0")
    lose(rough, rough_redis)
    assert shop.use(("use", "b", receives[2])) == ["used"]
    wait_until(lambda: len(set(rough_redis.lrange(USES, 0, -1))) == len(before) + 1, 60)
    wait_until(lambda: rough_redis.hget(CHANGES, "uses_from") == "0")
    kept = rough_redis.lrange(USES, 0, -1)
    assert kept[: len(before)] == before
    assert int(rough_redis.hget("couponmq:changes", "uses_bytes")) >= sum(map(len, kept))


def test_a_restart_of_redis_keeps_the_list(rough, shop_of, rough_redis):
    shop, coupon = shop_of(rough), rough.coupon_make(10)
    assert shop.use(("use", "a", receive_of(rough, coupon, "1"))) == ["used"]
    before = rough_redis.lrange(USES, 0, -1)
    run = rough_redis.hget("couponmq:changes", "uses_run")
    rough.kill9("redis")
    rough.start("redis")
    wait_until(lambda: rough_redis.hget("couponmq:changes", "uses_run") not in (run, None), 60)
    assert rough_redis.lrange(USES, 0, -1) == before
    assert rough_redis.hget("couponmq:changes", "uses_from") in (None, "0")


def test_a_full_redis_keeps_issuing(rough, shop_of, rough_redis):
    """The keeper removes the oldest of the list, and show tells since when it is there."""
    shop, coupon = shop_of(rough), rough.coupon_make(10)
    assert shop.use(("use", "a", receive_of(rough, coupon, "1"))) == ["used"]
    rough_redis.setrange("ballast", 50_000_000, "x")
    used = rough_redis.info("memory")["used_memory"]
    rough_redis.config_set("maxmemory", int(used / 0.92))
    try:
        wait_until(lambda: rough_redis.llen(USES) == 0)
        assert shop.use(("use", "a", receive_of(rough, coupon, "2"))) == ["used"]
    finally:
        rough_redis.config_set("maxmemory", 0)
        rough_redis.delete("ballast")
    since_ms = int(rough_redis.hget("couponmq:changes", "uses_since"))
    assert 0 < since_ms <= time.time() * 1000
    shown = json.loads(rough.ctl("show", coupon, "--json"))["redis"]
    told = datetime.fromisoformat(shown["uses_since"].replace("Z", "+00:00"))
    assert round(told.timestamp() * 1000) == since_ms
    assert "bytes of all coupons in Redis, since 2" in rough.ctl("show", coupon)
