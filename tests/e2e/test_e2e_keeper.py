"""The keeper's work on all campaigns: it ends them, is bounded, checks their counts, and writes
nothing after it was frozen."""

from datetime import datetime, timedelta, timezone

import psycopg
import pytest

from relay import Relay, port_of
from sent import query_sent, script_sent
from stack import wait_until
from ulid import ulid_make, ulid_uuid

ENDED = 3
KEEP_S = 2
POISON = "ALTER TABLE user_coupon ADD CONSTRAINT poison CHECK (user_id <> 666) NOT VALID"
NO_POISON = "ALTER TABLE user_coupon DROP CONSTRAINT poison"


def at(**from_now):
    return (datetime.now(timezone.utc) + timedelta(**from_now)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Seen:
    """The state of one coupon in Redis and PostgreSQL."""

    def __init__(self, coupon, redis_client, pg):
        self.coupon, self.redis, self.pg = coupon, redis_client, pg
        self.key = f"coupon:{{{coupon}}}"

    def field(self, name):
        return self.redis.hget(self.key, name)

    def row(self, *names):
        return self.pg.execute(
            f"SELECT {', '.join(names)} FROM coupon WHERE id = %s", (self.coupon,)
        ).fetchone()

    def all(self):
        rows = self.pg.execute(
            "SELECT coupon::text FROM coupon WHERE id = %s", (self.coupon,)
        ).fetchone()
        keys = self.redis.keys(f"{self.key}*")
        return rows, {key: (self.redis.dump(key), self.redis.pttl(key) > 0) for key in keys}


@pytest.fixture
def seen(rough, rough_redis, rough_pg):
    def make(total=10, loaded=True, **terms):
        one = Seen(rough.coupon_make(total, **terms), rough_redis, rough_pg)
        if loaded:
            wait_until(lambda: rough_redis.exists(one.key))
        return one

    return make


@pytest.fixture
def keeper_behind(rough, worker_make):
    """keeper_behind(NAME): the elected keeper in a worker whose connection to REDIS_URL or
    DATABASE_URL goes through a gate."""
    gates = []

    def make(name):
        rough.stop("worker-1")
        gate = Relay(port_of(rough.env[name]))
        gates.append(gate)
        worker = worker_make(rough, **{name: gate.url(rough.env[name])})
        wait_until(lambda: "keeper_elected" in worker.log())
        return worker, gate

    yield make
    for gate in gates:
        gate.close()


def succeed(rough, worker, coupon, hold=None):
    """Freezes the worker; another keeper is elected and has checked the coupon. With hold, the
    other one does nothing more."""
    worker.signal(19)
    if hold:
        hold()
    before = int(coupon.field("fence"))
    rough.start("worker-1")
    wait_until(lambda: int(coupon.field("fence")) > before, timeout=20)
    if hold:
        rough.sigstop("worker-1")


# The end of a campaign


def test_a_campaign_is_closed_after_its_end(rough, seen):
    end = at(seconds=2)
    published, paused, later = (seen(end=moment) for moment in (end, end, at(hours=1)))
    draft = seen(loaded=False, end=end, publish=False)
    rough.ctl("pause", paused.coupon)
    for one in (published, paused):
        wait_until(lambda one=one: one.row("status") == ("closed",), timeout=15)
        wait_until(lambda one=one: one.field("status") == "closed")
        assert rough.log("worker-1").count(f"event=coupon_ended coupon={one.coupon} ") == 1
    assert (later.row("status"), draft.row("status"), later.field("status")) == (
        ("published",),
        ("draft",),
        "open",
    )
    with rough.client() as client:
        assert client.issue(published.coupon, 1)["code"] == ENDED
    redis_s, redis_us = published.redis.time()
    assert (
        redis_s + redis_us / 1e6 - 1
        >= datetime.fromisoformat(end.replace("Z", "+00:00")).timestamp()
    )


def test_an_end_that_was_moved_counts(rough, seen):
    moved = seen(end=at(seconds=1.5))
    moved.pg.execute(
        "UPDATE coupon SET end_at = now() + interval '1 hour', version = version + 1 WHERE id = %s",
        (moved.coupon,),
    )
    other = seen(end=at(seconds=1.5))
    wait_until(lambda: other.row("status") == ("closed",), timeout=15)
    assert moved.row("status") == ("published",)


# A keeper that was frozen


def test_asleep_before_it_closes(rough, seen, keeper_behind):
    coupon = seen()
    worker, gate = keeper_behind("DATABASE_URL")
    gate.trap(query_sent("coupon_ended_set"))
    coupon.pg.execute(
        "UPDATE coupon SET end_at = now() - interval '1 minute' WHERE id = %s", (coupon.coupon,)
    )
    wait_until(gate.trapped_num)
    coupon.pg.execute("UPDATE coupon SET end_at = NULL WHERE id = %s", (coupon.coupon,))
    succeed(rough, worker, coupon)
    before = coupon.all()
    gate.let_go()
    wait_until(lambda: b"is_elected" in gate.said())
    assert coupon.all() == before
    worker.signal(18)
    wait_until(lambda: "keeper_lost" in worker.log() or "keeper_fenced" in worker.log())
    assert coupon.all() == before


def test_asleep_before_new_terms(rough, seen, keeper_behind):
    coupon = seen()
    worker, gate = keeper_behind("REDIS_URL")
    gate.trap(script_sent("terms"))
    coupon.pg.execute(
        "UPDATE coupon SET status = 'paused', version = version + 1 WHERE id = %s", (coupon.coupon,)
    )
    wait_until(gate.trapped_num)
    coupon.pg.execute("UPDATE coupon SET status = 'published' WHERE id = %s", (coupon.coupon,))
    succeed(rough, worker, coupon)
    wait_until(lambda: coupon.field("version") == "3")
    coupon.redis.hset(coupon.key, "version", 2)
    rough.sigstop("worker-1")
    coupon.redis.hset(coupon.key, "version", 2)
    before = coupon.all()
    gate.let_go()
    wait_until(lambda: b"fenced" in gate.said() or b"applied" in gate.said())
    assert coupon.all() == before and b"fenced" in gate.said()
    rough.sigcont("worker-1")
    worker.signal(18)
    wait_until(lambda: "keeper_lost" in worker.log() or "keeper_fenced" in worker.log())
    assert coupon.field("status") == "open"


def test_asleep_before_it_raises_fences(rough, seen, keeper_behind, worker_make):
    """Two elections: the first of the two keepers continues with the lower fence."""
    coupon = seen()
    worker, gate = keeper_behind("REDIS_URL")
    wait_until(lambda: coupon.field("fence") == str(fence(coupon.pg)))
    gate.trap(script_sent("fence"))
    coupon.redis.hset(coupon.key, "fence", 0)
    wait_until(gate.trapped_num)
    succeed(rough, worker, coupon)
    before = coupon.all()
    gate.let_go()
    wait_until(lambda: gate.said())
    assert coupon.all() == before
    worker.signal(18)
    wait_until(lambda: "keeper_lost" in worker.log() or "keeper_fenced" in worker.log())
    assert coupon.field("fence") == str(fence(coupon.pg))


def fence(pg):
    return pg.execute("SELECT fence FROM keeper").fetchone()[0]


LATE = """WITH counted AS (UPDATE coupon SET late_num = 1 WHERE id = %s RETURNING id)
    INSERT INTO coupon_late (coupon_id, num, generation, seq, user_id, slot, batch, idx, key)
    SELECT id, 1, 1, 1, 7, 1, %s, 0, '' FROM counted"""
PAUSE = "UPDATE coupon SET status = 'paused', version = version + 1 WHERE id = %s"
CAUSES = {
    "terms": lambda c: c.pg.execute(PAUSE, (c.coupon,)),
    "fence": lambda c: c.redis.hset(c.key, "fence", 0),
    "verify": lambda c: c.redis.hset(c.key, "run_id", "1" * 40),
    "hold": lambda c: c.redis.hset(c.key, "rebuild", 1),
    "fill": lambda c: c.redis.hset(c.key, "rebuild", 1),
    "place": lambda c: c.redis.hset(c.key, "rebuild", 1),
    "late": lambda c: c.pg.execute(LATE, (c.coupon, ulid_uuid(ulid_make()))),
    "expire": lambda c: c.pg.execute(PAUSE.replace("paused", "closed"), (c.coupon,)),
}


@pytest.fixture
def usurp(rough_redis, rough_pg):
    """Another keeper is elected, which then does nothing."""

    def elect():
        wait_until(lambda: rough_redis.set("couponmq:keeper", "other", px=600_000, nx=True))
        rough_pg.execute("UPDATE keeper SET fence = fence + 1")

    yield elect
    rough_redis.delete("couponmq:keeper")


@pytest.fixture
def alone(seen, rough_redis, rough_pg):
    """A coupon whose counts the test makes wrong."""
    coupon = seen()
    yield coupon
    rough_pg.execute(
        "UPDATE coupon SET status = 'closed', version = version + 1, settled_at = now(),"
        " expires_at = now() WHERE id = %s",
        (coupon.coupon,),
    )
    rough_redis.delete(*keys(coupon))


@pytest.mark.parametrize("script", CAUSES)
def test_asleep_until_another_is_elected(rough, alone, keeper_behind, usurp, script):
    """The other keeper has not raised the fence of the coupon yet."""
    coupon = alone
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
    if script == "late":  # an outcome of generation 1
        coupon.redis.hset(coupon.key, "rebuild", 1)
        wait_until(lambda: coupon.field("generation") == "2" and coupon.row("late_num") == (0,))
    worker, gate = keeper_behind("REDIS_URL")
    wait_until(lambda: coupon.field("fence") == str(fence(coupon.pg)))
    gate.trap(script_sent(script))
    CAUSES[script](coupon)
    wait_until(gate.trapped_num, timeout=20)
    worker.signal(19)
    usurp()
    before = coupon.all()
    gate.let_go()
    wait_until(gate.said)
    assert coupon.all() == before
    worker.signal(18)
    wait_until(lambda: "keeper_lost" in worker.log() or "keeper_fenced" in worker.log())
    assert coupon.all() == before


def test_a_new_keeper_raises_every_fence(rough, seen, worker_make):
    coupons = [seen() for _ in range(3)]
    before = fence(coupons[0].pg)
    rough.kill9("worker-1")
    worker = worker_make(rough)
    wait_until(lambda: {one.field("fence") for one in coupons} == {str(before + 1)}, timeout=20)
    assert "keeper_elected" in worker.log()


# Settled, and its keys expire


@pytest.fixture
def quick(rough, worker_make):
    """The only worker, which keeps closed coupons for KEEP_S."""
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_KEEP_CLOSED_S=KEEP_S)
    wait_until(lambda: "keeper_elected" in worker.log())
    return worker


def owner_execute(rough, statement):
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as owner:
        owner.execute(statement)


def is_settled(coupon):
    return coupon.row("settled_at IS NOT NULL AND expires_at IS NOT NULL") == (True,)


def keys(coupon):
    return sorted(coupon.redis.keys(f"{coupon.key}*"))


def test_a_closed_coupon_is_settled_and_its_keys_expire(rough, seen, quick):
    coupon = seen(total=5, limit=2)
    with rough.client() as client:
        receive = client.issue(coupon.coupon, 1, key="k", ack="issued")["receive"]
        client.issue(coupon.coupon, 2, ack="issued")
        rough.ctl("close", coupon.coupon)
        wait_until(lambda: is_settled(coupon))
        assert {coupon.redis.pttl(key) > 0 for key in keys(coupon)} == {True}
        again = client.issue(coupon.coupon, 1, key="k", ack="issued")
        assert again["receive"] == receive, "while its keys are there"
        wait_until(lambda: not keys(coupon), timeout=KEEP_S + 5)
        assert (
            client.issue(coupon.coupon, 1)["code"]
            == client.issue(coupon.coupon, 3, key="new")["code"]
            == ENDED
        )
        assert client.call("coupon", coupon=coupon.coupon)["code"] == ENDED
        told = client.call("status", receive=receive)
        assert (told["status"], told["slot"]) == ("issued", 1)
        told = client.call("status", coupon=coupon.coupon, user="1")
        assert [(one["receive"], one["state"]) for one in told["receives"]] == [(receive, "issued")]
    assert quick.log().count(f"event=coupon_settled coupon={coupon.coupon} issued=2") == 1
    assert "coupon_missing" not in quick.log()
    sweeps = quick.metrics()["couponmq_keeper_rounds_total"]
    wait_until(lambda: quick.metrics()["couponmq_keeper_rounds_total"] > sweeps + 3)
    assert not coupon.redis.exists(coupon.key), "it is not loaded again"
    assert {coupon.redis.pttl(key) > 0 for key in keys(coupon)} <= {True}, "the reports of gateways"


def test_one_that_was_never_loaded_is_settled(rough, rough_redis, rough_pg, quick):
    quick.signal(19)
    coupon = Seen(rough.coupon_make(5), rough_redis, rough_pg)
    rough.ctl("close", coupon.coupon)
    quick.signal(18)
    wait_until(lambda: is_settled(coupon), timeout=20)
    assert not keys(coupon)


def test_not_settled_while_a_message_is_in_the_queue_or_dead(rough, seen, quick):
    coupon = seen(total=5)
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
        owner_execute(rough, POISON)
        try:
            assert client.issue(coupon.coupon, 666)["code"] == 0
            rough.ctl("close", coupon.coupon)
            wait_until(lambda: "event=dead_letter " in quick.log(), timeout=20)
            wait_until(
                lambda: coupon.field("status") == "closed"
                and not coupon.redis.exists(coupon.key + ":outbox")
            )
            rounds = quick.metrics()["couponmq_keeper_rounds_total"]
            wait_until(lambda: quick.metrics()["couponmq_keeper_rounds_total"] > rounds + 5)
            assert coupon.row("settled_at", "expires_at") == (None, None)
            assert quick.metrics()["couponmq_keeper_receives_in_flight"] == 1
        finally:
            owner_execute(rough, NO_POISON)
        rough.ctl("dead", "requeue", "--all")
    wait_until(lambda: is_settled(coupon), timeout=20)


def test_not_settled_before_what_was_rejected_is_given_back(rough, seen, quick):
    coupon = seen(total=5)
    coupon.pg.execute("UPDATE coupon SET total_num = 0 WHERE id = %s", (coupon.coupon,))
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["reason"] == "out_of_stock"
    released = (
        "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND released_at IS NOT NULL"
    )
    wait_until(lambda: coupon.pg.execute(released, (coupon.coupon,)).fetchone() == (1,))
    wait_until(lambda: coupon.field("generation") == "2")  # the reply for an absent field
    quick.signal(19)
    rough.ctl("close", coupon.coupon)
    coupon.redis.set(coupon.key + ":users", "of a wrong type: nothing can be given back")
    coupon.pg.execute(
        "UPDATE receive_rejected SET released_at = NULL WHERE coupon_id = %s", (coupon.coupon,)
    )
    quick.signal(18)
    rounds = quick.metrics()["couponmq_keeper_rounds_total"]
    wait_until(lambda: quick.metrics()["couponmq_keeper_rounds_total"] > rounds + 5)
    assert quick.metrics()["couponmq_keeper_coupons_unreleased"] == 1
    assert coupon.row("settled_at") == (None,)
    coupon.redis.delete(coupon.key + ":users")
    wait_until(lambda: is_settled(coupon), timeout=20)


def test_a_late_message_unsettles(rough, seen, quick):
    """A loss that was not detected: Redis has its earlier counts again."""
    coupon = seen(total=5)
    with rough.client() as client:
        quick.signal(19)
        assert client.issue(coupon.coupon, 1)["code"] == 0
        coupon.redis.hset(coupon.key, mapping={"seq": 0, "stock": 5})
        coupon.redis.delete(coupon.key + ":users")
        wait_until(lambda: not coupon.redis.exists(coupon.key + ":outbox"))
        coupon.pg.execute(
            "UPDATE coupon SET status = 'closed', version = version + 1, settled_at = now(),"
            " expires_at = now() WHERE id = %s",
            (coupon.coupon,),
        )
        quick.signal(18)
        wait_until(lambda: coupon.row("issued_num") == (1,), timeout=20)
    assert coupon.row("settled_at") == (None,)
    coupon.redis.hset(coupon.key, mapping={"seq": 1, "stock": 4})
    wait_until(lambda: is_settled(coupon), timeout=20)


def test_one_that_expires_is_verified_on_another_redis_process(rough, seen, worker_make):
    coupon = seen()
    with rough.client() as client:
        receive = client.issue(coupon.coupon, 1, key="k", ack="issued")["receive"]
        rough.ctl("close", coupon.coupon)
        wait_until(lambda: is_settled(coupon), timeout=20)
        rough.restart("redis")
        wait_until(lambda: client.issue(coupon.coupon, 2)["code"] == ENDED, timeout=20)
        assert client.issue(coupon.coupon, 1, key="k")["receive"] == receive
    assert coupon.redis.pttl(coupon.key) > 0


@pytest.mark.parametrize(
    "name, sent",
    [
        ("DATABASE_URL", query_sent("coupon_settled_set")),
        ("REDIS_URL", script_sent("expire")),
        ("DATABASE_URL", query_sent("coupon_expires_set")),
    ],
    ids=["settled", "expire", "expires"],
)
def test_asleep_before_it_lets_keys_expire(rough, seen, keeper_behind, name, sent):
    coupon = seen()
    worker, gate = keeper_behind(name)
    gate.trap(sent)
    rough.ctl("close", coupon.coupon)
    wait_until(gate.trapped_num)
    succeed(
        rough,
        worker,
        coupon,
        hold=lambda: coupon.redis.hset(coupon.key + ":outbox", "0" * 26, "in flight again"),
    )
    coupon.redis.delete(coupon.key + ":outbox")
    before = coupon.all()
    gate.let_go()
    wait_until(
        lambda: b"is_elected" in gate.said()
        or b"fenced" in gate.said()
        or b"expires" in gate.said()
    )
    assert coupon.all() == before and b"expires" not in gate.said()
    worker.signal(18)
    rough.sigcont("worker-1")
    wait_until(lambda: is_settled(coupon), timeout=20)


def test_settled_is_told_once_when_the_expiry_was_not_recorded(rough, seen, keeper_behind):
    """A further outcome takes the mark away before the expiry is recorded."""
    coupon = seen()
    worker, gate = keeper_behind("DATABASE_URL")
    gate.trap(query_sent("coupon_expires_set"))
    rough.ctl("close", coupon.coupon)
    wait_until(gate.trapped_num)
    coupon.pg.execute("UPDATE coupon SET settled_at = NULL WHERE id = %s", (coupon.coupon,))
    gate.let_go()
    wait_until(lambda: is_settled(coupon), timeout=20)
    wait_until(lambda: f"event=coupon_settled coupon={coupon.coupon} " in worker.log())
    assert worker.log().count(f"event=coupon_settled coupon={coupon.coupon} ") == 1


# Bounds


@pytest.fixture
def many(rough_pg):
    """Published coupons, more than a round of the keeper can check."""
    first = rough_pg.execute("SELECT greatest(max(id), 5000000000) FROM coupon").fetchone()[0]
    made = "SELECT %s + i, 'many', 1, 'published' FROM generate_series(1, 1500) AS i"
    rough_pg.execute(f"INSERT INTO coupon (id, name, total_num, status) {made}", (first,))
    yield range(first + 1, first + 1501)
    rough_pg.execute(
        "UPDATE coupon SET status = 'closed', version = version + 1, settled_at = now(),"
        " expires_at = now() WHERE id > %s",
        (first,),
    )


def test_new_terms_of_one_among_many(rough, rough_redis, rough_pg, many, worker_make):
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_KEEPER_ROUND_MS=2000, COUPON_KEEPER_LEASE_MS=2000)
    wait_until(lambda: worker.metrics()["couponmq_keeper_coupons{open}"] >= len(many), timeout=120)
    elections, paused = (
        fence(rough_pg),
        worker.metrics()["couponmq_keeper_coupons{paused}"],
    )  # other tests' too
    for coupon in many[::400]:
        rough_pg.execute(
            "UPDATE coupon SET status = 'paused', version = version + 1 WHERE id = %s", (coupon,)
        )
        wait_until(
            lambda coupon=coupon: rough_redis.hget(f"coupon:{{{coupon}}}", "status") == "paused",
            timeout=1,
        )
    paused += len(many[::400])
    metrics = wait_until(
        lambda: (told := worker.metrics())["couponmq_keeper_coupons{paused}"] == paused and told,
        timeout=20,
    )
    assert (
        metrics["couponmq_keeper_coupons_unequal"]
        == metrics["couponmq_keeper_coupons{unavailable}"]
        == 0
    )
    assert fence(rough_pg) == elections, "the lock was kept"


def test_all_are_verified_after_redis_was_restarted(rough, rough_redis, many, worker_make):
    rough.stop("worker-1")
    worker = worker_make(rough)
    wait_until(lambda: worker.metrics()["couponmq_keeper_coupons{open}"] >= len(many), timeout=120)
    rough.restart("redis")
    run_id = rough_redis.info("server")["run_id"]
    wait_until(
        lambda: all(
            rough_redis.hget(f"coupon:{{{coupon}}}", "run_id") == run_id for coupon in many[::100]
        ),
        timeout=60,
    )


def test_what_redis_refuses_is_put_off(rough, rough_redis, rough_pg, seen):
    other = seen()  # a keeper is elected
    coupon = Seen(rough.ctl("create", "--name", "refused", "--total", 5), rough_redis, rough_pg)
    wrong = [f"{coupon.key}:fill:{generation}:users" for generation in range(1, 10)]
    rough_redis.mset(dict.fromkeys(wrong, "not a hash"))
    try:
        rough.ctl("publish", coupon.coupon, "--wait-s", 0)
        line = f"event=coupon_put_off coupon={coupon.coupon} for_ms="
        wait_until(lambda: rough.log_has("worker-1", line + "2000"), timeout=20)
        assert coupon.row("generation")[0] <= 3, "one for each attempt, not for each round"
        assert set(coupon.field("run_id")) == {"0"}, "it is not open"
        rough.ctl("pause", other.coupon)
        wait_until(lambda: other.field("status") == "paused", timeout=2)
    finally:
        rough_redis.delete(*wrong)
    rough.ctl("pause", coupon.coupon)
    wait_until(lambda: coupon.field("status") == "paused", timeout=1)


# The numbers


def test_numbers_that_do_not_add_up_are_told_once(rough, seen, worker_make):
    coupon = seen(total=10)
    rough.stop("worker-1")
    worker = worker_make(rough)
    with rough.client() as client:
        assert client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued"
        wait_until(lambda: worker.metrics()["couponmq_keeper_rounds_total"] > 5)
        assert worker.metrics()["couponmq_keeper_coupons_unequal"] == 0
        coupon.redis.hincrby(coupon.key, "stock", 1)
        wait_until(lambda: worker.metrics()["couponmq_keeper_coupons_unequal"] == 1)
        assert client.issue(coupon.coupon, 2, ack="issued")["status"] == "issued"
        rounds = worker.metrics()["couponmq_keeper_rounds_total"]
        wait_until(lambda: worker.metrics()["couponmq_keeper_rounds_total"] > rounds + 5)
        assert worker.metrics()["couponmq_keeper_coupons_unequal"] == 1
    assert worker.log().count(f"event=coupon_unequal coupon={coupon.coupon} ") == 1
    coupon.redis.hincrby(coupon.key, "stock", -1)
    wait_until(lambda: worker.metrics()["couponmq_keeper_coupons_unequal"] == 0)


def test_what_is_in_flight_and_in_the_outbox(rough, seen, worker_make):
    coupon = seen(total=10)
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_RESEND_AFTER_MS=3_600_000)
    wait_until(lambda: worker.metrics()["couponmq_keeper_elected"] == 1)
    worker_names = ("couponmq_keeper_receives_in_flight", "couponmq_keeper_outbox_messages")

    def told():
        return [worker.metrics()[name] for name in worker_names]

    wait_until(lambda: told() == [0, 0])
    coupon.redis.hincrby(coupon.key, "seq", 1)
    coupon.redis.hincrby(coupon.key, "stock", -1)
    coupon.redis.hset(coupon.key + ":outbox", "0" * 26, "not a message")
    wait_until(lambda: told() == [1, 1])
    assert worker.metrics()["couponmq_keeper_coupons_unequal"] == 0
    coupon.redis.delete(coupon.key + ":outbox")
    coupon.redis.hincrby(coupon.key, "seq", -1)
    coupon.redis.hincrby(coupon.key, "stock", 1)
    wait_until(lambda: told() == [0, 0])


def test_only_the_keeper_tells_of_coupons(rough, seen, worker_make):
    seen()
    other = worker_make(rough)
    wait_until(lambda: other.metrics()["couponmq_keeper_redis_up"] == 1)
    assert other.metrics()["couponmq_keeper_elected"] == 0
    assert {
        value
        for name, value in other.metrics().items()
        if name.startswith("couponmq_keeper_coupons{")
    } == {0}


# Time-outs of the server, which end a statement although its client is frozen


def is_running(pg, application, query):
    return pg.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = %s AND state = 'active' AND strpos(query, %s) > 0",
        (application, query),
    ).fetchone() == (1,)


def test_postgresql_ends_a_slow_statement_of_a_frozen_keeper(rough, seen):
    coupon = seen()
    rough.sigstop("worker-1")
    coupon.pg.execute(
        "UPDATE coupon SET end_at = now() - interval '1 minute' WHERE id = %s", (coupon.coupon,)
    )
    owner_execute(
        rough,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';"
        "CREATE TRIGGER slow BEFORE UPDATE ON coupon FOR EACH ROW"
        f" WHEN (NEW.id = {coupon.coupon}) EXECUTE FUNCTION slow()",
    )
    sent = query_sent("coupon_ended_set")
    try:
        rough.sigcont("worker-1")
        wait_until(lambda: is_running(coupon.pg, "coupon-keeper", sent))
        rough.sigstop("worker-1")
        wait_until(lambda: not is_running(coupon.pg, "coupon-keeper", sent), timeout=8)
    finally:
        owner_execute(rough, "DROP TRIGGER slow ON coupon; DROP FUNCTION slow()")
    rough.sigcont("worker-1")
    wait_until(lambda: coupon.row("status") == ("closed",), timeout=20)
