"""RabbitMQ loses messages that it has confirmed: the keeper publishes them again from the outboxes,
and every accepted receive is issued. What is only slow, locked or dead is left alone."""

import contextlib
import shutil
import time

import pika
import psycopg
import pytest

from audit_ground import purge
from coupon_seen import rounds_pass
from history import DEAD_QUEUE, QUEUE, History, queue_length
from process import confirmed_wait, metrics_read
from stack import wait_until
from unstorable import nothing_storable
from verdict import place_of

RECEIVES = 1000
TOTAL = 100_000
COPIES = 4  # of a message, while it is not settled for a moment
AFTER_S = 0.4  # COUPON_RESEND_AFTER_MS of these workers
POLICY = "one-message"
EMPTY, OVERTAKEN = 'why="the queue is empty"', 'why="later batches are settled"'
RESENT, PARKED = "couponmq_keeper_resent_total", "couponmq_worker_parked_total"


# The ways to lose messages


def deleted(stack):
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        connection.channel().queue_delete(QUEUE)


def wiped(stack):
    """The data directory of the broker is gone."""
    stack.kill9("rabbitmq")
    shutil.rmtree(stack.run_dir / "rabbitmq" / "mnesia")
    stack.start("rabbitmq")


@contextlib.contextmanager
def limited(stack):
    """A policy allows one message, and the oldest ones are dropped."""
    arguments = '{"max-length":1,"overflow":"drop-head"}'
    stack.policy_set(POLICY, f"^{QUEUE}$", arguments)
    try:
        yield
    finally:
        stack.policy_clear(POLICY)


# A coupon and its load


@pytest.fixture
def history_make(rough):
    """Makes histories of coupons whose dead letters, and those of other tests, are not left
    behind."""
    made = []

    def make(**options):
        made.append(History(rough, rough.coupon_make(TOTAL), TOTAL, **options))
        with rough.client() as client:
            wait_until(lambda: client.call("coupon", coupon=made[-1].coupon)["code"] == 0)
        return made[-1]

    purge(rough, DEAD_QUEUE)
    yield make
    for history in made:
        history.abandon()
    purge(rough, DEAD_QUEUE)


@pytest.fixture
def history(history_make):
    return history_make()


def accept(stack, history, number):
    """At least this number, confirmed; the load has ended."""
    history.start()
    history.wait_accepted(number)
    history.stop()
    confirmed_wait(stack)


def accepted(history):
    return {ask.receive for ask in list(history.asked) if ask.receive}


def resent_log(stack, history, names=("worker-1",)):
    """What the keepers of these workers have logged about this coupon."""
    lines = "".join(stack.log(name) for name in names).splitlines()
    wanted = f"event=outbox_resent coupon={history.coupon} "
    return [line for line in lines if wanted in line]


def all_issued(history):
    """Every promise, within 60 s."""
    wanted = len(accepted(history))
    assert history.judge() == wanted


# Everything is lost


@pytest.mark.always
@pytest.mark.parametrize("lose", [purge, deleted], ids=lambda lose: lose.__name__)
def test_all_that_was_confirmed_is_lost(rough, history, lose):
    rough.stop("worker-1")
    accept(rough, history, RECEIVES)
    assert queue_length(rough) > 0
    lose(rough)
    rough.start("worker-1")
    all_issued(history)
    assert any(EMPTY in line for line in resent_log(rough, history))


@pytest.mark.long
def test_the_data_is_gone_and_gateway_and_worker_are_killed(rough, history):
    rough.stop("worker-1")
    accept(rough, history, RECEIVES)
    rough.kill9("gateway")
    wiped(rough)
    rough.start("gateway", "worker-1")
    wait_until(lambda: resent_log(rough, history))
    rough.kill9("worker-1")
    rough.start("worker-1")
    all_issued(history)


def test_the_copies_are_lost_as_well(rough, history, worker_make):
    rough.stop("worker-1")
    accept(rough, history, RECEIVES)
    purge(rough)
    with settling_slowly(rough):
        worker_make(rough, COUPON_PREFETCH=1)
        for _ in range(2):
            wait_until(lambda: queue_length(rough) > 10)
            purge(rough)
    rough.start("worker-1")
    all_issued(history)


def test_one_loss_after_the_other(rough, history):
    for lose in (purge, deleted):
        rough.stop("worker-1")
        accept(rough, history, RECEIVES // 2)
        lose(rough)
        rough.start("worker-1")
        wait_until(lambda: settled(history))
    all_issued(history)


def settled(history):
    with contextlib.suppress(AssertionError):
        history.settle(timeout=0)
        return True
    return False


# Some are lost, and the load continues


def test_a_policy_drops_messages_under_load(rough, history):
    with history.start():
        history.wait_accepted(200)
        with limited(rough):
            rough.stop("worker-1")
            history.wait_accepted(RECEIVES)
            wait_until(lambda: queue_length(rough) <= 1)
            rough.start("worker-1")
            history.wait_accepted(200)
        history.wait_accepted(200)
    all_issued(history)


@contextlib.contextmanager
def settling_slowly(stack, delay_s=0.05):
    """Each transaction takes so long, so that messages wait in the queue."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as owner:
        owner.execute(
            "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS"
            f" 'BEGIN PERFORM pg_sleep({delay_s}); RETURN NULL; END'"
        )
        owner.execute("GRANT EXECUTE ON FUNCTION slowly() TO PUBLIC")
        owner.execute(
            "CREATE TRIGGER slowly BEFORE INSERT ON user_coupon EXECUTE FUNCTION slowly()"
        )
        try:
            yield
        finally:
            owner.execute("DROP TRIGGER slowly ON user_coupon")
            owner.execute("DROP FUNCTION slowly()")


@pytest.mark.long
def test_what_later_receives_have_overtaken(rough, history_make, worker_make):
    """The queue is never empty, because a load continues."""
    history = history_make(every_s=0.1)
    rough.stop("worker-1")
    accept(rough, history, RECEIVES)
    lost = accepted(history)
    purge(rough)
    with history.start(), settling_slowly(rough):
        wait_until(lambda: queue_length(rough) > 40)
        worker = worker_make(rough, COUPON_PREFETCH=1)
        wait_until(lambda: OVERTAKEN in worker.log())
        assert EMPTY not in worker.log()
        rough.start("worker-1")
        wait_until(lambda: lost <= issued(history))
    all_issued(history)


def issued(history):
    """The accepted receives that are rows."""
    rows = history.stored().issued
    return {receive for receive in accepted(history) if place_of(receive) in rows}


# What is not lost


def resent_n(stack):
    return metrics_read(stack.worker_http(1, "/metrics"))[RESENT]


def longest_while(stack, condition, timeout=120):
    """The greatest length of the queue until the condition holds."""
    lengths = []
    wait_until(lambda: lengths.append(queue_length(stack)) or condition(), timeout)
    return max(lengths)


def test_a_queue_that_is_slow_is_not_filled(rough, history, worker_make):
    """No message is published again while some wait, none of which were overtaken."""
    rough.stop("worker-1")
    accept(rough, history, RECEIVES)
    messages = queue_length(rough)
    with settling_slowly(rough, delay_s=0.5):
        worker = worker_make(rough, COUPON_PREFETCH=1)
        rounds_pass(worker, 20)
        assert worker.metrics()[RESENT] == 0
        assert 0 < queue_length(rough) <= messages
    all_issued(history)
    assert worker.metrics()[RESENT] <= messages, "the last ones, when the queue was empty"


@pytest.mark.long
def test_postgresql_away_sends_nothing_again_and_again(rough, history):
    before = resent_n(rough)
    rough.stop("postgres")
    accept(rough, history, RECEIVES)
    messages = len({place_of(receive)[0] for receive in accepted(history)})
    until = time.monotonic() + 6 * AFTER_S
    longest = longest_while(rough, lambda: time.monotonic() > until)
    rough.start("postgres")
    longest = max(longest, longest_while(rough, lambda: settled(history), 60))
    assert longest <= 2 * messages and resent_n(rough) - before <= COPIES * messages
    all_issued(history)


@pytest.mark.long
def test_a_locked_coupon_is_left_alone(rough, history_make):
    """Workers hold its messages, and park them; those of another coupon are lost."""
    locked, other = history_make(), history_make()
    rough.stop("worker-1")
    accept(rough, other, 100)
    purge(rough)
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"]) as pg:
        pg.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (locked.coupon,))
        accept(rough, locked, 100)
        rough.start("worker-1")
        wait_until(lambda: metrics_read(rough.worker_http(1, "/metrics"))[PARKED] > 0)
        wait_until(lambda: settled(other))
        until = time.monotonic() + 6 * AFTER_S
        wait_until(lambda: time.monotonic() > until)
        assert resent_log(rough, other) and not resent_log(rough, locked)
    all_issued(locked)
    all_issued(other)


def test_a_dead_letter_is_not_sent_again(rough, rough_redis, history):
    with nothing_storable(rough), rough.client() as client:
        assert history.ask(client, 1)["code"] == 0
        wait_until(lambda: rough_redis.exists(f"coupon:{{{history.coupon}}}:dead"))
    before = len(resent_log(rough, history))
    purge(rough)
    until = time.monotonic() + 6 * AFTER_S
    wait_until(lambda: time.monotonic() > until)
    assert len(resent_log(rough, history)) == before
    assert queue_length(rough, DEAD_QUEUE) == 1 and not issued(history)
    rough.ctl("dead", "requeue", "--all")
    all_issued(history)


def test_what_cannot_be_read_is_dead_lettered_and_removed(rough, rough_redis, history):
    outbox = f"coupon:{{{history.coupon}}}:outbox"
    rough_redis.hset(outbox, "a batch", "no message")
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
    wait_until(lambda: not rough_redis.exists(outbox))
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        assert connection.channel().basic_get(DEAD_QUEUE, auto_ack=True)[2] == b"no message"
    accept(rough, history, 10)
    all_issued(history)
