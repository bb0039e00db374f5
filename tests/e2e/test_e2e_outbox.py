"""The outbox in Redis keeps each message until PostgreSQL has an outcome for all its receives; then
the worker removes it, and records what PostgreSQL has. What is dead-lettered stays, and is marked,
until an operator decides."""

import time

import pika
import pytest

from coupon_seen import Seen
from history import DEAD_QUEUE, queue_length
from message import message_publish, message_text
from relay import Relay, port_of
from stack import wait_until
from ulid import ulid_make, ulid_of
from unstorable import nothing_storable

DEAD_S = 30 * 24 * 3600
LATER = {"COUPON_RESEND_AFTER_MS": 3600000}  # the keeper sends nothing again
SLOT_TOO_HIGH = 9
CHANGES = "couponmq:changes"


class Outbox(Seen):
    """A coupon whose messages are put into the outbox and the queue as a gateway does it."""

    def __init__(self, coupon, redis_client, pg, channel):
        super().__init__(coupon, redis_client, pg)
        self.channel = channel
        self.begun = self.numbers()

    def put(self, user, slot=1, **changes):
        """Only into the outbox. Returns the batch."""
        body = {"at": int(time.time() * 1000), "receives": [[str(user), slot, ""]], **changes}
        batch = body.setdefault("batch", ulid_make())
        self.redis.hset(self.key + ":outbox", batch, message_text(self.coupon, **body))
        return batch

    def publish(self, batch):
        message_publish(self.channel, self.redis.hget(self.key + ":outbox", batch).encode())

    def send(self, user, slot=1, **changes):
        batch = self.put(user, slot, **changes)
        self.publish(batch)
        return batch

    def entries(self):
        return set(self.redis.hkeys(self.key + ":outbox"))

    def marks(self):
        return self.redis.smembers(self.key + ":dead")

    def list(self, name):
        return sorted(self.redis.lrange(f"{self.key}:{name}", 0, -1))

    def settled(self):
        """As PostgreSQL has them; each receive has the time of its batch."""
        rows = self.pg.execute(
            "SELECT DISTINCT batch, (extract(epoch FROM received_at) * 1000)::bigint"
            " FROM (SELECT coupon_id, batch, received_at FROM user_coupon"
            " UNION ALL SELECT coupon_id, batch, received_at FROM receive_rejected) AS r"
            " WHERE coupon_id = %s",
            (self.coupon,),
        )
        return sorted(f"{ulid_of(batch)}:{at}" for batch, at in rows)

    def rejected(self):
        rows = self.pg.execute(
            "SELECT batch, idx, slot, reason, user_id FROM receive_rejected WHERE coupon_id = %s",
            (self.coupon,),
        )
        return sorted(":".join(map(str, (ulid_of(batch), *rest))) for batch, *rest in rows)

    def is_recorded(self):
        return (self.list("settled"), self.list("rejected")) == (self.settled(), self.rejected())

    def numbers(self):
        """The numbers of workers' transactions by their stripe, in PostgreSQL. A transaction counts
        up that of its session, or another that is free."""
        return dict(self.pg.execute("SELECT stripe, num FROM change_count WHERE stripe >= 64"))

    def is_copied(self, before=None):
        """Something was counted since then, or since the beginning, and Redis has its number."""
        before = before or self.begun
        grown = {key: num for key, num in self.numbers().items() if num > before[key]}
        return grown and all(
            int(self.redis.hget(CHANGES, key) or 0) == num for key, num in grown.items()
        )

    def issued(self):
        return self.row("issued_num")[0]


@pytest.fixture
def amqp_rough(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.queue_purge(DEAD_QUEUE)
        yield channel
        channel.queue_purge(DEAD_QUEUE)


@pytest.fixture
def outbox(rough, rough_redis, rough_pg, amqp_rough):
    """The outbox of a coupon that only the processes of the test settle."""
    coupon = rough.coupon_make(100)
    wait_until(lambda: rough_redis.exists(f"coupon:{{{coupon}}}"))
    rough.stop("worker-1")
    return Outbox(coupon, rough_redis, rough_pg, amqp_rough)


@pytest.fixture
def behind(rough, outbox, worker_make):
    """A worker whose connections to Redis go through a relay."""
    with Relay(port_of(rough.env["REDIS_URL"])) as relay:
        yield worker_make(
            rough, REDIS_URL=relay.url(rough.env_of("worker")["REDIS_URL"]), **LATER
        ), relay


def dead_lettered(rough, outbox, users):
    """Batches of messages that a worker has dead-lettered."""
    before = queue_length(rough, DEAD_QUEUE)
    with nothing_storable(rough):
        batches = {outbox.send(user) for user in users}
        wait_until(lambda: queue_length(rough, DEAD_QUEUE) == before + len(batches))
        wait_until(lambda: batches <= outbox.marks())
    return batches


# Settled


@pytest.mark.long
def test_what_has_an_outcome_is_removed(rough, outbox, worker_make):
    worker = worker_make(rough, **LATER)
    batch = outbox.send(42)
    wait_until(lambda: not outbox.entries())
    assert outbox.issued() == 1
    outbox.send(42, batch=batch)  # repeated
    outbox.send(43, slot=SLOT_TOO_HIGH)  # rejected
    wait_until(lambda: not outbox.entries())
    assert outbox.issued() == 1
    assert worker.metrics()["couponmq_worker_outbox_removed_total"] == 3
    assert worker.metrics()["couponmq_worker_outbox_forgotten_total"] == 0


@pytest.mark.long
def test_many_of_several_coupons_are_removed(rough, outbox, worker_make):
    other = Outbox(rough.coupon_make(100), outbox.redis, outbox.pg, outbox.channel)
    for user in range(1, 101):
        outbox.send(user)
        other.send(user)
    worker = worker_make(rough, **LATER)
    wait_until(lambda: not outbox.entries() and not other.entries())
    assert (outbox.issued(), other.issued()) == (100, 100)
    assert worker.metrics()["couponmq_worker_outbox_removed_total"] == 200


def test_all_that_is_issued_leaves_the_outbox(rough, rough_coupon):
    coupon = rough_coupon(50)
    with rough.client() as client:
        replies = client.pipeline(
            [{"op": "issue", "coupon": coupon.coupon, "user": str(user)} for user in range(1, 51)]
        )
    assert {reply["status"] for reply in replies} == {"accepted"}
    wait_until(lambda: coupon.row("issued_num") == (50,))
    wait_until(lambda: not coupon.redis.exists(coupon.key + ":outbox"))
    coupon = Outbox(coupon.coupon, coupon.redis, coupon.pg, None)
    assert coupon.is_recorded() and len(coupon.list("settled")) > 0


def test_killed_between_commit_and_removal(rough, outbox, behind, worker_make):
    worker, relay = behind
    relay.trap("EVALSHA")
    batches = {outbox.send(user) for user in range(1, 6)}
    wait_until(lambda: outbox.issued() == 5 and relay.trapped_num() > 0)
    worker.kill9()
    relay.cut()
    assert outbox.entries() == batches and outbox.list("settled") == []
    worker = worker_make(rough, **LATER)
    for batch in batches:
        outbox.publish(batch)
    wait_until(lambda: not outbox.entries())
    assert outbox.issued() == 5 and outbox.is_recorded()
    assert worker.metrics()["couponmq_worker_repeated_total"] >= 5


# Recorded


def test_what_is_settled_is_recorded_once(rough, outbox, worker_make):
    worker_make(rough, **LATER)
    for user in range(1, 21):
        outbox.send(f"auth0|{user}:x")
    mixed = outbox.send(
        0, receives=[["a:b", 1, ""], ["a:b", SLOT_TOO_HIGH, ""], ["1:2", 32767, ""], ["c", 1, ""]]
    )
    wait_until(lambda: not outbox.entries())
    assert outbox.is_recorded()
    assert (len(outbox.settled()), len(outbox.rejected()), outbox.issued()) == (21, 2, 22)
    wait_until(outbox.is_copied)
    lists = outbox.list("settled"), outbox.list("rejected")
    before = outbox.numbers()
    receives = [["a:b", 1, ""], ["a:b", SLOT_TOO_HIGH, ""]]
    message = message_text(outbox.coupon, batch=mixed, receives=receives)
    message_publish(outbox.channel, message.encode())
    wait_until(lambda: outbox.is_copied(before))
    assert (outbox.list("settled"), outbox.list("rejected")) == lists


def test_a_rejection_that_was_recorded_by_nobody(rough, outbox, behind, worker_make):
    """The worker that rejected it was killed before."""
    worker, relay = behind
    relay.trap("EVALSHA")
    batch = outbox.send(1, slot=SLOT_TOO_HIGH)
    wait_until(lambda: outbox.rejected() and relay.trapped_num() > 0)
    assert outbox.is_copied(), "before the entry goes"
    worker.kill9()
    relay.cut()
    worker_make(rough, **LATER)
    outbox.publish(batch)
    wait_until(lambda: not outbox.entries())
    assert outbox.is_recorded() and outbox.list("rejected")


def test_without_memory_it_is_recorded_too(rough, outbox, worker_make):
    worker_make(rough, **LATER)
    batches = [outbox.put(user) for user in range(1, 6)]
    batches.append(outbox.put(6, slot=SLOT_TOO_HIGH))
    outbox.redis.config_set("maxmemory", "1mb")
    try:
        for batch in batches:
            outbox.publish(batch)
        wait_until(lambda: not outbox.entries())
        wait_until(outbox.is_copied)
    finally:
        outbox.redis.config_set("maxmemory", 0)
    assert outbox.is_recorded() and len(outbox.list("settled")) == 6


@pytest.mark.long
def test_a_refused_record_stops_no_other_coupon(rough, outbox, worker_make):
    other = Outbox(rough.coupon_make(100), outbox.redis, outbox.pg, outbox.channel)
    outbox.redis.set(outbox.key + ":settled", "x")
    batches = {outbox.send(user) for user in range(1, 6)}
    for user in range(1, 6):
        other.send(user)
    worker = worker_make(rough, **LATER)
    wait_until(lambda: not other.entries())
    assert other.is_recorded()
    wait_until(lambda: worker.metrics()["couponmq_worker_outbox_forgotten_total"] == 5)
    assert outbox.entries() == batches and outbox.issued() == 5
    outbox.redis.delete(outbox.key + ":settled")
    for batch in batches:
        outbox.publish(batch)
    wait_until(lambda: not outbox.entries())
    assert outbox.is_recorded()


def test_nothing_is_removed_before_its_number_is_copied(rough, outbox, worker_make):
    worker = worker_make(rough, **LATER)
    told = outbox.redis.execute_command("ACL", "GETUSER", "couponmq_worker")
    before = told[told.index("keys") + 1].split()
    keys = "resetkeys", "~coupon:*", "%R~couponmq:*"
    outbox.redis.execute_command("ACL", "SETUSER", "couponmq_worker", *keys)
    try:
        batches = {outbox.send(user) for user in range(1, 6)}
        wait_until(lambda: outbox.issued() == 5)
        wait_until(lambda: "event=outbox_failed" in worker.log())
        assert outbox.entries() == batches and outbox.list("settled") == []
    finally:
        keys = "resetkeys", *before
        outbox.redis.execute_command("ACL", "SETUSER", "couponmq_worker", *keys)
    wait_until(lambda: not outbox.entries())
    assert outbox.is_copied() and outbox.is_recorded()


def test_nothing_is_settled_before_the_numbers_can_be_read(rough, rough_owner, outbox, worker_make):
    """Not even when Redis has no copy of them, which compares with anything."""
    outbox.redis.delete(CHANGES)
    rough_owner.execute("REVOKE SELECT ON keeper FROM couponmq_worker")
    try:
        worker = worker_make(rough, ready=False, **LATER)
        outbox.send(1)
        wait_until(lambda: worker.log().count("event=change_count_failed") > 1)
        assert outbox.issued() == 0
        assert "postgresql_behind" not in worker.log()
    finally:
        rough_owner.execute("GRANT SELECT ON keeper TO couponmq_worker")
    wait_until(lambda: outbox.issued() == 1)


# Redis away


def test_settling_does_not_wait_for_redis(outbox, behind):
    worker, relay = behind
    outbox.send(1)
    wait_until(lambda: not outbox.entries())
    relay.hold()
    batches = {outbox.send(user) for user in range(2, 41)}
    wait_until(lambda: outbox.issued() == 40)
    wait_until(lambda: "event=outbox_failed" in worker.log())
    assert outbox.entries() == batches
    relay.heal()
    wait_until(lambda: not outbox.entries())
    assert worker.metrics()["couponmq_worker_outbox_forgotten_total"] == 0


def test_the_end_does_not_wait_for_redis(outbox, behind):
    worker, relay = behind
    outbox.send(1)
    wait_until(lambda: not outbox.entries())
    relay.hold()
    outbox.send(2)
    wait_until(lambda: outbox.issued() == 2)
    assert worker.terminate() == 0
    assert "event=outbox_forgotten batches=1" in worker.log()
    assert len(outbox.entries()) == 1


def test_at_its_end_it_removes_what_it_has_settled(rough, outbox, worker_make):
    worker = worker_make(rough, **LATER)
    for user in range(1, 101):
        outbox.send(user)
    wait_until(outbox.issued)
    assert worker.terminate() == 0
    assert len(outbox.entries()) == 100 - outbox.issued()
    assert "event=outbox_forgotten" not in worker.log()


# Dead letters


def test_a_dead_letter_stays_and_is_marked(rough, outbox, worker_make):
    worker_make(rough, **LATER)
    batches = dead_lettered(rough, outbox, (1, 2, 3))
    assert outbox.entries() == outbox.marks() == batches
    assert DEAD_S - 60 < outbox.redis.ttl(outbox.key + ":dead") <= DEAD_S
    outbox.send(4)  # others are settled as before
    wait_until(lambda: outbox.issued() == 1)
    wait_until(lambda: outbox.entries() == batches)


def test_a_message_of_which_one_receive_is_refused_stays(rough, outbox, worker_make):
    worker_make(rough, **LATER)
    for position in range(3):
        users = [f"{position}{user}" for user in range(3)]
        with nothing_storable(rough, f"user_id <> '{users[position]}'"):
            batch = outbox.send(0, receives=[[user, 1, ""] for user in users])
            wait_until(lambda one=batch: one in outbox.marks())
            assert outbox.issued() == 2 * (position + 1) and batch in outbox.entries()
    rough.ctl("dead", "requeue", "--all")
    wait_until(lambda: not outbox.entries())
    assert outbox.issued() == 9 and not outbox.marks()


def test_what_cannot_be_read_has_no_mark(rough, outbox, worker_make):
    worker_make(rough, **LATER)
    batch = outbox.send(1, v=9)
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
    assert outbox.entries() == {batch} and not outbox.marks()
    assert "removed 1" in rough.ctl("dead", "remove", 1, "--yes")
    assert not outbox.entries()


def test_a_mark_waits_for_memory(rough, outbox, worker_make):
    worker = worker_make(rough, **LATER)
    settled = outbox.put(2)
    with nothing_storable(rough):
        batch = outbox.put(1)
        outbox.redis.config_set("maxmemory", "1mb")
        try:
            outbox.publish(batch)
            wait_until(lambda: 'event=outbox_failed why="OOM' in worker.log())
        finally:
            outbox.redis.config_set("maxmemory", 0)
        wait_until(lambda: outbox.marks() == {batch})
    outbox.redis.config_set("maxmemory", "1mb")
    try:
        outbox.publish(settled)
        wait_until(lambda: outbox.entries() == {batch})
    finally:
        outbox.redis.config_set("maxmemory", 0)


def test_drop_gives_the_message_up(rough, outbox, worker_make):
    worker_make(rough, **LATER)
    batches = dead_lettered(rough, outbox, (1, 2))
    dropped = min(batches)
    without_yes = rough.ctl_run("dead", "remove", dropped)
    assert without_yes.returncode == 1 and "owed: " in without_yes.stdout
    assert outbox.entries() == outbox.marks() == batches
    assert "owed: " in rough.ctl("dead", "remove", dropped, "--yes")
    assert outbox.entries() == batches - {dropped}
    assert outbox.marks() == batches, "the keeper does not settle it from its slot"
    assert queue_length(rough, DEAD_QUEUE) == 1


def test_drop_leaves_an_entry_that_is_another_message(rough, outbox, worker_make):
    worker = worker_make(rough, **LATER)
    (batch,) = dead_lettered(rough, outbox, (1,))
    worker.terminate()
    outbox.put(2, batch=batch)
    rough.ctl("dead", "remove", batch, "--yes")
    assert outbox.entries() == {batch} and not outbox.marks()


def test_requeue_protects_the_message_again(rough, outbox, worker_make):
    worker = worker_make(rough, **LATER)
    batches = dead_lettered(rough, outbox, (1, 2))
    worker.terminate()
    assert rough.ctl("dead", "requeue", "--all") == "2 messages requeued"
    assert outbox.entries() == batches and not outbox.marks()
    worker_make(rough, **LATER)
    wait_until(lambda: not outbox.entries())
    assert outbox.issued() == 2


@pytest.mark.parametrize("command", [("remove", "--all", "--yes"), ("requeue", "--all")])
def test_without_redis_no_dead_letter_leaves(rough, outbox, worker_make, command):
    worker = worker_make(rough, **LATER)
    batches = dead_lettered(rough, outbox, (1, 2))
    worker.terminate()
    result = rough.ctl_run("dead", *command, "--redis-url", "redis://127.0.0.1:9/0")
    assert (
        result.returncode == 10 and "REDIS_URL" in result.stderr and "removed" not in result.stdout
    )
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 2)
    assert outbox.entries() == outbox.marks() == batches


def test_without_redis_what_names_no_batch_is_dropped(rough, outbox, amqp_rough):
    amqp_rough.basic_publish("coupon.dlx", "x", b"hello", pika.BasicProperties(delivery_mode=2))
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
    rough.ctl("dead", "remove", 1, "--yes", "--redis-url", "redis://127.0.0.1:9/0")
    assert queue_length(rough, DEAD_QUEUE) == 0 and not outbox.entries()
