"""Each program has logins of its own, with which all of these tests run; here: what they, and
subscribers to events, may not do."""

import json
import re
import shlex
import uuid
from contextlib import contextmanager
from datetime import datetime, timezone
from urllib.parse import urlsplit

import pika
import psycopg
import pytest
import redis
import requests

from events import Subscriber
from process import Process
from stack import ROOT, port_free, url_of, wait_until

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


def admin_get(admin, path, key):
    """None: it does not listen yet."""
    url = url_of(admin.settings["COUPON_ADMIN_LISTEN"], path)
    try:
        return requests.get(url, headers={"Authorization": f"Bearer {key}"}, timeout=60)
    except requests.ConnectionError:
        return None


def test_nothing_is_refused_to_a_program(rough, rough_redis):
    """Each program does its work with the rights in the table of docs/guides/security.md, before a
    Redis without CONFIG, and no service has to refuse anything else."""
    begin = {name: len(rough.log(name)) for name in ("rabbitmq", "postgres")}
    for program in ("gateway", "operator"):
        rough_redis.execute_command("ACL", "SETUSER", f"couponmq_{program}", "-config")
    rough_redis.acl_log_reset()
    for name in ("gateway", "worker-1"):
        rough.restart(name)
    wait_until(lambda: requests.get(rough.http("/readyz"), timeout=60).json()["degraded"] == [])
    admin = Process(
        rough, "coupon-admin", "admin-1", {"COUPON_ADMIN_LISTEN": f"127.0.0.1:{port_free()}"}
    )
    try:
        key = rough.ctl("key", "create", "--name", "all", "--role", "issue,use,read,monitor,admin")
        budget = f"all-{uuid.uuid4().hex[:8]}"
        rough.ctl("budget", "create", budget, "--currency", "EUR", "--amount", "100")
        terms = {"currency": "EUR", "amount_off": "5", "budget": budget, "events": "on"}
        coupon = rough.coupon_make(100, **terms)
        with rough.client() as client:
            assert client.call("auth", token=key)["code"] == 0
            wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
            issued = client.issue(coupon, 1, ack="issued")
            assert issued["status"] == "issued"
            order = {"receive": issued["receive"], "order": "o-1"}
            bill = {"amount": 2000, "currency": "EUR"}
            for op, members in (
                ("hold", {**order, **bill, "ttl_s": 60}),
                ("use", {**order, **bill}),
                ("rollback", order),
                ("status", {"receive": issued["receive"]}),
                ("coupons", {"user": "1"}),
                ("quote", {"coupon": coupon, **bill}),
                ("stats", {}),
            ):
                answer = client.call(op, **members)
                assert answer["code"] == 0, (op, answer)
        for path in ("campaigns", f"campaigns/{coupon}/check", "budgets", "history", "keys", "now"):
            answer = wait_until(
                lambda path=path: admin_get(admin, f"/admin/v1/{path}", key), timeout=60
            )
            assert answer.status_code == 200, answer.text
        assert rough.rush_run("--coupon", coupon, "--users", 20).returncode == 0
        rough.ctl("void", issued["receive"])
        for words in (("check", coupon), ("audit", coupon), ("show", coupon), ("rebuild", coupon)):
            rough.ctl(*words)
        rough.ctl("key", "revoke", key.split("_")[1], "--yes")
        refused = {(one["username"], one["object"]) for one in rough_redis.acl_log()}
        assert {one for one in refused if one[0].startswith("couponmq_")} == {
            ("couponmq_gateway", "config|get"),
            ("couponmq_operator", "config|get"),
        }
        for name, words in (("rabbitmq", "access_refused"), ("postgres", "permission denied")):
            assert words not in rough.log(name)[begin[name] :].lower(), name
    finally:
        admin.end()
        for program in ("gateway", "operator"):
            rough_redis.execute_command("ACL", "SETUSER", f"couponmq_{program}", "+config|get")


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


# Each of them would change what is stored, or what is read of it.
HARMFUL = {
    "client_encoding": "LATIN1",
    "search_path": "couponmq_decoy, pg_catalog",
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "client_min_messages": "error",
}
ENVIRONMENT = {
    "PGCLIENTENCODING": "LATIN1",
    "PGTZ": "Asia/Kathmandu",
    "PGDATESTYLE": "SQL, DMY",
    "PGOPTIONS": " ".join(
        f"-c{name}={value.replace(' ', '')}"
        for name, value in HARMFUL.items()
        if name != "client_encoding"
    ),
}


@contextmanager
def harmful_roles(superuser):
    for program in PROGRAMS:
        for name, value in HARMFUL.items():
            words = ", ".join(f"'{word}'" for word in value.split(", "))
            superuser.execute(f"ALTER ROLE couponmq_{program} SET {name} = {words}")
    try:
        yield {}
    finally:
        for program in PROGRAMS:
            superuser.execute(f"ALTER ROLE couponmq_{program} RESET ALL")


@contextmanager
def harmful_environment(_):
    yield ENVIRONMENT


@pytest.fixture
def decoy(rough_pg):
    """A schema with a table coupon, which programs that look there first would use."""
    rough_pg.execute("CREATE SCHEMA couponmq_decoy")
    rough_pg.execute("CREATE TABLE couponmq_decoy.coupon (LIKE coupon INCLUDING ALL)")
    rough_pg.execute("GRANT USAGE ON SCHEMA couponmq_decoy TO PUBLIC")
    rough_pg.execute("GRANT ALL ON couponmq_decoy.coupon TO PUBLIC")
    yield
    rough_pg.execute("DROP SCHEMA couponmq_decoy CASCADE")


@pytest.mark.parametrize("settings_of", [harmful_roles, harmful_environment])
def test_settings_that_would_change_what_is_stored(rough, rough_pg, superuser, decoy, settings_of):
    """Settings of the role, or of the environment, change nothing: each session has its own."""
    name, texts = "Größe L, 5 €", {"größe": "L 衣", "path": "a\\b'c"}
    with settings_of(superuser) as environment:
        rough.stop("gateway", "worker-1")
        rough.start("gateway", "worker-1", **environment)

        def ctl(*arguments):
            result = rough.ctl_run(*arguments, settings=environment)
            assert result.returncode == 0, result.stderr
            return result.stdout

        coupon = ctl(
            "create", "--name", name, "--total", 10, "--metadata", json.dumps(texts),
            "--begin", "2026-01-02T03:04:05Z", "--valid-days", 30, "--by", "Jörg",
        ).strip()  # fmt: skip
        ctl("publish", coupon, "--by", "Jörg")
        key = json.loads(ctl("key", "create", "--name", "shop", "--role", "issue", "--json"))
        shown = json.loads(ctl("show", coupon, "--json"))
        with rough.client() as client:
            wait_until(lambda: client.issue(coupon, 1, ack="issued")["status"] == "issued")
            mine = client.call("coupons", user="1")
            offer = client.call("coupon", coupon=coupon)
        history = [json.loads(line) for line in ctl("history", coupon, "--json").splitlines()]
        traced = json.loads(ctl("trace", "--coupon", coupon, "--user", "1", "--json"))
    assert rough_pg.execute(
        "SELECT name, octet_length(name), metadata, begin_at FROM coupon WHERE id = %s", (coupon,)
    ).fetchone() == (
        name,
        len(name.encode()),
        texts,
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    )
    assert (shown["name"], shown["metadata"]) == (name, texts)
    assert shown["begin"] == "2026-01-02T03:04:05.000Z"
    assert offer["metadata"] == texts
    assert mine["coupons"][0]["metadata"] == texts and traced["state"] == "issued"
    assert {entry["by"] for entry in history if entry["action"] != "open"} == {"Jörg"}
    assert rough_pg.execute(
        "SELECT octet_length(sha256) FROM api_key WHERE id = %s", (key["key"],)
    ).fetchone() == (32,)


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
    """subscriber_make(): the name of a user that was made as docs/guides/events.md says, and its
    url."""
    text = (ROOT / "docs/guides/events.md").read_text()
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


# What is wrong in which URL, and what every program says of it.
WRONG = {
    "REDIS_URL": {
        "password": (lambda url: re.sub(r":[^:@/]*@", ":wrong@", url), "WRONGPASS"),
        "user": (lambda url: re.sub(r"//[^:]*:", "//nobody:", url), "WRONGPASS"),
        "database": (lambda url: re.sub(r"/\d*$", "/99", url), "DB index is out of range"),
    },
    "AMQP_URL": {
        "password": (lambda url: re.sub(r":[^:@/]*@", ":wrong@", url), "ACCESS_REFUSED"),
        "user": (lambda url: re.sub(r"//[^:]*:", "//nobody:", url), "ACCESS_REFUSED"),
        "vhost": (lambda url: re.sub(r"/[^/]*$", "/nowhere", url), "vhost nowhere not found"),
    },
    "DATABASE_URL": {
        "password": (lambda url: re.sub(r":[^:@/]*@", ":wrong@", url), "password authentication"),
        "user": (lambda url: re.sub(r"//[^:]*:", "//nobody:", url), 'for user "nobody"'),
        "database": (lambda url: re.sub(r"/[^/?]*$", "/nowhere", url), '"nowhere" does not exist'),
    },
}
READYZ = {"REDIS_URL": "redis", "AMQP_URL": "rabbitmq", "DATABASE_URL": "postgresql"}


@pytest.mark.parametrize("name, part", [(name, part) for name in WRONG for part in WRONG[name]])
def test_what_is_wrong_in_a_url_is_said(stack, gateway_make, name, part):
    change, words = WRONG[name][part]
    wrong = change(stack.env_of("gateway")[name])
    gateway = gateway_make(stack, ready=False, **{name: wrong})
    wait_until(lambda: words in gateway.trouble(READYZ[name]))
    if name != "AMQP_URL":
        flag = {"REDIS_URL": "--redis-url", "DATABASE_URL": "--database-url"}[name]
        assert (
            words
            in stack.ctl_run("key", "create", flag, wrong, "--name", "x", "--role", "issue").stderr
        )


def test_redis_without_its_password(rough, rough_redis, gateway_make):
    """A stranger's long script would make Redis reset the connection before it has said why."""
    gateway = gateway_make(rough, ready=False, REDIS_URL=rough.env["REDIS_URL"])
    rough_redis.execute_command("ACL", "SETUSER", "default", "resetpass", ">secret")
    try:
        stranger = gateway_make(rough, ready=False, REDIS_URL=rough.env["REDIS_URL"])
        wait_until(lambda: "NOAUTH" in stranger.trouble("redis"))
    finally:
        rough_redis.execute_command("ACL", "SETUSER", "default", "nopass")
    wait_until(gateway.ready)


@pytest.mark.parametrize("right", ["info", "script|load", "evalsha"])
def test_a_right_that_lacks_in_redis_is_said(rough, rough_redis, gateway_make, right):
    rough_redis.execute_command("ACL", "SETUSER", "couponmq_gateway", f"-{right}")
    try:
        gateway = gateway_make(rough, ready=False)
        wait_until(lambda: "NOPERM" in gateway.trouble("redis"))
    finally:
        rough_redis.execute_command("ACL", "SETUSER", "couponmq_gateway", f"+{right}")
    wait_until(gateway.ready)


def test_a_database_that_is_not_migrated(stack, gateway_make):
    """Every program says what to run."""
    words = "run couponctl migrate"
    url = re.sub(r"/[^/?]*$", "/postgres", stack.env_of("gateway")["DATABASE_URL"])
    gateway = gateway_make(stack, ready=False, DATABASE_URL=url)
    wait_until(lambda: words in gateway.trouble("postgresql"))
    operator = re.sub(r"/[^/?]*$", "/postgres", stack.env_of("operator")["DATABASE_URL"])
    assert words in stack.ctl_run("list", "--database-url", operator).stderr
