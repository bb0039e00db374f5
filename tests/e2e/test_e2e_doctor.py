"""couponctl doctor: what is wrong changes its line, which says what mends it; what cannot be read
is unknown, and no line has a secret."""

import json
import shutil
import threading
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pika
import psycopg
import pytest

from certificates import Authority
from history import QUEUE
from process import gateway_process
from stack import wait_until
from test_e2e_secrets import passwords
from wall_clock import WallClock

FEW = {"COUPON_CONNECTIONS_MAX": "10"}  # fewer than any limit of descriptors
QUEUES = (
    "coupon.receive.queue",
    "coupon.receive.parked",
    "coupon.use.queue",
    "coupon.receive.dead",
)
TIMES = {
    "redis.latency",
    "redis.sync",
    "rabbitmq.latency",
    "rabbitmq.confirm",
    "postgresql.latency",
    "postgresql.sync",
}
NAMES = {
    *("redis.reached", "redis.version", "redis.login", "redis.appendonly", "redis.appendfsync"),
    *("redis.maxmemory-policy", "redis.memory", "redis.descriptors", "redis.disk", "redis.clock"),
    *("rabbitmq.reached", "rabbitmq.version", "rabbitmq.login", "rabbitmq.disk"),
    *("rabbitmq.descriptors", "rabbitmq.members", *(f"rabbitmq.{queue}" for queue in QUEUES)),
    *("postgresql.reached", "postgresql.version", "postgresql.fsync", "postgresql.descriptors"),
    *("postgresql.synchronous_commit", "postgresql.full_page_writes", "postgresql.disk"),
    *("postgresql.clock", "postgresql.schema", "postgresql.login.gateway"),
    *("postgresql.login.worker", "postgresql.login.operator", "installation", "program.gateway"),
    *("program.gateway.process", "program.worker", "program.keeper", "machine.descriptors"),
    *("machine.vm.overcommit_memory", "machine.transparent_hugepage"),
    *TIMES,
}


class Lines:
    """What the command has printed, and its exit status."""

    def __init__(self, stack, **settings):
        result = stack.ctl_run("doctor", "--json", settings={**FEW, **settings})
        assert result.stderr == ""
        self.status, self.text = result.returncode, result.stdout
        self.all = [json.loads(line) for line in result.stdout.splitlines()]
        for one in self.all:
            assert set(one) == {"name", "state", "value", "wanted", "why", "mend"}
            assert (one["state"] == "ok") == (one["why"] is None), one
        wrong = {one["name"] for one in self.all if one["state"] == "wrong"}
        away = any(name.endswith((".reached", ".latency")) for name in wrong)
        assert self.status == (10 if away else 1 if wrong else 0), wrong

    def of(self, name):
        return [one for one in self.all if one["name"] == name]

    def state(self, name):
        """The state of the only line with this name, or of the worst."""
        found = {one["state"] for one in self.of(name)}
        return next((one for one in ("wrong", "warning", "unknown", "ok") if one in found), None)

    def bad(self, name):
        """The line, of those with this name the one that is not ok."""
        (line,) = [one for one in self.of(name) if one["state"] != "ok"]
        return line

    def not_ok(self):
        """But for what depends on the machine, and on how busy it is."""
        return {
            one["name"]: one["state"]
            for one in self.all
            if one["state"] != "ok"
            and one["name"] not in TIMES
            and not one["name"].startswith("machine.")
        }


# What this stack does not show: it has no management API, and its operator no right to see where
# PostgreSQL has its data.
UNSHOWN = dict.fromkeys(
    ("rabbitmq.disk", "rabbitmq.descriptors", "rabbitmq.members", "postgresql.disk"), "unknown"
)


def number_of(path):
    return int(Path(path).read_text().split()[0])


def wanted_of_the_machine():
    """The states of its lines, by what the kernel says."""
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    return {
        "machine.net.core.somaxconn": number_of("/proc/sys/net/core/somaxconn") >= 4096,
        "machine.net.ipv4.tcp_syncookies": number_of("/proc/sys/net/ipv4/tcp_syncookies") >= 1,
        "machine.vm.overcommit_memory": number_of("/proc/sys/vm/overcommit_memory") == 1,
        "machine.transparent_hugepage": "[always]" not in pages,
    }


def test_the_stack_as_it_is(rough, rough_owner):
    """Also once a process that was killed counts as gone; those of other tests are forgotten."""
    place = f"%{rough.env['COUPON_LISTEN']}%"
    rough_owner.execute("DELETE FROM gateway WHERE place NOT LIKE %s", (place,))
    disk = shutil.disk_usage(rough.run_dir)
    full = {} if disk.free >= 0.11 * (disk.used + disk.free) else {"redis.disk": "warning"}
    wait_until(lambda: Lines(rough).not_ok() == {**UNSHOWN, **full})
    lines = Lines(rough)
    depends = ("machine.net.", "certificate.")  # on the kernel, and on whether this stack has TLS
    assert {one["name"] for one in lines.all if not one["name"].startswith(depends)} == NAMES
    assert {lines.state(name) for name in TIMES} <= {"ok", "warning"}
    assert lines.status == 0
    for name, is_ok in wanted_of_the_machine().items():
        assert lines.state(name) == ("ok" if is_ok else "warning"), name
    (process,) = lines.of("program.gateway.process")
    assert rough.env["COUPON_LISTEN"] in process["value"]
    # For people it says the same.
    told = rough.ctl_run("doctor", settings=FEW).stdout
    for one in lines.all:
        assert any(line.split()[1:2] == [one["name"]] for line in told.splitlines()), one["name"]


@pytest.mark.parametrize("store", ["redis", "rabbitmq", "postgres"])
def test_a_store_is_away(rough, store):
    """The others are looked at all the same."""
    part = {"postgres": "postgresql"}.get(store, store)
    rough.stop(store)
    lines = Lines(rough)
    assert lines.status == 10
    (line,) = lines.of(f"{part}.reached")
    assert line["state"] == "wrong" and "systemctl start" in line["mend"]
    assert [one["name"] for one in lines.all if one["name"].startswith(f"{part}.")] == [
        line["name"]
    ]
    for other in {"redis", "rabbitmq", "postgresql"} - {part}:
        assert lines.state(f"{other}.reached") == "ok"
        assert lines.state(f"{other}.version") == "ok"
    if store == "redis":
        assert lines.state("program.keeper") == lines.state("installation") == "unknown"


# Settings


@pytest.mark.parametrize(
    "setting, value, wanted",
    [
        ("appendonly", "no", "yes"),
        ("appendfsync", "everysec", "always"),
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ],
)
def test_a_setting_of_redis(rough, rough_redis, setting, value, wanted):
    rough_redis.config_set(setting, value)
    try:
        lines = Lines(rough)
        line = lines.bad(f"redis.{setting}")
        assert (line["state"], line["value"], line["wanted"]) == ("wrong", value, wanted)
        assert line["mend"].startswith("redis-cli CONFIG SET ")
        # The time of a write says nothing where Redis does not wait for its disk.
        assert (lines.state("redis.sync") == "unknown") == setting.startswith("append")
        words = line["mend"].partition(" && ")[0].split()[1:]
        rough_redis.execute_command(*words)
        assert Lines(rough).state(f"redis.{setting}") == "ok", "the mend mends"
    finally:
        rough_redis.config_set(setting, wanted)


def test_redis_that_takes_no_writes(rough, rough_redis):
    """As one that has lost its replicas."""
    rough_redis.config_set("min-replicas-to-write", 1)
    try:
        line = Lines(rough).bad("redis.sync")
        assert line["state"] == "wrong" and "NOREPLICAS" in line["why"]
    finally:
        rough_redis.config_set("min-replicas-to-write", 0)


def test_redis_that_is_nearly_full(rough, rough_redis):
    used = rough_redis.info("memory")["used_memory"]
    rough_redis.config_set("maxmemory", used * 10 // 9)
    try:
        assert Lines(rough).bad("redis.memory")["state"] == "warning"
    finally:
        rough_redis.config_set("maxmemory", 0)


def test_rights_that_lack_in_redis(rough, rough_redis):
    """What cannot be read is unknown, and not ok."""

    def acl(*rights):
        rough_redis.execute_command("ACL", "SETUSER", "couponmq_operator", *rights)

    settings = ("redis.appendonly", "redis.appendfsync", "redis.maxmemory-policy")
    acl("-config|get", "-hset")
    try:
        lines = Lines(rough)
        for name in (*settings, "redis.sync", "redis.disk"):
            assert lines.state(name) == "unknown", name
        assert "COUPON_REDIS_DURABILITY" in lines.bad("redis.appendonly")["mend"]
        assert lines.status == 0
        lines = Lines(rough, COUPON_REDIS_DURABILITY="acknowledged")
        assert {lines.state(name) for name in settings} == {"ok"}
        acl("+config|get", "-info")
        lines = Lines(rough)
        for name in ("redis.version", "redis.memory", "redis.descriptors"):
            assert lines.state(name) == "unknown", name
            assert "+info" in lines.bad(name)["mend"], name
        acl("+info", "+hset", "-pexpire")
        line = Lines(rough).bad("redis.sync")
        assert line["state"] == "unknown" and "NOPERM" in line["why"]
    finally:
        acl("+config|get", "+info", "+hset", "+pexpire")


def test_the_user_who_may_do_everything_in_redis(rough):
    line = Lines(rough, REDIS_URL=rough.env["REDIS_URL"]).bad("redis.login")
    assert (line["state"], line["value"]) == ("warning", "default")


@pytest.mark.parametrize("setting", ["synchronous_commit", "full_page_writes", "fsync"])
def test_a_setting_of_postgresql(rough, superuser, setting):
    def shown(value):
        wait_until(lambda: superuser.execute(f"SHOW {setting}").fetchone() == (value,))

    superuser.execute(f"ALTER SYSTEM SET {setting} = off")
    superuser.execute("SELECT pg_reload_conf()")
    try:
        shown("off")
        lines = Lines(rough)
        line = lines.bad(f"postgresql.{setting}")
        assert (line["state"], line["value"], line["wanted"]) == ("wrong", "off", "on")
        assert lines.state("postgresql.sync") == "unknown"
        for statement in line["mend"].split(";"):
            superuser.execute(statement)
        shown("on")
        assert Lines(rough).state(f"postgresql.{setting}") == "ok", "the mend mends"
    finally:
        superuser.execute(f"ALTER SYSTEM RESET {setting}")
        superuser.execute("SELECT pg_reload_conf()")
        shown("on")


def test_a_setting_of_the_login_of_workers(rough, superuser):
    superuser.execute("ALTER ROLE couponmq_worker SET synchronous_commit = off")
    try:
        line = Lines(rough).bad("postgresql.synchronous_commit")
        assert line["state"] == "wrong"
        assert line["value"] == "couponmq_worker has synchronous_commit=off"
        superuser.execute(line["mend"].replace("NAME", "couponmq_worker"))
        assert Lines(rough).state("postgresql.synchronous_commit") == "ok"
    finally:
        superuser.execute("ALTER ROLE couponmq_worker RESET synchronous_commit")


def test_a_commit_that_waits_for_no_standby(rough):
    line = Lines(rough, COUPON_DATABASE_SYNCHRONOUS="yes").bad("postgresql.standby")
    assert line["state"] == "wrong" and "synchronous_standby_names is empty" in line["why"]


# Logins of PostgreSQL


@contextmanager
def granted(superuser, role, login):
    superuser.execute(f"GRANT {role} TO {login}")
    try:
        yield
    finally:
        superuser.execute(f"REVOKE {role} FROM {login}")


@pytest.mark.parametrize(
    "program, role", [("gateway", "couponmq_operator"), ("worker", "couponmq_gateway")]
)
def test_a_program_with_too_many_rights(rough, superuser, program, role):
    name = f"postgresql.login.{program}"
    with granted(superuser, role, f"couponmq_{program}"):
        line = Lines(rough).bad(name)
        assert line["state"] == "warning" and role in line["value"]
        assert "more than this program needs" in line["why"]
        assert f"only couponmq_{program}" in line["mend"]
    assert Lines(rough).state(name) == "ok"


def test_a_program_that_is_a_superuser(rough, superuser):
    superuser.execute("ALTER ROLE couponmq_gateway SUPERUSER")
    try:
        line = Lines(rough).bad("postgresql.login.gateway")
        assert line["state"] == "warning" and "superuser" in line["why"]
    finally:
        superuser.execute("ALTER ROLE couponmq_gateway NOSUPERUSER")


def test_the_login_of_couponctl(rough):
    """For people, couponmq_app has the rights of all programs; more is a warning, less is wrong."""

    def line_of(url):
        lines = Lines(rough, DATABASE_URL=url)
        return lines, lines.of("postgresql.login.operator")[0]

    assert line_of(rough.env["DATABASE_URL"])[1]["state"] == "ok"
    owner = line_of(rough.env["DATABASE_ADMIN_URL"])[1]
    assert owner["state"] == "warning" and "owns the tables" in owner["why"]
    lines, gateway = line_of(rough.env_of("gateway")["DATABASE_URL"])
    assert gateway["state"] == "wrong" and lines.status == 1
    assert gateway["mend"] == 'GRANT couponmq_operator TO "couponmq_gateway"'
    assert (
        lines.state("postgresql.schema") == "unknown"
    ), "it may not read which migrations there are"


def test_where_the_data_is(rough, superuser):
    """A right that lacks makes a line unknown, and its mend makes it known."""
    lines = Lines(rough)
    mend = lines.bad("postgresql.disk")["mend"]
    superuser.execute(mend)
    try:
        assert Lines(rough).state("postgresql.disk") in ("ok", "warning")
    finally:
        superuser.execute(mend.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))


# Schema, installation, clocks


def test_a_function_that_differs(rough, superuser):
    assert Lines(rough).state("postgresql.schema") == "ok"
    superuser.execute("SET search_path = public")
    superuser.execute("ALTER FUNCTION lock_fence() COST 17")
    line = Lines(rough).bad("postgresql.schema")
    assert (line["state"], line["mend"]) == ("wrong", "couponctl migrate")
    rough.ctl("migrate")
    assert Lines(rough).state("postgresql.schema") == "ok", "the mend mends"


def test_a_database_of_another_version(rough, rough_owner):
    last = "(SELECT max(version) FROM schema_migration)"
    rough_owner.execute(
        f"INSERT INTO schema_migration (version, name, checksum) SELECT {last} + 1, 'next', 'x'"
    )
    try:
        assert Lines(rough).bad("postgresql.schema")["state"] == "warning"
    finally:
        rough_owner.execute(f"DELETE FROM schema_migration WHERE version = {last}")
    rows = rough_owner.execute("DELETE FROM schema_migration RETURNING *").fetchall()
    try:
        line = Lines(rough).bad("postgresql.schema")
        assert (line["state"], line["mend"]) == ("wrong", "couponctl migrate")
    finally:
        for row in rows:
            rough_owner.execute("INSERT INTO schema_migration VALUES (%s, %s, %s, %s)", row)


def test_a_redis_of_others(rough, rough_redis):
    own = rough_redis.hget("couponmq:changes", "installation")
    rough_redis.hset("couponmq:changes", "installation", str(uuid.uuid4()))
    try:
        line = Lines(rough).bad("installation")
        assert line["state"] == "wrong" and "couponctl installation" in line["mend"]
    finally:
        rough_redis.hset("couponmq:changes", "installation", own)
    assert Lines(rough).state("installation") == "ok"


def test_clocks_differ(rough, tmp_path):
    clock = WallClock(tmp_path)
    clock.set(3)
    lines = Lines(rough, **clock.environment)
    for store in ("redis", "postgresql"):
        line = lines.bad(f"{store}.clock")
        assert line["state"] == "wrong" and line["value"].startswith("-")
        assert "synchronize" in line["mend"]


# Programs


def test_an_old_gateway(rough):
    url = rough.env_of("gateway")["DATABASE_URL"]
    with psycopg.connect(url, application_name="coupon-gateway 0.8.0"):
        line = Lines(rough).bad("program.gateway")
        assert line["state"] == "warning" and "0.8.0" in line["value"]
        assert line["mend"] == "restart each coupon-gateway with this version"
    wait_until(lambda: Lines(rough).state("program.gateway") == "ok")


def test_a_gateway_that_is_silent(rough, rough_owner):
    gone = rough_owner.execute(
        "INSERT INTO gateway (id, place, seen_at) VALUES (gen_random_uuid(), 'far 0.0.0.0:1 0',"
        " now() - interval '1 minute') RETURNING id"
    ).fetchone()
    try:
        line = Lines(rough).bad("program.gateway.process")
        assert line["state"] == "warning" and line["value"].startswith("far 0.0.0.0:1 0, ")
    finally:
        rough_owner.execute("DELETE FROM gateway WHERE id = %s", gone)


def test_no_worker_and_no_gateway(rough):
    rough.stop("worker-1", "gateway")
    lines = Lines(rough)
    for name in ("program.worker", "program.gateway", f"rabbitmq.{QUEUE}"):
        line = lines.bad(name)
        assert line["state"] == "wrong" and line["mend"].startswith("start a coupon-"), line
    wait_until(lambda: Lines(rough).state("program.keeper") == "wrong")


# RabbitMQ


@contextmanager
def channel_to(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        yield connection.channel()


def test_a_queue_that_is_another(rough):
    name = f"rabbitmq.{QUEUE}"
    rough.stop("gateway", "worker-1")
    with channel_to(rough) as channel:
        channel.queue_delete(QUEUE)
        assert Lines(rough).bad(name)["value"] == "absent"
        channel.queue_declare(QUEUE, durable=True)
        try:
            lines = Lines(rough)
            assert lines.bad(name)["state"] == "wrong"
            assert lines.bad(name)["mend"] == "couponctl queue move"
            # The channel that RabbitMQ has closed hides nothing.
            assert lines.state("rabbitmq.coupon.receive.dead") == "ok"
            assert lines.state("rabbitmq.confirm") in ("ok", "warning")
        finally:
            channel.queue_delete(QUEUE)


def test_what_a_login_may_not_do_in_rabbitmq(rough):
    rights = rough.rabbitmqctl("list_user_permissions", "couponmq_operator", "--formatter", "json")
    (before,) = json.loads(rights)
    rough.rabbitmqctl("set_permissions", "couponmq_operator", "^$", "^$", "^$")
    try:
        lines = Lines(rough)
        for name in (*(f"rabbitmq.{queue}" for queue in QUEUES), "rabbitmq.confirm"):
            line = lines.bad(name)
            assert line["state"] == "unknown" and "ACCESS_REFUSED" in line["why"], line
            assert "set_permissions" in line["mend"]
        assert lines.state("rabbitmq.latency") in ("ok", "warning")
    finally:
        values = (before[right] for right in ("configure", "write", "read"))
        rough.rabbitmqctl("set_permissions", "couponmq_operator", *values)


def test_rabbitmq_that_takes_no_messages(rough):
    """As one that is short of memory."""
    rough.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1000")
    try:
        line = Lines(rough).bad("rabbitmq.confirm")
        assert line["state"] == "wrong" and "rabbitmqctl status" in line["mend"]
    finally:
        rough.rabbitmqctl("set_vm_memory_high_watermark", "0.6")


class Api:
    """What the management API of RabbitMQ would answer."""

    NODE = {
        **{"name": "rabbit@r1", "running": True, "disk_free_alarm": False, "mem_alarm": False},
        **{"disk_free": 9e9, "disk_free_limit": 5e7, "fd_used": 60, "fd_total": 1000},
    }

    def __init__(self):
        self.node, self.status = {}, 200
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802 # pylint: disable=invalid-name
                body = {"items": []}
                if self.path.startswith("/api/nodes"):
                    body = [{**api.NODE, **api.node}]
                self.send_response(api.status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def lines(self, stack, status=200, **node):
        self.node, self.status = node, status
        url = f"http://monitor:hush-hush@127.0.0.1:{self.server.server_port}"
        lines = Lines(stack, COUPON_RABBITMQ_API=url)
        assert "hush-hush" not in lines.text
        return lines


def test_what_only_the_management_api_tells(rough):
    with Api() as api:
        lines = api.lines(rough)
        assert {lines.state(f"rabbitmq.{one}") for one in ("disk", "descriptors", "members")} == {
            "ok"
        }
        assert api.lines(rough, disk_free=6e7).bad("rabbitmq.disk")["state"] == "warning"
        full = api.lines(rough, disk_free=4e7, disk_free_alarm=True).bad("rabbitmq.disk")
        assert full["state"] == "wrong" and "takes nothing from publishers" in full["why"]
        assert api.lines(rough, mem_alarm=True).bad("rabbitmq.memory")["state"] == "wrong"
        assert api.lines(rough, fd_used=900).bad("rabbitmq.descriptors")["state"] == "warning"
        assert api.lines(rough, fd_total=0).bad("rabbitmq.descriptors")["state"] == "unknown"
        refused = api.lines(rough, status=401).bad("rabbitmq.disk")
        assert refused["state"] == "unknown" and "password" in refused["why"]


# The machine


def test_descriptors_of_a_gateway(rough):
    """The one of all that run on this machine with the lowest limit: others may run as well."""
    gateway = gateway_process(rough, "gateway-few", descriptors_max=150)
    try:
        line = Lines(rough).bad("machine.descriptors")
        assert line["state"] == "warning" and "LimitNOFILE" in line["mend"]
        assert line["wanted"] == "at least 210"
        assert int(line["value"].split()[0]) <= 150
    finally:
        gateway.end()


def test_certificates_of_files(rough, tmp_path):
    authority = Authority(tmp_path, "authority")
    name = "certificate.COUPON_TLS_CERT"
    for days, state in ((30, "ok"), (5, "warning"), (-1, "wrong")):
        path, _ = authority.issue("DNS:localhost", days=days)
        lines = Lines(rough, COUPON_TLS_CERT=str(path), COUPON_REDIS_CA=str(authority.path))
        assert lines.state(name) == state
        assert lines.state("certificate.COUPON_REDIS_CA") == "ok"
        if state != "ok":
            assert "new certificate" in lines.bad(name)["mend"]
    assert Lines(rough, COUPON_TLS_CERT=str(tmp_path / "none")).state(name) == "unknown"


# Nothing secret


def test_no_line_has_a_secret(rough):
    secrets = passwords(rough)
    assert len(secrets) >= 3

    def told(**settings):
        for options in ((), ("--json",)):
            result = rough.ctl_run("doctor", *options, settings={**FEW, **settings})
            for secret in secrets | {"hush-hush"}:
                assert secret not in result.stdout + result.stderr

    told()
    wrong = {
        name: rough.env_of("operator")[name].replace("couponmq_operator:", "nobody:hush-hush")
        for name in ("REDIS_URL", "AMQP_URL", "DATABASE_URL")
    }
    told(**wrong)
    rough.stop("redis", "rabbitmq", "postgres")
    told()
