"""Each program has logins of its own, with which all of these tests run; here: what they, and
subscribers to events, may not do."""

import re
import shlex
import uuid
from urllib.parse import urlsplit

import pika
import psycopg
import pytest
import redis

from events import Subscriber
from stack import ROOT, wait_until

PROGRAMS = ("gateway", "worker", "operator")
QUEUES = (
    "coupon.receive.queue",
    "coupon.receive.parked",
    "coupon.use.queue",
    "coupon.receive.dead",
)


def test_the_stack_runs_with_them(stack, gateway, pg, redis_client):
    """The gateway and the worker are connected, each with its own and no other."""
    wanted = {"couponmq_gateway", "couponmq_worker"}

    def users():
        sessions = pg.execute(
            "SELECT DISTINCT usename::text FROM pg_stat_activity"
            " WHERE application_name LIKE 'coupon-%'"
        ).fetchall()
        clients = {one["user"] for one in redis_client.client_list()} - {"default"}
        connections = stack.rabbitmq_eval(
            "lists:usort([U || [{user, U}] <- rabbit_networking:connection_info_all([user])])"
        )
        return (
            {name for (name,) in sessions} == wanted
            and wanted <= clients
            and all(f'<<"{name}">>' in connections for name in wanted)
        )

    wait_until(users, timeout=60)


def test_settings_of_a_role_that_would_stop_settling(rough, rough_pg, rough_coupon):
    """The session has its own."""
    coupon = rough_coupon().coupon
    level = "ALTER ROLE couponmq_worker {} default_transaction_isolation"
    try:
        rough_pg.execute(level.format("SET") + " = 'serializable'")
        rough.restart("worker-1")
        with rough.client() as client:
            assert client.issue(coupon, 1, ack="issued")["status"] == "issued"
    finally:
        rough_pg.execute(level.format("RESET"))


# PostgreSQL: tests/sql/test_sql_roles.py has more.


@pytest.mark.parametrize(
    "program, statement",
    [
        (
            "gateway",
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from) VALUES ('1', 1, 1, 0, gen_random_uuid(), now(), now())",
        ),
        ("gateway", "UPDATE coupon SET total_num = total_num + 1"),
        ("worker", "DELETE FROM campaign_history"),
        ("worker", "UPDATE coupon SET total_num = total_num + 1"),
        ("operator", "UPDATE campaign_history SET made_by = 'somebody else'"),
        ("operator", "DELETE FROM user_coupon"),
        ("operator", "CREATE TABLE mine (n int)"),
    ],
)
def test_what_a_role_of_postgresql_may_not_do(stack, program, statement):
    with psycopg.connect(stack.env_of(program)["DATABASE_URL"], autocommit=True) as db:
        assert db.execute("SELECT count(*) >= 0 FROM coupon").fetchone() == (True,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(statement)


# Redis


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_no_user_of_redis_may_do(stack, program):
    with redis.Redis.from_url(stack.env_of(program)["REDIS_URL"]) as client:
        assert client.ping()
        for command in (
            ["FLUSHALL"],
            ["FLUSHDB"],
            ["KEYS", "*"],
            ["CONFIG", "SET", "appendonly", "no"],
            ["CONFIG", "RESETSTAT"],
            ["ACL", "LIST"],
            ["SHUTDOWN"],
            ["SCRIPT", "FLUSH"],
            ["CLIENT", "LIST"],
            ["MONITOR"],
            ["GET", "another:key"],
            ["HSET", "another:key", "a", "1"],
            ["DEL", "another:key"],
            ["EVAL", "return redis.call('FLUSHALL')", "0"],
            ["EVAL", "return redis.call('HSET', 'another:key', 'a', '1')", "0"],
        ):
            with pytest.raises(redis.exceptions.ResponseError) as told:
                client.execute_command(*command)
            assert re.search("NOPERM|permission|can't run|can't access|ACL", str(told.value)), (
                command,
                told.value,
            )


def test_what_the_gateway_may_not_do_in_redis(stack, redis_client):
    def may(*command):
        return redis_client.execute_command("ACL", "DRYRUN", "couponmq_gateway", *command) in (
            "OK",
            b"OK",
            True,
        )

    assert may("HSET", "coupon:{1}", "stock", "1")
    assert may("HSET", "couponmq:changes", "1", "1") and may("UNLINK", "couponmq:changes")
    assert may("HGET", "couponmq:keys", "version") and may("HSCAN", "couponmq:keys", "0")
    for command in (
        ("DEL", "coupon:{1}"),
        ("UNLINK", "coupon:{1}"),
        ("HDEL", "coupon:{1}:users", "1"),
        ("RENAME", "coupon:{1}", "coupon:{2}"),
        ("SCAN", "0"),
        ("HSET", "couponmq:keys", "0000000000", "{}"),
        ("HDEL", "couponmq:keys", "0000000000"),
        ("UNLINK", "couponmq:keys"),
        ("HGETALL", "couponmq:lock:{keeper}"),
        ("SUBSCRIBE", "couponmq:lock:wake:1"),
    ):
        assert not may(*command), command


# RabbitMQ


def refused(url, action):
    """Whether the broker closes the channel because the user may not do this."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            action(channel)
        except pika.exceptions.ChannelClosedByBroker as error:
            assert error.reply_code == 403, error
            return True
    return False


def may_publish(url, exchange, key):
    """To a key that no queue is bound for, or an exclusive one."""
    return not refused(url, lambda channel: channel.basic_publish(exchange, key, b"x"))


def may_read(url, queue):
    """Without taking a message."""
    return not refused(url, lambda channel: channel.cancel(channel.basic_consume(queue, print)))


def may_bind(url, queue, exchange, key):
    return not refused(url, lambda channel: channel.queue_bind(queue, exchange, key))


def test_what_the_programs_may_do_in_rabbitmq(stack, gateway):
    urls = {program: stack.env_of(program)["AMQP_URL"] for program in PROGRAMS}
    writes = {
        "gateway": {"coupon.topic"},
        "worker": {"coupon.topic", "coupon.event", ""},
        "operator": {"coupon.topic", ""},
    }
    for program, url in urls.items():
        for exchange in ("coupon.topic", "coupon.event", "", "amq.topic"):
            assert may_publish(url, exchange, "nobody") == (exchange in writes[program]), (
                program,
                exchange,
            )
        assert refused(url, lambda channel: channel.queue_declare("mine")), program
        assert refused(url, lambda channel: channel.queue_declare(exclusive=True, queue=""))
    assert not may_publish(urls["gateway"], "coupon.dlx", "nobody")
    assert not any(may_read(urls["gateway"], queue) for queue in QUEUES)


@pytest.fixture
def subscriber_make(stack):
    """subscriber_make(): the name of a user that was made as docs/events.md says, and its url."""
    text = (ROOT / "docs/events.md").read_text()
    commands = re.findall(r"^ *rabbitmqctl (.*)$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        "add_user",
        "set_permissions",
        "set_topic_permissions",
    ]
    made = []

    def make(coupon=None):
        name, password = f"mails{uuid.uuid4().hex}", uuid.uuid4().hex
        made.append(name)
        for command in commands if coupon else commands[:2]:
            words = shlex.split(command.replace("mails", name).replace("1001", coupon or ""))
            stack.rabbitmqctl(*words, *([password] if words[0] == "add_user" else ()))
        url = urlsplit(stack.env["AMQP_URL"])
        host = url.netloc.rpartition("@")[2]
        return name, url._replace(netloc=f"{name}:{password}@{host}").geturl()

    yield make
    for name in made:
        stack.rabbitmqctl("delete_user", name)


def subscribe(stack, name, url, binding):
    """As the example there does, with the rights of that user alone."""
    one = Subscriber(stack, binding, name=name, arguments={"x-queue-type": "quorum"}, url=url)
    return one


def test_a_subscriber_reads_events_and_nothing_of_receives(stack, gateway, subscriber_make):
    name, url = subscriber_make()
    events = subscribe(stack, name, url, "event.#")
    coupon = stack.coupon_make(10, events="on")
    wait_until(lambda: gateway.call("coupon", coupon=coupon)["code"] == 0, timeout=60)
    assert gateway.issue(coupon, 1, ack="issued")["status"] == "issued"
    wait_until(
        lambda: [e for e in events.of("coupon.issued") if e["subject"] == coupon], timeout=60
    )
    for exchange in ("coupon.topic", "coupon.dlx"):
        assert not may_bind(url, name, exchange, "#")
    assert not any(may_read(url, queue) for queue in QUEUES)
    for exchange, key in (
        ("coupon.topic", "coupon.receive"),
        ("coupon.event", f"event.{coupon}.coupon.issued"),
        ("coupon.dlx", "coupon.receive"),
        ("", "coupon.receive.queue"),
    ):
        assert not may_publish(url, exchange, key), exchange
    for exchange in ("coupon.topic", "coupon.event"):
        assert refused(url, lambda channel, e=exchange: channel.exchange_delete(e))
    assert refused(url, lambda channel: channel.queue_purge(QUEUES[0]))
    events.close()
    dead = {"x-dead-letter-exchange": "coupon.topic", "x-dead-letter-routing-key": "coupon.receive"}
    assert refused(url, lambda channel: channel.queue_declare(name, arguments=dead))


def test_a_subscriber_to_one_coupon_may_bind_nothing_else(stack, subscriber_make):
    coupon = "1234567"
    name, url = subscriber_make(coupon)
    events = subscribe(stack, name, url, f"event.{coupon}.#")
    assert may_bind(url, name, "coupon.event", f"event.{coupon}.coupon.issued")
    for key in ("#", "event.#", "event.*.coupon.issued", f"event.{coupon}1.#"):
        assert not may_bind(url, name, "coupon.event", key), key
    events.close()
