"""Redis loses its data: it is rebuilt from PostgreSQL, while clients send requests and messages are
in flight."""

import json
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

from coupon_seen import copied_before
from history import DEAD_QUEUE, QUEUE, History
from message import message, message_publish, message_text
from script_coupon import run_id_of
from sent import query_sent, script_sent
from stack import Client, wait_until
from ulid import ulid_at

LIMIT_REACHED, OUT_OF_STOCK, UNAVAILABLE = 4, 2, 21


def key_of(coupon):
    return f"coupon:{{{coupon}}}"


def count(redis_client, coupon, name):
    return int(redis_client.hget(key_of(coupon), name) or 0)


def in_flight(redis_client, coupon):
    """Receives of older generations. A gateway may have made the copies of some again."""
    return count(redis_client, coupon, "reserved") + redis_client.scard(key_of(coupon) + ":known")


def is_open(redis_client, coupon):
    return redis_client.hget(key_of(coupon), "run_id") == run_id_of(redis_client)


def generation_of(pg, coupon):
    return pg.execute("SELECT generation FROM coupon WHERE id = %s", (coupon,)).fetchone()[0]


def seq_seen(pg, coupon, generation):
    return pg.execute(
        "SELECT seq_seen FROM coupon_generation WHERE coupon_id = %s AND generation = %s",
        (coupon, generation),
    ).fetchone()[0]


def generations(pg, coupon):
    """The older generations: {generation: (seq_seen, settled_num)}"""
    query = "SELECT generation, seq_seen, settled_num FROM coupon_generation WHERE coupon_id = %s"
    return {row[0]: row[1:] for row in pg.execute(query, (coupon,)).fetchall()}


def accept(redis_client, coupon, user, batch, key=""):
    """As the script does, but the message is in no outbox any more."""
    name = key_of(coupon)
    redis_client.hset(name + ":users", user, f"1:{batch}:0:{key}")
    redis_client.hincrby(name, "stock", -1)
    return redis_client.hincrby(name, "seq", 1)


def rebuild(redis_client, coupon):
    generation = count(redis_client, coupon, "generation")
    redis_client.hset(key_of(coupon), "rebuild", 1)
    wait_open(redis_client, coupon, generation + 1)


def close_until_settled(rough, pg, coupon):
    rough.ctl("close", coupon)
    query = "SELECT settled_at IS NOT NULL FROM coupon WHERE id = %s"
    wait_until(lambda: pg.execute(query, (coupon,)).fetchone() == (True,))


def rejections(pg, coupon):
    query = "SELECT reason, count(*) FROM receive_rejected WHERE coupon_id = %s GROUP BY reason"
    return dict(pg.execute(query, (coupon,)).fetchall())


def wait_open(redis_client, coupon, generation=1):
    wait_until(
        lambda: is_open(redis_client, coupon)
        and count(redis_client, coupon, "generation") >= generation,
    )


def issue_all(client, coupon, users, **members):
    return client.pipeline(
        [{"op": "issue", "coupon": str(coupon), "user": str(user), **members} for user in users]
    )


@pytest.fixture
def amqp(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.queue_purge(DEAD_QUEUE)  # dead letters of other tests
        yield channel


@pytest.fixture
def coupon_make(rough, rough_redis):
    def make(total, limit=1):
        coupon = rough.coupon_make(total, limit)
        wait_open(rough_redis, coupon)
        return coupon

    return make


@pytest.mark.long
def test_wiped_in_mid_campaign(rough, rough_redis, rough_pg, coupon_make):
    coupon = coupon_make(100_000, 3)
    with History(rough, coupon, 100_000, 3, users=5000, keys=0.4) as history:
        history.allowed.add(reasons=("slot_taken", "key_taken"))
        history.start().wait_accepted(1500)
        rough_redis.flushall()
        history.wait_accepted(1500)
        rough_redis.flushall()
        history.wait_accepted(500)
        assert history.judge() > 3000
    assert generation_of(rough_pg, coupon) >= 3
    assert rejections(rough_pg, coupon).keys() <= {
        "slot_taken",
        "key_taken",
    }, "only what a user holds already"


@pytest.mark.parametrize("again", [False, True])
def test_wiped_while_nothing_is_settled(again, rough, rough_redis, rough_pg, coupon_make):
    """Receives that only the queue and a gateway's memory hold still count as in flight: none of
    their slots is given out again. When Redis is wiped once more, the gateway remembers only the
    latest generation, and PostgreSQL the numbers of the one before.
    """
    coupon = coupon_make(100)
    rough.stop("worker-1")
    with Client(rough.env["COUPON_LISTEN"]) as client:
        assert {r["code"] for r in issue_all(client, coupon, range(1, 81), ack="queued")} == {0}
        rough_redis.flushall()
        rough_pg.execute("LISTEN nothing")  # the session stays alive
        with rough_pg.transaction():
            rough_pg.execute("LOCK TABLE user_coupon IN SHARE MODE")  # read, but not written
            rough.start("worker-1")
            wait_open(rough_redis, coupon, 2)
            codes = [
                wait_until(
                    lambda: (c := client.issue(coupon, 101)["code"]) != UNAVAILABLE and c + 1
                )
            ]
            assert codes == [1]
            replies = issue_all(client, coupon, range(102, 202))
            assert [r["code"] for r in replies].count(0) == 19
            assert (in_flight(rough_redis, coupon), count(rough_redis, coupon, "stock")) == (80, 0)
            if again:
                wait_until(lambda: seq_seen(rough_pg, coupon, 1) == 80)
                rough_redis.flushall()
                wait_open(rough_redis, coupon, 3)
                assert (
                    wait_until(
                        lambda: (c := client.issue(coupon, 301)["code"]) != UNAVAILABLE and c
                    )
                    == 2
                )
                assert in_flight(rough_redis, coupon) == 100
        wait_until(
            lambda: rough_pg.execute(
                "SELECT issued_num FROM coupon WHERE id = %s", (coupon,)
            ).fetchone()
            == (100,)
        )
    assert rejections(rough_pg, coupon) == {}
    wait_until(lambda: count(rough_redis, coupon, "reserved") == 0)
    assert len(rough_redis.hgetall(key_of(coupon) + ":users")) == 100, "each has its slot"
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_keys_are_known_again(rough, rough_redis, rough_pg, coupon_make):
    coupon = coupon_make(100, 2)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        first = client.issue(coupon, 7, key="a", ack="issued")
        second = client.issue(coupon, 7, key="b", ack="issued")
        rough_redis.flushall()
        wait_open(rough_redis, coupon, 2)
        for key, before in (("a", first), ("b", second)):
            again = client.issue(coupon, 7, key=key, ack="issued")
            assert (again["receive"], again["slot"]) == (before["receive"], before["slot"])
        assert client.issue(coupon, 7, key="c")["code"] == LIMIT_REACHED
        assert count(rough_redis, coupon, "stock") == 98


@pytest.mark.parametrize("hours", [-30, 2, 30])
def test_a_slot_is_kept_however_old_its_receive_is(
    hours, rough, rough_redis, rough_pg, coupon_make, amqp
):
    """Its message waits in a queue. The clock of the gateway that made its id may be wrong too."""
    coupon = coupon_make(10, 2)
    batch = ulid_at(rough_redis.time()[0] * 1000 - hours * 3_600_000)
    seq = accept(rough_redis, coupon, 7, batch, key="k")
    rebuild(rough_redis, coupon)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        assert client.issue(coupon, 7, key="k")["receive"] == f"{coupon}.7.{batch}.0"
        message_publish(amqp, message(coupon, batch=batch, seq=seq, receives=[["7", 1, "k"]]))
        again = wait_until(
            lambda: (r := client.issue(coupon, 7, key="k", ack="issued"))["code"] == 0 and r
        )
        assert again["receive"] == f"{coupon}.7.{batch}.0"
    wait_until(lambda: rough_redis.exists(key_of(coupon) + ":known") == 0)
    assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "reserved")) == (9, 0)
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_more_generations_than_are_kept(rough, rough_redis, rough_pg, coupon_make, amqp):
    """Five receives of the third one are in flight."""
    coupon = coupon_make(100)
    with rough_pg.transaction():
        rough_pg.execute(
            "INSERT INTO coupon_generation SELECT %s, g, CASE g WHEN 3 THEN 5 ELSE 0 END, 0"
            " FROM generate_series(1, 999) AS g",
            (coupon,),
        )
        rough_pg.execute("UPDATE coupon SET generation = 1000 WHERE id = %s", (coupon,))
    wait_open(rough_redis, coupon, 1001)
    assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "reserved")) == (95, 5)
    assert generations(rough_pg, coupon)[0] == (5, 0) and len(generations(rough_pg, coupon)) == 101
    first, never_known = (
        message(coupon, generation=3, seq=seq, receives=[[str(seq), 1, ""]]) for seq in (2, 60)
    )
    message_publish(amqp, first)
    message_publish(amqp, first)
    wait_until(lambda: count(rough_redis, coupon, "reserved") == 4)
    assert count(rough_redis, coupon, "stock") == 95
    told = rough.ctl("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
    assert "lost: 4 receives of generation 0 that nothing names\n" in told
    assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "reserved")) == (99, 0)
    message_publish(amqp, never_known)
    wait_until(lambda: count(rough_redis, coupon, "stock") == 98)
    assert generations(rough_pg, coupon)[0] == (6, 6)
    assert rough.ctl_run("audit", coupon).returncode == 0
    close_until_settled(rough, rough_pg, coupon)


def test_the_outbox_keeps_its_slots(rough, rough_redis, rough_pg, coupon_make):
    """Redis has lost the coupon and its users, but not the outbox."""
    coupon = coupon_make(10, 2)
    rough.sigstop("rabbitmq")
    try:
        with Client(rough.env["COUPON_LISTEN"]) as client:
            reply = client.issue(coupon, 5, key="kept")
            assert reply["code"] == 0
            rough_redis.delete(key_of(coupon), key_of(coupon) + ":users")
            wait_open(rough_redis, coupon, 2)
            assert client.issue(coupon, 5, key="kept")["receive"] == reply["receive"]
            assert (
                count(rough_redis, coupon, "stock"),
                count(rough_redis, coupon, "reserved"),
            ) == (9, 0)
    finally:
        rough.sigcont("rabbitmq")
    wait_until(lambda: rough_redis.exists(key_of(coupon) + ":known") == 0)
    assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "late")) == (9, 1)
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_behind_what_a_gateway_saw(rough, rough_redis, rough_pg, coupon_make):
    """Redis lost its last writes: the gateway has seen them, PostgreSQL has not yet."""
    coupon = coupon_make(10)
    key = key_of(coupon)
    rough.stop("worker-1")
    with Client(rough.env["COUPON_LISTEN"]) as client:
        assert client.issue(coupon, 1, ack="queued")["code"] == 0
        before = rough_redis.dump(key), rough_redis.dump(key + ":users")
        assert {r["code"] for r in issue_all(client, coupon, range(2, 8), ack="queued")} == {0}
        rough_redis.restore(key, 0, before[0], replace=True)
        rough_redis.restore(key + ":users", 0, before[1], replace=True)
        assert client.call("coupon", coupon=coupon)["code"] == UNAVAILABLE
        wait_until(lambda: rough_redis.hget(key + ":seen", "1") == "7")
        assert client.issue(coupon, 8)["code"] == UNAVAILABLE
        rough.start("worker-1")
        wait_open(rough_redis, coupon, 2)
        wait_until(lambda: client.issue(coupon, 8)["code"] != UNAVAILABLE)
        assert [r["code"] for r in issue_all(client, coupon, range(9, 12))] == [0, 0, OUT_OF_STOCK]
        wait_until(lambda: count(rough_redis, coupon, "reserved") == 0)
    assert rejections(rough_pg, coupon) == {}
    wait_until(lambda: rough.ctl_run("audit", coupon).returncode == 0)


def test_no_stock_is_answered_before_every_gateway_could_report(
    rough, rough_redis, rough_pg, coupon_make, gateway_make
):
    """Redis is wiped while nothing is settled. Another gateway does not know what was accepted."""
    coupon = coupon_make(100)
    other = gateway_make(rough)
    with Client(rough.env["COUPON_LISTEN"]) as client, other.client() as client_of_other:

        def stock(one):
            reply = one.call("coupon", coupon=coupon)
            assert reply["code"] in (0, UNAVAILABLE), reply
            return reply.get("stock")

        with rough_pg.transaction():
            rough_pg.execute("LOCK TABLE user_coupon IN SHARE MODE")
            assert {r["code"] for r in issue_all(client, coupon, range(1, 8))} == {0}
            assert stock(client_of_other) == 93
            rough_redis.flushall()
            wait_open(rough_redis, coupon, 2)
            assert stock(client_of_other) is None
            ask = {"coupon": coupon, "user": "1"}  # busy while PostgreSQL has not answered
            status = wait_until(
                lambda: "receives" in (told := client_of_other.call("status", **ask)) and told
            )
            if status["receives"]:  # its gateway has made the copy again
                assert [one["state"] for one in status["receives"]] == ["accepted"]
            else:
                assert status["final"] is False
            assert stock(client) is None, "which reports what its gateway has seen"
            assert wait_until(lambda: stock(client_of_other)) == 93
            assert stock(client) == 93
    assert rejections(rough_pg, coupon) == {}


def test_by_hand_where_nothing_differs_nothing_changes(rough, rough_redis, rough_pg, coupon_make):
    coupon = coupon_make(1000)
    with History(rough, coupon, 1000, users=300) as history:
        history.start().wait_accepted(100)
        assert rough.ctl("rebuild", coupon).strip() == f"coupon {coupon}: nothing differs"
        history.judge()
    assert generation_of(rough_pg, coupon) == 1
    assert rough.ctl("rebuild", coupon).strip() == f"coupon {coupon}: nothing differs"
    assert generation_of(rough_pg, coupon) == 1


def numbers_read(coupon):
    """As the keeper sends it, before it compares."""
    key = key_of(coupon)
    return f"HGETALL\r\n${len(key)}\r\n{key}\r\n".encode()


@pytest.mark.parametrize("name, by, were", [("stock", 5, (45, 0)), ("reserved", 1, (40, 1))])
def test_by_hand_numbers_are_put_right_and_nothing_closes(
    name, by, were, rough, rough_redis, rough_pg, coupon_make, keeper_behind
):
    coupon = coupon_make(50)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        assert {r["code"] for r in issue_all(client, coupon, range(1, 11), ack="issued")} == {0}
    rough_redis.hincrby(key_of(coupon), name, by)
    _, gate = keeper_behind("REDIS_URL")
    gate.trap(script_sent("hold"))
    told = rough.ctl("rebuild", coupon)
    assert gate.trapped_num() == 0
    stock, reserved = were
    assert told.strip() == (
        f"coupon {coupon}: put right: stock 40, was {stock}; reserved 0, was {reserved}"
    )
    assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "reserved")) == (40, 0)
    assert generation_of(rough_pg, coupon) == 1
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_by_hand_numbers_that_change_while_they_are_compared_are_compared_again(
    rough, rough_redis, rough_pg, coupon_make, keeper_behind
):
    coupon = coupon_make(50)
    _, gate = keeper_behind("REDIS_URL")
    with ThreadPoolExecutor(1) as pool, Client(rough.env["COUPON_LISTEN"]) as client:
        assert {r["code"] for r in issue_all(client, coupon, range(1, 11), ack="issued")} == {0}
        rough_redis.hincrby(key_of(coupon), "stock", 5)
        gate.trap(script_sent("repair"))
        told = pool.submit(rough.ctl, "rebuild", coupon)
        wait_until(lambda: gate.trapped_num() == 1)
        assert client.issue(coupon, 11, ack="issued")["code"] == 0
        gate.let_go()
        assert "put right: stock 39, was 44; reserved 0, was 0" in told.result()
    assert generation_of(rough_pg, coupon) == 1
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_the_keeper_dies_before_it_puts_numbers_right(
    rough, rough_redis, rough_pg, coupon_make, keeper_behind
):
    coupon = coupon_make(50)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        assert {r["code"] for r in issue_all(client, coupon, range(1, 11), ack="issued")} == {0}
    rough_redis.hincrby(key_of(coupon), "stock", 5)
    worker, gate = keeper_behind("REDIS_URL")
    with ThreadPoolExecutor(1) as pool:
        gate.trap(script_sent("repair"))
        told = pool.submit(rough.ctl, "rebuild", coupon)
        wait_until(lambda: gate.trapped_num() == 1)
        worker.kill9()
        assert is_open(rough_redis, coupon) and count(rough_redis, coupon, "stock") == 45
        rough.start("worker-1")
        assert "put right: stock 40, was 45; reserved 0, was 0" in told.result()
    assert generation_of(rough_pg, coupon) == 1


PLANTED = {
    "a slot is gone": lambda r, key: r.hdel(key + ":users", "3"),
    "a slot too many": lambda r, key: r.hset(
        key + ":users", "99", "1:01ARZ3NDEKTSV4RRFFQ69G5FAV:0:"
    ),
    "another receive": lambda r, key: r.hset(
        key + ":users", "3", "1:01ARZ3NDEKTSV4RRFFQ69G5FAV:0:"
    ),
    "users of a wrong type": lambda r, key: (r.delete(key + ":users"), r.set(key + ":users", "x")),
}


@pytest.mark.parametrize("what", PLANTED)
def test_by_hand_what_differs_is_set_right(what, rough, rough_redis, rough_pg, coupon_make):
    coupon = coupon_make(50, 2)  # with a limit of 1 the keeper notices by itself
    key = key_of(coupon)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        assert {r["code"] for r in issue_all(client, coupon, range(1, 11), ack="issued")} == {0}
    users = rough_redis.hgetall(key + ":users")
    PLANTED[what](rough_redis, key)
    told = rough.ctl("rebuild", coupon).strip()
    rebuilt = f"coupon {coupon}: rebuilt as generation 2: 10 issued, 0 in flight, stock 40"
    assert told in (rebuilt, f"coupon {coupon}: nothing differs"), "or the keeper was first"
    assert rough_redis.hgetall(key + ":users") == users
    assert (count(rough_redis, coupon, "stock"), generation_of(rough_pg, coupon)) == (40, 2)
    assert rough.ctl_run("audit", coupon).returncode == 0


@pytest.mark.parametrize("limit", [1, 2])
def test_users_that_are_gone_are_noticed_by_the_keeper(
    limit, rough, rough_redis, rough_pg, coupon_make
):
    coupon = coupon_make(50, limit)
    key = key_of(coupon)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        for _ in range(limit):
            assert {r["code"] for r in issue_all(client, coupon, range(1, 11), ack="issued")} == {0}
        users = rough_redis.hgetall(key + ":users")
        rough_redis.delete(key + ":users")
        wait_open(rough_redis, coupon, 2)
        assert rough_redis.hgetall(key + ":users") == users
        assert issue_all(client, coupon, [1])[0]["code"] == LIMIT_REACHED
    assert rough.ctl_run("audit", coupon).returncode == 0


def code_plant(redis_client, coupon):
    """A code that nobody has claimed: a difference that the load does not notice."""
    redis_client.hset(key_of(coupon) + ":codes", "planted.1", "nobody")


@pytest.mark.parametrize("what", ["a code", "stock"])
def test_by_hand_again_and_again_under_load(what, rough, rough_redis, rough_pg, coupon_make):
    """Each run differs, so that each time receives of the earlier generation are in flight."""
    coupon = coupon_make(100_000, 2)
    with History(rough, coupon, 100_000, 2, users=3000) as history:
        history.start()
        for _ in range(4):
            history.wait_accepted(300)
            if what == "stock":
                rough_redis.hincrby(key_of(coupon), "stock", 1)
            else:
                code_plant(rough_redis, coupon)
            told = "put right: stock" if what == "stock" else "rebuilt as generation"
            assert told in rough.ctl("rebuild", coupon)
        history.wait_accepted(300)
        history.judge()
    assert rejections(rough_pg, coupon) == {}
    assert generation_of(rough_pg, coupon) == (1 if what == "stock" else 5)


@pytest.mark.parametrize("it_is", ["open", "held"])
def test_by_hand_what_is_settled_meanwhile_is_no_difference(
    it_is, rough, rough_redis, rough_pg, coupon_make, keeper_behind, amqp
):
    """A receive of an older generation is settled after the keeper has counted late outcomes and
    before it compares. It holds the coupon for a difference that is gone by then."""
    coupon, batch = coupon_make(50), ulid_at(rough_redis.time()[0] * 1000)
    seq = accept(rough_redis, coupon, 7, batch)
    rebuild(rough_redis, coupon)
    _, gate = keeper_behind("REDIS_URL")
    if it_is == "held":
        code_plant(rough_redis, coupon)
    with ThreadPoolExecutor(1) as pool:
        gate.trap(numbers_read(coupon) if it_is == "open" else script_sent("hold"))
        told = pool.submit(rough.ctl, "rebuild", coupon)
        wait_until(lambda: gate.trapped_num() == 1)
        rough_redis.delete(key_of(coupon) + ":codes")
        message_publish(amqp, message(coupon, batch=batch, seq=seq, receives=[["7", 1, ""]]))
        wait_until(lambda: generations(rough_pg, coupon)[1] == (1, 1))
        gate.let_go()
        assert "nothing differs" in told.result()
    assert generation_of(rough_pg, coupon) == 2
    assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "late")) == (49, 1)
    assert rough.ctl_run("audit", coupon).returncode == 0


def test_by_hand_twice_at_once(rough, rough_redis, rough_pg, coupon_make):
    coupon = coupon_make(100_000)
    with History(rough, coupon, 100_000, users=3000) as history, ThreadPoolExecutor(4) as pool:
        history.start().wait_accepted(300)
        code_plant(rough_redis, coupon)
        told = list(pool.map(lambda _: rough.ctl("rebuild", coupon), range(4)))
        assert all(
            "rebuilt as generation 2" in one or "nothing differs" in one for one in told
        ), told
        history.wait_accepted(300)
        history.judge()
    assert (
        generation_of(rough_pg, coupon) == 2
    ), "what one had corrected did not differ for the next"


def test_stock_that_postgresql_does_not_have_is_taken_back(
    rough, rough_redis, rough_pg, coupon_make
):
    coupon = coupon_make(100)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        rough_pg.execute("UPDATE coupon SET total_num = 3 WHERE id = %s", (coupon,))
        replies = issue_all(client, coupon, range(1, 6), ack="issued")
        assert sorted(r["code"] for r in replies) == [0, 0, 0, 9, 9]
        wait_open(rough_redis, coupon, 2)
        wait_until(lambda: client.issue(coupon, 50)["code"] == OUT_OF_STOCK)
        assert len(rejections(rough_pg, coupon)) == 1
    assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "lost")) == (0, 0)


def generations_opened_in(pg, coupons):
    """The transactions in which generation 1 of these coupons ended."""
    query = """SELECT DISTINCT xmin::text FROM coupon_generation
        WHERE generation = 1 AND coupon_id = ANY (%s)"""
    return {row[0] for row in pg.execute(query, ([int(c) for c in coupons],)).fetchall()}


def holders(redis_client, coupon):
    return set(redis_client.hkeys(key_of(coupon) + ":users"))


def small_coupons(rough, coupon_make, n, users):
    """Some with one slot for a user, and some with more."""
    coupons = [coupon_make(100, 1 + i % 2) for i in range(n)]
    with Client(rough.env["COUPON_LISTEN"]) as client:
        for coupon in coupons:
            replies = issue_all(client, coupon, users, ack="issued", key="k")
            assert {r["code"] for r in replies} == {0}
    return coupons


def test_small_coupons_come_back_together_but_for_one(rough, rough_redis, rough_pg, coupon_make):
    """One has a row that no rebuild can read: the others of its page do not wait for it."""
    coupons = small_coupons(rough, coupon_make, 6, range(1, 5))
    *others, poisoned = coupons
    row = """INSERT INTO user_coupon (coupon_id, user_id, slot, batch, idx, received_at, valid_from)
        VALUES (%s, 'no id', 1, gen_random_uuid(), 0, now(), now())"""
    rough_pg.execute(row, (poisoned,))
    try:
        rough_redis.flushall()
        for coupon in others:
            wait_open(rough_redis, coupon, 2)
            assert holders(rough_redis, coupon) == set("1234")
            assert count(rough_redis, coupon, "stock") == 96
            assert generation_of(rough_pg, coupon) == 2
        # Two, if the keeper was looking at them when Redis lost its data.
        assert len(generations_opened_in(rough_pg, others)) <= 2
        wait_until(lambda: f"coupon_put_off coupon={poisoned}" in rough.log("worker-1"))
        assert not is_open(rough_redis, poisoned)
    finally:
        rough_pg.execute("DELETE FROM user_coupon WHERE user_id = 'no id'")
    wait_open(rough_redis, poisoned, 2)
    assert holders(rough_redis, poisoned) == set("1234")
    with Client(rough.env["COUPON_LISTEN"]) as client:
        for coupon, limit in zip(coupons, [1, 2] * 3, strict=True):
            wait_until(lambda coupon=coupon: client.issue(coupon, 9)["code"] == 0)
            assert client.issue(coupon, 1, key="k")["slot"] == 1, "the key is known"
            assert client.issue(coupon, 1)["code"] == (LIMIT_REACHED if limit == 1 else 0)
    assert rejections(rough_pg, coupons[0]) == {}


def holders_add(pg, coupon, n):
    query = """INSERT INTO user_coupon
        (user_id, coupon_id, slot, idx, batch, received_at, valid_from)
        SELECT n, %s, 1, 0, gen_random_uuid(), now(), now() FROM generate_series(1, %s) AS n"""
    with pg.transaction():
        pg.execute(query, (coupon, n))
        pg.execute("UPDATE coupon SET issued_num = %s WHERE id = %s", (n, coupon))


@pytest.mark.parametrize("dies", [False, True])
def test_others_do_not_wait_for_a_big_coupon(
    dies, rough, rough_redis, rough_pg, coupon_make, keeper_behind
):
    """PostgreSQL reads its rows for as long as the others take."""
    big, rows = coupon_make(30_000), 21_000
    holders_add(rough_pg, big, rows)
    small = small_coupons(rough, coupon_make, 3, range(1, 5))
    worker, gate = keeper_behind("DATABASE_URL")
    gate.trap(query_sent("rebuild_fetch"))
    keys = [key_of(coupon) for coupon in (big, *small)]
    rough_redis.delete(*keys, *(key + ":users" for key in keys))  # at once: none comes alone
    wait_until(lambda: gate.trapped_num() == 1)
    for coupon in small:
        wait_open(rough_redis, coupon, 2)
    after = rough.coupon_make(10)
    wait_open(rough_redis, after)
    rough.ctl("close", after)
    wait_until(lambda: rough_redis.hget(key_of(after), "status") == "closed")
    assert not is_open(rough_redis, big)
    if dies:
        worker.kill9()
        rough.start("worker-1")
    else:
        gate.let_go()
    wait_open(rough_redis, big, 3 if dies else 2)
    assert rough_redis.hlen(key_of(big) + ":users") == rows


@pytest.mark.parametrize("is_lost", [True, False])
def test_terms_that_only_the_snapshot_has_wait_for_their_number(
    is_lost, rough_redis, rough_pg, coupon_make, keeper_behind
):
    """They are committed after the keeper has read the row, and before the snapshot is taken."""
    coupon = coupon_make(10)
    counts = "SELECT stripe::text, num::text FROM change_count"
    raised = "UPDATE coupon SET total_num = 20, version = version + 1 WHERE id = %s"
    _, gate = keeper_behind("DATABASE_URL")
    gate.trap(query_sent("rebuild_coupon"))
    if is_lost:
        rough_redis.delete(key_of(coupon), key_of(coupon) + ":users")
    else:
        rough_redis.hset(key_of(coupon), "rebuild", 1)
    wait_until(lambda: gate.trapped_num() == 1)
    before = set(rough_pg.execute(counts).fetchall())
    rough_pg.execute(raised, (coupon,))
    grown = dict(set(rough_pg.execute(counts).fetchall()) - before)
    with rough_redis.monitor() as monitor:
        gate.let_go()
        wait_until(lambda: rough_redis.hget(key_of(coupon), "total") == "20")
        assert grown.items() <= copied_before(monitor, coupon, "20").items()
    assert len(grown) == 1


def test_show_says_how_far_a_rebuild_is(rough, rough_redis, coupon_make):
    coupon = coupon_make(10)
    assert "rebuild " not in rough.ctl("show", coupon)
    rough_redis.set(key_of(coupon) + ":filled", "250 1000 3000", px=60000)
    text = rough.ctl("show", coupon)
    assert "rebuild      250 of 1000 user coupons in 3 s, about 9 s left" in text
    told = json.loads(rough.ctl("show", coupon, "--json"))["redis"]["rebuild"]
    assert told == {"filled": 250, "rows": 1000, "seconds": 3, "seconds_left": 9}
    rough_redis.delete(key_of(coupon) + ":filled")


def test_many_holders(rough, rough_redis, rough_pg, coupon_make):
    coupon = coupon_make(40_000)
    holders_add(rough_pg, coupon, 30_000)
    assert "30000 issued, 0 in flight, stock 10000" in rough.ctl("rebuild", coupon)
    assert rough_redis.hlen(key_of(coupon) + ":users") == 30_000
    assert not list(rough_redis.scan_iter(key_of(coupon) + ":fill:*"))


# Receives that can no longer arrive


def purge(amqp, n):
    """The messages of the queue are lost; one of them is returned."""
    wait_until(lambda: amqp.queue_declare(QUEUE, passive=True).method.message_count >= n)
    _, _, body = amqp.basic_get(QUEUE, auto_ack=True)
    amqp.queue_purge(QUEUE)
    return body


def test_what_is_lost_is_given_up_by_name(rough, rough_redis, rough_pg, coupon_make, amqp):
    coupon = coupon_make(10, 2)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        kept = client.issue(coupon, 1, ack="issued")
        rough.stop("worker-1")
        gone = [client.issue(coupon, user, ack="queued") for user in (1, 2, 3)]
        refused = rough.ctl_run("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
        assert refused.returncode == 1 and "the receive queue holds 3 messages" in refused.stderr
        body = purge(amqp, 3)
        rough_redis.delete(key_of(coupon) + ":outbox")
        rough.start("worker-1")
        told = rough.ctl("rebuild", coupon, "--give-up-lost")
        assert "coupon %s: 0 receives given up by name" % coupon in told, "too young"
        told = rough.ctl("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
        for reply in gone:
            assert (
                f"lost: receive {reply['receive']}, user {reply['receive'].split('.')[1]},"
                f" slot {reply['slot']}\n" in told
            )
        assert (
            f"coupon {coupon}: 3 receives given up by name" in told and kept["receive"] not in told
        )
        wait_until(lambda: count(rough_redis, coupon, "stock") == 9)
        assert client.call("status", receive=gone[0]["receive"])["reason"] == "lost"
        assert client.issue(coupon, 2, ack="issued")["status"] == "issued"
        amqp.basic_publish("coupon.topic", "coupon.receive", body)
        assert client.issue(coupon, 5, ack="issued")["status"] == "issued"
    assert rejections(rough_pg, coupon) == {"lost": 3}, "one that arrives later stays rejected"
    wait_until(lambda: rough.ctl_run("audit", coupon).returncode == 0)
    assert (
        count(rough_redis, coupon, "stock"),
        len(rough_redis.hgetall(key_of(coupon) + ":users")),
    ) == (7, 3)


def test_what_is_lost_without_a_name_is_given_up_by_number(
    rough, rough_redis, rough_pg, coupon_make, amqp
):
    coupon = coupon_make(10)
    with Client(rough.env["COUPON_LISTEN"]) as client:
        assert client.issue(coupon, 1, ack="issued")["status"] == "issued"
        rough.stop("worker-1")
        assert {r["code"] for r in issue_all(client, coupon, range(2, 6), ack="queued")} == {0}
        purge(amqp, 1)
        rough_redis.flushall()
        assert client.issue(coupon, 7)["code"] == UNAVAILABLE
        rough.start("worker-1")
        wait_until(lambda: client.issue(coupon, 7)["code"] == 0)
        assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "reserved")) == (
            4,
            4,
        )
        told = rough.ctl("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
        assert "lost: 4 receives of generation 1 that nothing names\n" in told
        assert (count(rough_redis, coupon, "stock"), count(rough_redis, coupon, "reserved")) == (
            8,
            0,
        )
    wait_until(lambda: rough.ctl_run("audit", coupon).returncode == 0)


def test_each_lost_receive_is_counted_in_its_generation(
    rough, rough_redis, rough_pg, coupon_make, worker_make, amqp
):
    """Three generations with receives in flight. Of the first, one is in the outbox; of the second,
    one is too young to be given up."""
    coupon = coupon_make(20)
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_RESEND_AFTER_MS=3_600_000)
    now_ms = rough_redis.time()[0] * 1000
    batches = [ulid_at(now_ms - 1_800_000) for _ in range(7)]
    sent, young = batches[3], ulid_at(now_ms)
    for user in (1, 2, 3):
        accept(rough_redis, coupon, user, batches[user])
    body = message_text(coupon, batch=sent, seq=3, at=now_ms, receives=[["3", 1, ""]])
    rough_redis.hset(key_of(coupon) + ":outbox", sent, body)
    rebuild(rough_redis, coupon)
    accept(rough_redis, coupon, 4, batches[4])
    accept(rough_redis, coupon, 5, young)
    rebuild(rough_redis, coupon)
    accept(rough_redis, coupon, 6, batches[6])
    assert rough_redis.scard(key_of(coupon) + ":known") == 5
    told = rough.ctl("rebuild", coupon, "--give-up-lost", "--older-than-s", 600)
    named = {line.split(",")[0] for line in told.splitlines() if line.startswith("lost: ")}
    assert named == {
        f"lost: receive {coupon}.{user}.{batches[user]}.0" for user in (1, 2, 4, 6)
    }, told
    assert generations(rough_pg, coupon) == {1: (3, 2), 2: (2, 1)}
    worker.end()
    rough.start("worker-1")
    message_publish(
        amqp, message(coupon, batch=young, generation=2, seq=2, receives=[["5", 1, ""]])
    )
    close_until_settled(rough, rough_pg, coupon)
    assert generations(rough_pg, coupon) == {1: (3, 3), 2: (2, 2)}
    assert rejections(rough_pg, coupon) == {"lost": 4}
    assert rough_redis.hkeys(key_of(coupon) + ":users") == ["3", "5"]
    assert rough.ctl_run("audit", coupon).returncode == 0
