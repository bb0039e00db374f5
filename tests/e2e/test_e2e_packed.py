"""Messages that carry several batches: the gateway packs what waits, the worker treats each batch
as a message of its own."""

import json
from concurrent.futures import ThreadPoolExecutor

import pika
import psycopg
import pytest

from history import DEAD_QUEUE, PARKED_QUEUE, queue_length
from message import batches, message, message_publish, packed
from relay import Relay, port_of
from stack import wait_until
from ulid import ulid_uuid
from unstorable import nothing_storable

COUPONS, USERS = 40, 8
UNKNOWN_COUPON = 10**17


@pytest.fixture
def amqp_rough(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.queue_purge(DEAD_QUEUE)
        yield channel
        channel.queue_purge(DEAD_QUEUE)


@pytest.fixture
def copies(amqp_rough):
    """What gateways publish from now on, message by message."""
    queue = amqp_rough.queue_declare("", exclusive=True).method.queue
    amqp_rough.queue_bind(queue, "coupon.topic", "coupon.receive")

    def drain():
        while (got := amqp_rough.basic_get(queue, auto_ack=True))[0]:
            yield got[1], got[2]

    return drain


def coupons_make(stack, n):
    with ThreadPoolExecutor(8) as pool:
        coupons = list(pool.map(stack.coupon_make, [100] * n))
    with stack.client() as client:
        for coupon in coupons:
            wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
    return coupons


def body_of(coupon, **members):
    return json.dumps(message(coupon, **members), separators=(",", ":")).encode()


def issued(pg, coupons):
    """(coupon, user) of the rows."""
    query = "SELECT coupon_id, user_id FROM user_coupon WHERE coupon_id = ANY (%s)"
    return sorted(pg.execute(query, ([*map(int, coupons)],)).fetchall())


def test_what_waits_for_the_broker_is_packed(rough, rough_pg, gateway_make, copies):
    coupons = coupons_make(rough, COUPONS)
    wanted = sorted((int(coupon), str(user)) for coupon in coupons for user in range(USERS))
    with Relay(port_of(rough.env["AMQP_URL"])) as relay:
        url = relay.url(rough.env_of("gateway")["AMQP_URL"])
        gateway = gateway_make(rough, AMQP_URL=url, COUPON_ISSUED_TIMEOUT_MS=120_000)
        rough.stop("worker-1")  # its keeper would send them again
        relay.hold()
        requests = [
            {"op": "issue", "coupon": coupon, "user": user, "ack": ack}
            for user in range(USERS)
            for coupon in coupons
            for ack in ["issued" if user == 0 else "accepted"]
        ]
        with gateway.client() as client:
            for request in requests:
                client.send_line(request)
            replies = [client.read_reply() for _ in range(len(requests) - COUPONS)]
            assert {reply["status"] for reply in replies} == {"accepted"}
            relay.heal()
            rough.start("worker-1")
            replies = [client.read_reply() for _ in range(COUPONS)]
            assert {reply["status"] for reply in replies} == {"issued"}
        wait_until(lambda: issued(rough_pg, coupons) == wanted)
    messages = list(copies())
    sent = [batch for _, body in messages for batch in batches(body)]
    # Some are there twice where a busy machine made the keeper send them again.
    assert len({json.loads(batch)["batch"] for batch in sent}) >= COUPONS
    assert len(messages) < len(sent) / 5
    for properties, body in messages:
        users = {user for batch in batches(body) for user, _, _ in json.loads(batch)["receives"]}
        assert (properties.reply_to is not None) == ("0" in users)
        assert properties.correlation_id == json.loads(batches(body)[0])["batch"]
        json.loads(body)


def test_each_batch_has_its_reply(rough, rough_pg, amqp_rough):
    coupons = coupons_make(rough, 3)
    reply_to = amqp_rough.queue_declare("", exclusive=True).method.queue
    sent = [message(coupon) for coupon in (*coupons, UNKNOWN_COUPON)]
    bodies = [json.dumps(one).encode() for one in sent]
    message_publish(amqp_rough, packed(bodies), reply_to=reply_to, correlation_id="of the whole")
    replies = []
    wait_until(lambda: replies.append(amqp_rough.basic_get(reply_to, auto_ack=True)) or
               sum(got[0] is not None for got in replies) == len(sent))  # fmt: skip
    told = {got[1].correlation_id: json.loads(got[2]) for got in replies if got[0]}
    assert set(told) == {one["batch"] for one in sent}
    for one in sent:
        outcome = [0, "issued"] if int(one["coupon"]) != UNKNOWN_COUPON else [
            0, "rejected", "unknown_coupon"
        ]  # fmt: skip
        assert told[one["batch"]] == {"v": 1, "batch": one["batch"], "outcomes": [outcome]}
    assert issued(rough_pg, coupons) == sorted((int(coupon), "42") for coupon in coupons)


def test_a_copy_changes_nothing(rough, rough_pg, amqp_rough):
    coupons = coupons_make(rough, 4)
    bodies = [body_of(coupon) for coupon in coupons]
    for whole in (packed(bodies), packed(bodies[::-1]), bodies[2], packed(bodies)):
        message_publish(amqp_rough, whole)
    wait_until(lambda: len(issued(rough_pg, coupons)) == len(coupons))
    with rough.client() as client:
        # It is behind them. A test before may have left a store that is compared once more.
        wait_until(lambda: client.issue(coupons[0], 1, key="k", ack="issued")["code"] == 0)
    counts = "SELECT issued_num, settled_num FROM coupon WHERE id = ANY (%s) ORDER BY id"
    rows = rough_pg.execute(counts, ([*map(int, coupons[1:])],)).fetchall()
    assert rows == [(1, 1)] * (len(coupons) - 1)


def test_only_what_cannot_be_settled_is_dead_lettered(rough, rough_pg, amqp_rough):
    coupons = coupons_make(rough, 4)
    bodies = [body_of(coupon, receives=[[f"u{i}", 1, ""]]) for i, coupon in enumerate(coupons)]
    with nothing_storable(rough, "user_id <> 'u2'"):
        message_publish(amqp_rough, packed([*bodies, b'{"v":1}']), content_type="application/json")
        wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 2)
    dead = [amqp_rough.basic_get(DEAD_QUEUE, auto_ack=True) for _ in range(2)]
    assert sorted(body for _, _, body in dead) == sorted([bodies[2], b'{"v":1}'])
    reasons = {body: properties.headers["x-couponmq-reason"] for _, properties, body in dead}
    assert reasons[bodies[2]] == "unstorable: SQLSTATE 23514"
    assert reasons[b'{"v":1}'].startswith("unreadable: ")
    assert len(issued(rough_pg, coupons)) == 3


def test_only_a_locked_coupon_waits(rough, rough_pg, amqp_rough, worker_make):
    """Its batch is parked, and the message is acked, although it was never settled as a whole."""
    coupons = coupons_make(rough, 8)
    rough.stop("worker-1")
    bodies = [body_of(coupon, receives=[["1", 1, ""]]) for coupon in coupons]
    more = [body_of(coupons[0], receives=[[f"{user}", 1, ""]], seq=user) for user in range(2, 9)]
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupons[0],))
        worker = worker_make(rough, COUPON_PREFETCH=4)
        message_publish(amqp_rough, packed([*bodies, *more]))
        wait_until(lambda: len(issued(rough_pg, coupons)) == 7)
        wait_until(lambda: worker.metrics()["couponmq_worker_parked_total"] > 0)
        assert issued(rough_pg, coupons[:1]) == []
        worker.kill9()
        again = worker_make(rough, COUPON_PREFETCH=4)
        wait_until(lambda: again.metrics()["couponmq_worker_put_off"] > 0)
    wait_until(lambda: len(issued(rough_pg, coupons[:1])) == 8)
    wait_until(lambda: again.metrics()["couponmq_worker_held"] == 0)
    assert queue_length(rough) == queue_length(rough, PARKED_QUEUE) == 0


def listed(stack):
    return json.loads(stack.ctl("dead", "list", "--json"))["messages"]


def dead_packed(stack, channel, coupons):
    """A packed message in the dead-letter queue, as the broker itself puts one there."""
    bodies = [body_of(coupon) for coupon in coupons]
    channel.basic_publish("", DEAD_QUEUE, packed(bodies), pika.BasicProperties(delivery_mode=2))
    wait_until(lambda: queue_length(stack, DEAD_QUEUE) == 1)
    return [json.loads(body)["batch"] for body in bodies]


def test_a_packed_dead_letter_is_shown_and_requeued(rough, rough_pg, amqp_rough):
    coupons = coupons_make(rough, 3)
    ids = dead_packed(rough, amqp_rough, coupons)
    (one,) = listed(rough)
    assert (one["batches"], one["receives"], one["readable"]) == (3, 3, True)
    assert (one["coupon"], one["batch"]) == (None, None)
    assert "3 batches" in rough.ctl("dead", "list")
    shown = json.loads(rough.ctl("dead", "show", ids[1], "--json"))
    assert [batch["batch"] for batch in json.loads(shown["body"])["batches"]] == ids
    assert rough.ctl("dead", "requeue", ids[2]) == "1 message requeued"
    wait_until(lambda: len(issued(rough_pg, coupons)) == 3)
    assert listed(rough) == []


def test_a_packed_dead_letter_is_dropped(rough, rough_redis, rough_pg, amqp_rough):
    """Each receive is named; what is settled already is not owed; outbox and marks are cleared."""
    coupons = coupons_make(rough, 3)
    ids = dead_packed(rough, amqp_rough, coupons)
    for coupon, batch, body in zip(coupons, ids, dead_bodies(amqp_rough), strict=True):
        rough_redis.hset(f"coupon:{{{coupon}}}:outbox", batch, body)
        rough_redis.sadd(f"coupon:{{{coupon}}}:dead", batch)
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
    dropped = rough.ctl("dead", "remove", "--all", "--yes").splitlines()
    assert dropped[0].startswith("removed 1: 3 batches, 3 receives, ")
    owed = {f"owed: {coupon}.42.{batch}.0" for coupon, batch in zip(coupons, ids, strict=True)}
    assert {line.strip() for line in dropped[1:-1]} == owed
    assert dropped[-1] == "1 message removed, with 3 receives that were owed"
    for coupon in coupons:
        assert not rough_redis.exists(f"coupon:{{{coupon}}}:outbox")
    query = "SELECT count(*) FROM user_coupon WHERE batch = ANY (%s)"
    assert rough_pg.execute(query, ([*map(ulid_uuid, ids)],)).fetchone() == (0,)


def dead_bodies(channel):
    """The batches of the only dead letter, which stays."""
    method, _, body = channel.basic_get(DEAD_QUEUE)
    channel.basic_nack(method.delivery_tag, requeue=True)
    return batches(body)
