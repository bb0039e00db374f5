"""The slots of rejected receives are freed in Redis: at once, or later by the keeper, and never
twice."""

import pytest

from coupon_seen import KEEPER_LOCK, Seen, keeper_usurp
from history import History
from process import confirmed_wait
from relay import Relay, port_of
from script_coupon import run_id_of
from stack import wait_until
from ulid import ulid_make, ulid_uuid

REJECTED, OUT_OF_STOCK, LIMIT_REACHED, UNAVAILABLE = 9, 2, 4, 21


class Rejecting(Seen):
    """A coupon with rejected receives, whose slots are to be freed."""

    def users(self):
        return self.redis.hgetall(self.key + ":users")

    def count(self, name):
        return int(self.redis.hget(self.key, name) or 0)

    def state(self):
        return self.users(), self.redis.hgetall(self.key)

    def tombstones(self):
        """Whether each was freed."""
        query = "SELECT freed_at IS NOT NULL FROM receive_rejected WHERE coupon_id = %s"
        return [row[0] for row in self.pg.execute(query, (self.coupon,)).fetchall()]

    def wait_freed(self, n=1):
        wait_until(lambda: self.tombstones() == [True] * n)

    def replay(self):
        """All are pending again, as after a death between freeing and its mark."""
        n = len(self.tombstones())
        self.pg.execute(
            "UPDATE receive_rejected SET freed_at = NULL WHERE coupon_id = %s", (self.coupon,)
        )
        self.wait_freed(n)

    def plant(self, user, key=None):
        """A user coupon in slot 1 that is unknown to Redis. Returns its record as Redis would store
        it."""
        batch = ulid_make()
        self.pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from, key)"
            " VALUES (%s, %s, 1, 7, %s, now(), now(), %s)",
            (user, self.coupon, ulid_uuid(batch), key),
        )
        self.pg.execute(
            "UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (self.coupon,)
        )
        self.pg.execute(
            "INSERT INTO coupon_generation VALUES (%s, 0, 1, 1)", (self.coupon,)
        )  # of an earlier generation
        return f"1:{batch}:7:{key or ''}"

    def total_lower(self, total):
        """Changes PostgreSQL directly, without Redis."""
        self.pg.execute("UPDATE coupon SET total_num = %s WHERE id = %s", (total, self.coupon))


@pytest.fixture
def seen(make_coupon, redis_client, pg):
    """seen(total, limit=1): the state of a new coupon of the shared stack."""
    return lambda total, limit=1: Rejecting(make_coupon(total, limit), redis_client, pg)


@pytest.fixture
def rough_seen(rough, rough_redis, rough_pg):
    """As seen(), on the stack that tests may break."""

    def make(total, limit=1):
        one = Rejecting(rough.coupon_make(total, limit), rough_redis, rough_pg)
        wait_until(lambda: rough_redis.exists(one.key))
        return one

    return make


def audited(stack, coupon):
    audit = stack.ctl_run("audit", coupon)
    assert (
        audit.returncode == 0 and "settled, and each slot was compared" in audit.stdout
    ), audit.stdout
    return audit.stdout


def test_the_holder_in_postgresql_gets_the_slot(stack, gateway, seen):
    coupon = seen(10)
    record = coupon.plant(42, key="its key")
    reply = gateway.issue(coupon.coupon, 42, ack="issued")
    assert (reply["code"], reply["reason"]) == (REJECTED, "slot_taken")
    coupon.wait_freed()
    assert coupon.users() == {"42": record}
    assert (coupon.count("stock"), coupon.count("lost")) == (9, 0)
    assert gateway.issue(coupon.coupon, 42)["code"] == LIMIT_REACHED
    again = gateway.issue(coupon.coupon, 42, key="its key", ack="issued")
    assert (again["status"], again["receive"]) == (
        "issued",
        f"{coupon.coupon}.42.{record.split(':')[1]}.7",
    )
    assert gateway.call("status", receive=reply["receive"])["code"] == REJECTED, "for ever"
    audited(stack, coupon.coupon)
    before = coupon.state()
    coupon.replay()
    assert coupon.state() == before


def issued(client, coupon, user, **members):
    """The answer, once no rebuild is in progress."""
    return wait_until(
        lambda: (r := client.issue(coupon, user, ack="issued", **members))["code"] != UNAVAILABLE
        and r
    )


def test_a_total_lowered_by_hand_is_no_endless_loop(stack, gateway, seen):
    coupon = seen(5000)
    coupon.total_lower(2)
    replies = [issued(gateway, coupon.coupon, 1)]
    while (
        replies[-1]["code"] != OUT_OF_STOCK
    ):  # Redis has the present total a round of the keeper later
        replies.append(issued(gateway, coupon.coupon, len(replies) + 1))
    assert [reply["status"] for reply in replies[:2]] == ["issued"] * 2
    assert {reply.get("reason", reply["status"]) for reply in replies[2:]} == {"out_of_stock"}
    rejected = [reply for reply in replies if reply["code"] == REJECTED]
    assert 1 <= len(rejected) < 4998, "not until Redis has given out its whole stock"
    coupon.wait_freed(len(rejected))
    assert sorted(coupon.users()) == ["1", "2"]
    wait_until(
        lambda: [coupon.count(name) for name in ("stock", "lost", "rebuild", "total")]
        == [0, 0, 0, 2]
    )
    late = "SELECT count(*) FROM coupon_late WHERE coupon_id = %s"
    wait_until(lambda: coupon.pg.execute(late, (coupon.coupon,)).fetchone() == (0,))
    audited(stack, coupon.coupon)
    before = coupon.state()
    coupon.replay()
    assert coupon.state() == before
    assert gateway.call("status", receive=rejected[0]["receive"])["reason"] == "out_of_stock"
    stack.ctl("stock", coupon.coupon, "--total", 3)
    assert issued(gateway, coupon.coupon, 9000, key="k")["status"] == "issued"
    assert issued(gateway, coupon.coupon, 9001)["code"] == OUT_OF_STOCK
    audited(stack, coupon.coupon)


def test_of_a_coupon_that_is_gone_the_stock_comes_back(gateway, seen, pg_owner):
    coupon = seen(3)
    pg_owner.execute("DELETE FROM coupon WHERE id = %s", (coupon.coupon,))
    assert gateway.issue(coupon.coupon, 1, ack="issued")["reason"] == "unknown_coupon"
    coupon.wait_freed()
    assert (coupon.users(), coupon.count("stock"), coupon.count("lost")) == ({}, 3, 0)


def test_a_slot_that_cannot_be_is_free_again_and_its_next_owner_keeps_it(
    stack, gateway, seen, pg_owner
):
    coupon = seen(10)
    coupon.redis.hset(coupon.key, "limit", 2)
    assert gateway.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
    first = coupon.users()
    assert gateway.issue(coupon.coupon, 1, key="k", ack="issued")["reason"] == "slot_invalid"
    coupon.wait_freed()
    assert (coupon.users(), coupon.count("stock")) == (first, 9)
    pg_owner.execute("UPDATE coupon SET user_limit = 2 WHERE id = %s", (coupon.coupon,))
    reply = gateway.issue(coupon.coupon, 1, key="k", ack="issued")
    assert (reply["status"], reply["slot"]) == ("issued", 2), "the key was freed too"
    before = coupon.state()
    coupon.replay()
    assert coupon.state() == before
    audited(stack, coupon.coupon)


def test_slot_1_is_given_back_and_slot_2_stays(rough, rough_seen):
    """A replay after slot 1 has a new owner does not free it."""
    coupon = rough_seen(10, limit=2)
    with rough.client() as client:
        rough.sigstop("worker-1")
        first, second = (client.issue(coupon.coupon, 42) for _ in range(2))
        assert [first["slot"], second["slot"]] == [1, 2]
        _, _, batch, index = first["receive"].split(".")
        coupon.pg.execute(
            "INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,"
            " received_at)"
            " VALUES (%s, %s, %s, '42', 1, 'slot_invalid', now())",
            (coupon.coupon, ulid_uuid(batch), index),
        )
        coupon.pg.execute(
            "UPDATE coupon SET settled_num = settled_num + 1 WHERE id = %s", (coupon.coupon,)
        )
        kept = coupon.users()["42"].split("\n")[1]
        rough.sigcont("worker-1")
        coupon.wait_freed()
        wait_until(lambda: client.call("status", receive=second["receive"])["status"] == "issued")
        assert (coupon.users(), coupon.count("stock")) == ({"42": kept}, 9)
        again = client.issue(coupon.coupon, 42, ack="issued")
        assert (again["status"], again["slot"]) == ("issued", 1)
        assert client.issue(coupon.coupon, 42)["code"] == LIMIT_REACHED
        before = coupon.state()
        coupon.replay()
        assert coupon.state() == before
        for reply, status in ((first, "rejected"), (second, "issued"), (again, "issued")):
            assert client.call("status", receive=reply["receive"])["status"] == status
    audited(rough, coupon.coupon)


def test_a_worker_that_is_not_the_keeper_gives_back_at_once(
    rough, rough_redis, rough_seen, worker_make
):
    coupon = rough_seen(2)
    coupon.total_lower(0)
    rough.stop("worker-1")
    keeper_usurp(rough_redis)
    try:
        worker = worker_make(rough)
        with rough.client() as client:
            assert client.issue(coupon.coupon, 1, ack="issued")["reason"] == "out_of_stock"
        coupon.wait_freed()
        assert (coupon.users(), coupon.count("lost")) == ({}, 1)
        assert "keeper_elected" not in worker.log()
    finally:
        rough_redis.delete(KEEPER_LOCK)


def test_a_worker_killed_between_commit_and_free(rough, rough_seen, worker_make):
    coupon = rough_seen(3, limit=2)
    coupon.total_lower(1)
    rough.stop("worker-1")
    proxy = Relay(port_of(rough.env["REDIS_URL"]))
    try:
        worker = worker_make(rough, REDIS_URL=proxy.url(rough.env_of("worker")["REDIS_URL"]))
        with rough.client() as client:
            assert client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
            first = coupon.users()
            proxy.hold()
            assert client.issue(coupon.coupon, 1, ack="issued")["reason"] == "out_of_stock"
        worker.kill9()
        assert coupon.tombstones() == [False]
        assert coupon.users() != first, "it holds its slot"
        rough.start("worker-1")
        coupon.wait_freed()
    finally:
        proxy.close()
    wait_until(
        lambda: (coupon.users(), coupon.count("stock"), coupon.count("lost")) == (first, 0, 0)
    )
    audited(rough, coupon.coupon)
    before = coupon.state()
    coupon.replay()
    assert coupon.state() == before


def test_while_redis_is_away_it_stays_pending(rough, rough_seen):
    coupon = rough_seen(5)
    coupon.total_lower(0)
    with rough.client() as client:
        rough.sigstop("worker-1")
        assert client.issue(coupon.coupon, 1)["code"] == 0
        confirmed_wait(rough)
        failed = rough.log("worker-1").count("keeper_redis_unreachable")
        rough.stop("redis")
        rough.sigcont("worker-1")
        wait_until(lambda: coupon.tombstones() == [False])
        wait_until(lambda: rough.log("worker-1").count("keeper_redis_unreachable") > failed)
        assert coupon.tombstones() == [False]
        rough.start("redis")
        coupon.wait_freed()
    wait_until(lambda: (coupon.users(), coupon.count("lost"), coupon.count("total")) == ({}, 0, 0))
    audited(rough, coupon.coupon)


def test_in_the_next_process_of_redis_it_is_marked(rough, rough_redis, rough_seen, worker_make):
    """By a keeper that was elected before."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_KEEPER_LEASE_MS=30000)
    wait_until(lambda: "keeper_elected" in worker.log())
    rough.restart("redis")
    coupon = rough_seen(5)
    coupon.total_lower(0)
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["reason"] == "out_of_stock"
    coupon.wait_freed()
    followed = coupon.pg.execute("SELECT run_id FROM keeper").fetchone()
    assert followed == (run_id_of(rough_redis),)
    assert worker.log().count("keeper_elected") == 1


def test_what_redis_had_lost_is_not_there_to_be_given_back(rough, rough_seen):
    coupon = rough_seen(5)
    coupon.total_lower(1)
    with rough.client() as client:
        rough.sigstop("worker-1")
        assert [client.issue(coupon.coupon, user)["code"] for user in (1, 2)] == [0, 0]
        confirmed_wait(rough)
        coupon.redis.delete(coupon.key, coupon.key + ":users", coupon.key + ":outbox")
        rough.sigcont("worker-1")
        coupon.wait_freed()
    wait_until(
        lambda: list(coupon.users()) == ["1"]
        and coupon.count("reserved") == coupon.count("lost") == 0
    )
    audited(rough, coupon.coupon)


def test_a_total_lowered_by_hand_under_load(rough, rough_pg):
    coupon = rough.coupon_make(1200, limit=2)
    rough_pg.execute("UPDATE coupon SET total_num = 700 WHERE id = %s", (coupon,))
    with History(rough, coupon, 1200, limit=2, users=2000).start() as history:
        history.allowed.add(reasons=("out_of_stock",))
        wait_until(lambda: history.codes()[OUT_OF_STOCK] > 300)
        history.total = 700  # Redis' too, since it was rebuilt
        assert history.judge() == 700
    query = "SELECT reason, count(*) FROM receive_rejected WHERE coupon_id = %s GROUP BY reason"
    ((reason, n),) = rough_pg.execute(query, (coupon,)).fetchall()
    assert reason == "out_of_stock" and n <= 500, "at most one for each surplus slot of Redis"
