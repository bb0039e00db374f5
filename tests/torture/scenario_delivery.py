"""Messages delivered twice, in another order, a day late, or never sent by any gateway."""

import collections
import contextlib
import json

import pika
from history import DEAD_QUEUE, QUEUE, USE_QUEUE, queue_length
from message import batches
from scenario_link import LINKS, heal_all, link_open
from scenario_rabbitmq import queue_unsettled
from services import ask, say

from scenario import OUTCOMES_LATE, REDIS_LOSES, scenario

Copy = collections.namedtuple("Copy", "properties body")
UNKNOWN_COUPON = 10**17
MOST = 200  # copies of a round: workers have the others to settle, too


class Tap:
    """A queue of its own beside one of the workers': a copy of every message that gateways and
    keeper publish to it. parts(body): what of a message is a copy by itself."""

    def __init__(self, rig, routing_key="coupon.receive", beside=QUEUE, parts=batches):
        self.beside, self.parts = beside, parts
        parameters = pika.URLParameters(rig.stack.env["AMQP_URL"])
        parameters.heartbeat = 0  # it would be answered only while a scenario uses the connection
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.queue = self.channel.queue_declare("", exclusive=True).method.queue
        self.channel.queue_bind(self.queue, "coupon.topic", routing_key)
        rig.on_end(self.close)

    def drain(self, most=None):
        """The batches since the last call, each as a message. Not those that come meanwhile: on a
        busy machine they come faster than they are read. Of more than `most` messages the others
        are dropped: where each call is followed by work for each copy, there would be more of them
        every time."""
        copies = []
        count = self.channel.queue_declare(self.queue, passive=True).method.message_count
        for _ in range(min(count, most or count)):
            method, properties, body = self.channel.basic_get(self.queue, auto_ack=True)
            if method:
                copies += [Copy(properties, part) for part in self.parts(body)]
        if most and count > most:
            self.channel.queue_purge(self.queue)
        return copies

    def wait(self, rig, number, most=None):
        copies = []
        rig.wait(lambda: copies.extend(self.drain(most)) or len(copies) >= number)
        return copies

    def publish(self, copies):
        """To the workers only."""
        for copy in copies:
            self.channel.basic_publish("", self.beside, copy.body, copy.properties)

    def close(self):
        """It may have ended with the broker."""
        with contextlib.suppress(pika.exceptions.AMQPError):
            self.connection.close()


def tap_open(rig, _chance):
    rig.tap = Tap(rig)
    rig.tap_of_uses = Tap(rig, "coupon.use", USE_QUEUE, lambda body: [body])


@scenario(prepare=tap_open, **OUTCOMES_LATE)
def deliveries_duplicated(rig, chance):
    """Many messages are delivered two to six times, at once, with the reply address of their
    gateway."""
    for _ in range(15):
        for tap, least in ((rig.tap, 10), (rig.tap_of_uses, 1)):
            copies = tap.wait(rig, least, most=MOST)
            tap.publish([copy for copy in copies for _ in range(chance.randint(1, 5))])
    say("15 times at least 10 messages, and one of uses, each two to six times")


@scenario(prepare=tap_open, **OUTCOMES_LATE)
def deliveries_reordered(rig, chance):
    """Workers get copies in any order, of settled and unsettled messages."""
    for _ in range(4):
        kept = rig.tap.wait(rig, chance.randint(20, 100), most=MOST)
        for part in rig.workers:
            part.stop()
        rig.wait_accepted(chance.randint(1, 20))
        kept += rig.tap.drain(most=MOST)
        rig.tap.publish(chance.sample(kept, len(kept)))
        for part in rig.workers:
            part.cont()
        rig.tap.publish(chance.sample(kept, len(kept)))
        rig.wait_answers(50)
    say("4 times some messages again, shuffled, before and after workers got them")


def tap_and_link_open(rig, chance):
    link_open(rig, LINKS["gateway_rabbitmq"])
    tap_open(rig, chance)


@scenario(prepare=tap_and_link_open, **REDIS_LOSES)
def deliveries_a_day_later(rig, chance):
    """After everything is settled, every message is delivered again. Redis was wiped meanwhile:
    some slots have other owners than before."""
    rig.on_heal(lambda: heal_all(rig))
    rig.wait_accepted(chance.randint(50, 200))
    slots_given_twice(rig, chance)
    rig.wait_answers(chance.randint(100, 300))
    rig.on_judge(lambda: all_again(rig, chance))


def slots_given_twice(rig, chance):
    """Redis loses users whose messages have not reached RabbitMQ: they retry and get a second slot,
    and one of the two is rejected."""
    campaign = rig.load.campaigns[0]
    users = [campaign.user(n) for n in chance.sample(range(10**12, 10**13), 20)]
    for relay in rig.relays:
        relay.mode("hold")
    for user in users:
        assert ask(rig, campaign, user)["code"] == 0
    say("FLUSHALL while nothing reaches RabbitMQ")
    with rig.redis() as cache:
        cache.flushall()
    for user in users:
        rig.wait(lambda: ask(rig, campaign, user)["code"] in (0, 4))  # noqa: B023
    heal_all(rig)


def state_of(rig):
    """The complete state of the load's campaigns: rows as they were written, rejections, counts,
    and Redis; and what orders did."""
    ids = [int(campaign.coupon) for campaign in rig.load.campaigns]
    queries = (
        "SELECT xmin::text, * FROM user_coupon WHERE coupon_id = ANY(%s) ORDER BY user_id,"
        " coupon_id, slot",
        "SELECT * FROM receive_rejected WHERE coupon_id = ANY(%s) ORDER BY coupon_id, batch, idx",
        "SELECT id, issued_num, generation, seq_seen, settled_num FROM coupon WHERE id ="
        " ANY(%s) ORDER BY id",
    )
    of_orders = (
        "SELECT xmin::text, * FROM receive_use WHERE state = 'used' ORDER BY coupon_id, batch, idx",
        "SELECT * FROM use_operation WHERE action <> 'expire' ORDER BY num",
    )
    with rig.pg() as pg, rig.redis() as cache:
        rows = [pg.execute(query, (ids,)).fetchall() for query in queries]
        rows += [pg.execute(query).fetchall() for query in of_orders]
        return [*rows, *(cache.hgetall(f"coupon:{{{coupon}}}:users") for coupon in ids)]


def all_again(rig, chance):
    before = state_of(rig)
    copies, uses = rig.tap.drain(), rig.tap_of_uses.drain()
    say(
        f"{len(copies)} messages of {len(before[0])} user coupons and {len(before[1])}"
        f" rejections again, shuffled, and {len(uses)} of uses"
    )
    assert len(copies) > 20 and before[1] and uses
    rig.tap.publish(chance.sample(copies, len(copies)))
    rig.tap_of_uses.publish(chance.sample(uses, len(uses)))
    rig.wait(lambda: queue_unsettled(rig) == 0 == queue_unsettled(rig, USE_QUEUE))
    assert state_of(rig) == before, "old copies changed something"
    for campaign in rig.load.campaigns:
        campaign.judge()


# Messages that no gateway sent


def garbage_make(chance, copies):
    """Malformed bodies, most of them nearly correct."""
    number = chance.randint(10, 40)
    return [chance.choice(GARBAGE)(chance, chance.choice(copies).body) for _ in range(number)]


def truncated(chance, body):
    return body[: chance.randrange(len(body))]


def of_the_future(chance, body):
    return json.dumps(
        {**json.loads(body), "v": chance.choice((0, 2, 3, 2**31, "1", None))}
    ).encode()


def doubled(_chance, body):
    return body + body


def noise(chance, _body):
    return chance.randbytes(chance.randint(0, 3000))


def without_a_member(chance, body):
    message = json.loads(body)
    del message[chance.choice(list(message))]
    return json.dumps(message).encode()


def with_nul(chance, body):
    place = chance.randrange(len(body))
    return body[:place] + b"\0" + body[place:]


GARBAGE = (truncated, of_the_future, doubled, noise, without_a_member, with_nul)


@scenario(prepare=tap_open)
def deliveries_of_garbage(rig, chance):
    """Malformed bodies and unknown versions among the others: dead-lettered, and other messages are
    not affected."""
    copies = rig.tap.wait(rig, 20)
    bodies = garbage_make(chance, copies)
    rig.expect_dead(len(bodies))
    say(f"{len(bodies)} messages that cannot be read")
    for body in bodies:
        rig.tap.publish([Copy(pika.BasicProperties(delivery_mode=2), body)])
        rig.wait_answers(chance.randint(0, 20))
    rig.wait(lambda: queue_length(rig.stack, DEAD_QUEUE) == len(bodies))


@scenario(prepare=tap_open)
def deliveries_for_an_unknown_coupon(rig, chance):
    """Messages for coupons that are unknown to PostgreSQL: each receive is rejected once, and so
    are copies."""
    copies = rig.tap.wait(rig, 20)
    strangers, receives = [], 0
    for number, copy in enumerate(chance.sample(copies, 10)):
        message = {
            **json.loads(copy.body),
            "coupon": str(UNKNOWN_COUPON + chance.randrange(10**9) + number),
        }
        receives += len(message["receives"])
        strangers.append(Copy(pika.BasicProperties(delivery_mode=2), json.dumps(message).encode()))
    say(f"{len(strangers)} messages with {receives} receives for unknown coupons, three times")
    ids = [int(json.loads(copy.body)["coupon"]) for copy in strangers]
    for _ in range(3):
        rig.tap.publish(chance.sample(strangers, len(strangers)))
        rig.wait_answers(50)
    rejected = (
        "SELECT count(*), count(DISTINCT (coupon_id, batch, idx)) FROM receive_rejected WHERE"
        " coupon_id = ANY(%s) AND reason = %s"
    )
    with rig.pg() as pg:
        rig.wait(
            lambda: pg.execute(rejected, (ids, "unknown_coupon")).fetchone() == (receives, receives)
        )
