"""make test-alerts: each alert of deploy/prometheus is caused once on a real stack, with Debian's
Prometheus watching; it fires, and ends when its cause does. Then each query of the dashboards in
deploy/grafana must have had data.

A cause is a function that yields between what causes the alert and what ends it."""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import threading

import pika
import psycopg
import pytest
import redis
import requests

from broker_cluster import Cluster
from certificates import Authority
from codes import Codes
from endpoint import Endpoint
from history import DEAD_QUEUE, QUEUE
from installation import another_installation
from process import Process, Worker, gateway_process
from prometheus import Prometheus
from redis_server import server_find
from standby import Standby
from stack import ROOT, port_answers, port_free, url_of, wait_until
from webhooks import ALLOWED, Webhooks

WITHIN_S = 90
KEEPER = {
    "COUPON_KEEPER_LEASE_MS": 1000,
    "COUPON_KEEPER_ROUND_MS": 100,
    "COUPON_RESEND_AFTER_MS": 400,
}
CAUSES = {}


def causes(alert):
    def add(function):
        CAUSES[alert] = function
        return function

    return add


class Bed:
    """A stack and the Prometheus that watches it."""

    def __init__(self, stack, folder):
        self.stack, self.folder = stack, folder
        self.prometheus = Prometheus(folder)
        self.numbers = iter(range(1, 100))
        self.prometheus.add("gateways", stack.env["COUPON_HTTP_LISTEN"])
        for number in (1, 2):
            address = stack.worker_http(number, "").partition("//")[2]
            self.prometheus.add("workers", address)

    @contextlib.contextmanager
    def gateway(self, labels=(), **settings):
        """One more, which is watched."""
        name = f"gateway-{next(self.numbers)}"
        gateway = gateway_process(self.stack, name, ready=None, **settings)
        address = gateway.settings["COUPON_HTTP_LISTEN"]
        try:
            wait_until(lambda: "event=ready" in gateway.log())
            self.prometheus.add("gateways", address, **dict(labels))
            yield gateway
        finally:
            self.prometheus.remove("gateways", address)
            gateway.end()

    @contextlib.contextmanager
    def worker(self, **settings):
        worker = Worker(self.stack, f"worker-{next(self.numbers)}-of-test", {**KEEPER, **settings})
        address = f"127.0.0.1:{worker.port}"
        try:
            wait_until(lambda: port_answers(worker.port))
            self.prometheus.add("workers", address)
            yield worker
        finally:
            self.prometheus.remove("workers", address)
            worker.end()

    @contextlib.contextmanager
    def admin(self):
        """A coupon-admin that is watched; its URL."""
        address = f"127.0.0.1:{port_free()}"
        key = self.stack.ctl("key", "create", "--name", "prometheus", "--role", "monitor")
        (self.folder / "admin.key").write_text(key)
        admin = Process(
            self.stack, "coupon-admin", "admin-of-test", {"COUPON_ADMIN_LISTEN": address}
        )
        try:
            wait_until(lambda: "event=ready" in admin.log())
            self.prometheus.add("admins", address)
            yield url_of(address)
        finally:
            self.prometheus.remove("admins", address)
            admin.end()

    def pg(self):
        return psycopg.connect(self.stack.env["DATABASE_ADMIN_URL"], autocommit=True)

    def redis(self):
        return redis.Redis.from_url(self.stack.env["REDIS_URL"], decode_responses=True)

    def coupon(self, total=100000, **terms):
        """A coupon that is issued now."""
        coupon = self.stack.coupon_make(total, **terms)
        with self.stack.client() as client:
            wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        return coupon

    @contextlib.contextmanager
    def locked(self, coupon):
        """Nothing of it can be settled."""
        with psycopg.connect(self.stack.env["DATABASE_ADMIN_URL"]) as holder:
            holder.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupon,))
            yield

    @contextlib.contextmanager
    def unsettled(self, timeout_ms, alert):
        """Clients wait for rows that a lock holds back, and go on until the alert is over."""
        coupon = self.coupon()
        with (
            self.gateway(COUPON_ISSUED_TIMEOUT_MS=timeout_ms) as gateway,
            self.busy(lambda client, n: client.issue(coupon, n, ack="issued"), gateway),
        ):
            with self.locked(coupon):
                yield
            wait_over(self, alert)

    @contextlib.contextmanager
    def busy(self, ask, gateway=None):
        """ask(client, number) is repeated meanwhile."""
        ending = threading.Event()

        def run():
            number = 0
            while not ending.is_set():
                with contextlib.suppress(OSError, AssertionError):
                    with (gateway or self.stack).client() as client:
                        while not ending.is_set():
                            ask(client, number := number + 1)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(WITHIN_S)

    @contextlib.contextmanager
    def channel(self):
        with pika.BlockingConnection(pika.URLParameters(self.stack.env["AMQP_URL"])) as connection:
            yield connection.channel()


@pytest.fixture(scope="module")
def bed(stack_make, tmp_path_factory):
    stack = stack_make()
    stack.settings = {**KEEPER, **ALLOWED, "COUPON_WEBHOOK_RETRY_MS": 500}
    stack.services()
    stack.start("gateway", "worker-1", "worker-2")
    made = Bed(stack, tmp_path_factory.mktemp("prometheus"))
    coupon = made.coupon()
    with made.busy(lambda client, number: client.issue(coupon, number, ack="issued")):
        wait_until(lambda: made.prometheus.has_had("couponmq:issued:rate5m > 0"))
    wait_until(lambda: not made.prometheus.firing())
    yield made
    made.prometheus.end()


@pytest.fixture
def calm(bed):
    """Each alert is caused while no other one fires."""
    wait_until(lambda: not bed.prometheus.firing(), WITHIN_S)
    return bed


# ---- the programs


@causes("GatewayDown")
def gateway_down(bed):
    bed.stack.kill9("gateway")
    yield
    bed.stack.start("gateway")


@causes("GatewayNotReady")
def gateway_not_ready(bed):
    """It drains, and is replaced."""
    with bed.gateway(COUPON_DRAIN_S=600) as gateway:
        wait_until(gateway.ready)
        gateway.signal(signal.SIGTERM)
        yield


@causes("WorkerDown")
def worker_down(bed):
    bed.stack.kill9("worker-2")
    yield
    bed.stack.start("worker-2")


@causes("NoKeeper")
def no_keeper(bed):
    bed.stack.stop("worker-1", "worker-2")
    yield
    bed.stack.start("worker-1", "worker-2")


@causes("CertificateEnds")
def certificate_ends(bed):
    folder = bed.folder / "tls"
    folder.mkdir()
    authority = Authority(folder, "authority")

    def put(days):
        for path, name in zip(authority.issue("IP:127.0.0.1", days=days), ("cert", "key")):
            path.chmod(0o600)
            path.rename(folder / f"{name}.pem")

    put(5)
    files = {f"COUPON_TLS_{name.upper()}": folder / f"{name}.pem" for name in ("cert", "key")}
    with bed.gateway({"__scheme__": "https"}, **files):
        yield
        put(20)
        wait_over(bed, "CertificateEnds")


# ---- the stores


@causes("RedisUnreachable")
def redis_unreachable(bed):
    bed.stack.stop("redis")
    yield
    bed.stack.start("redis")


@causes("ReplicasMissing")
def replicas_missing(bed):
    with bed.gateway(COUPON_REDIS_REPLICAS=1):
        yield
        master = re.search(r":(\d+)/", bed.stack.env["REDIS_URL"])[1]
        words = ("--port", port_free(), "--replicaof", "127.0.0.1", master, "--save", "")
        with subprocess.Popen(
            [server_find(), *map(str, words)], cwd=bed.folder, stdout=subprocess.DEVNULL
        ) as replica:
            try:
                wait_over(bed, "ReplicasMissing")
            finally:
                replica.terminate()


@causes("RabbitMQUnreachable")
def rabbitmq_unreachable(bed):
    bed.stack.queues_register()
    bed.stack.stop("rabbitmq")
    yield
    bed.stack.start("rabbitmq")


@causes("RabbitMQBlocked")
def rabbitmq_blocked(bed):
    """An alarm for memory. RabbitMQ tells a connection when it publishes."""
    coupon = bed.coupon()
    bed.stack.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        with bed.busy(lambda client, number: client.issue(coupon, number)):
            yield
    finally:
        bed.stack.rabbitmqctl("set_vm_memory_high_watermark", "0.4")


@causes("QueueMembersMissing")
def queue_members_missing(bed):
    """One of three nodes is down. The programs of the stack have their own RabbitMQ."""
    cluster = Cluster(bed.stack, 3)
    try:
        cluster.start()
        with bed.worker(**cluster.env(bed.stack.env_of("worker"))) as worker:
            members = "couponmq_worker_queue_members_online"
            wait_until(lambda: worker.metrics()[members] == 3)
            cluster.nodes[2].stop()
            yield
            cluster.nodes[2].start()
            wait_over(bed, "QueueMembersMissing")
    finally:
        cluster.end()


@causes("QueueDiffers")
def queue_differs(bed):
    """It was declared by another program, before those of couponmq. They look again when they
    connect."""
    bed.stack.stop("gateway", "worker-1", "worker-2")
    with bed.channel() as channel:
        channel.queue_delete(DEAD_QUEUE)
        channel.queue_declare(DEAD_QUEUE, durable=True)
    bed.stack.start("gateway", "worker-1", "worker-2")
    yield
    bed.stack.ctl("queue", "move")


@causes("PostgreSQLUnreachable")
def postgresql_unreachable(bed):
    bed.stack.stop("postgres")
    yield
    bed.stack.start("postgres")


@causes("PostgreSQLPutBack")
def postgresql_put_back(bed):
    """To a backup, which lacks a campaign and a receive of it."""
    data = (bed.stack.run_dir / "postgres").resolve() / "data"
    backup = data.with_name("backup")
    bed.stack.stop("postgres")
    subprocess.run(["cp", "-a", data, backup], check=True)
    bed.stack.start("postgres")
    coupon = bed.coupon()
    with bed.stack.client() as client, bed.redis() as cache:
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["code"] in (0, 4))
        wait_until(lambda: not cache.hlen(f"coupon:{{{coupon}}}:outbox"))
    bed.stack.stop("postgres")
    shutil.rmtree(data)
    backup.rename(data)
    bed.stack.start("postgres")
    yield
    bed.stack.ctl("recover", "--all")


@causes("PostgreSQLOld")
def postgresql_old(bed):
    """A standby is promoted, and the old primary lives on."""
    standby = Standby(bed.stack)
    standby.start()
    try:
        standby.caught_up()
        standby.promote()
        with bed.worker(**standby.urls(standby.port)):
            yield
        standby.stop()
        bed.stack.ctl("recover", "--all", "--this-server")
    finally:
        standby.remove()


@causes("InstallationDiffers")
def installation_differs(bed):
    with another_installation(bed.stack) as another, bed.worker(**another.env):
        yield


@causes("WeakSettings")
def weak_settings(bed):
    """Settings are read at each connection, and once a minute."""
    with bed.redis() as cache:
        cache.config_set("appendfsync", "everysec")
        bed.stack.restart("gateway")
        yield
        cache.config_set("appendfsync", "always")
        bed.stack.restart("gateway")


# ---- receives


@causes("ReceivesOverdue")
def receives_overdue(bed):
    coupon = bed.coupon()
    with bed.locked(coupon):
        with bed.stack.client() as client:
            assert client.issue(coupon, 1)["code"] == 0
        yield


@causes("ReceivesLost")
def receives_lost(bed):
    """Redis has counted a receive, and no store has its slot or its message: as after a loss of
    Redis together with a gateway that had told of it."""
    coupon = bed.coupon()
    with bed.redis() as cache:
        cache.hincrby(f"coupon:{{{coupon}}}", "seq", 1)
        cache.hincrby(f"coupon:{{{coupon}}}", "stock", -1)
    yield

    def is_freed():
        """It is refused while a worker may hold what it had put off for the cause before."""
        bed.stack.ctl_run("rebuild", coupon, "--give-up-lost", "--older-than-s", 1)
        return "ReceivesLost" not in bed.prometheus.firing()

    wait_until(is_freed, WITHIN_S, 1)


@causes("QueueGrows")
def queue_grows(bed):
    """A message for each request: each waits for the answer of the one before."""
    coupon = bed.coupon()
    with (
        bed.locked(coupon),
        bed.busy(lambda client, number: client.issue(coupon, number)),
    ):
        yield


@causes("DeadLetters")
def dead_letters(bed):
    with bed.channel() as channel:
        channel.basic_publish("coupon.topic", "coupon.receive", b"not a message")
    yield
    bed.stack.ctl("dead", "remove", "1", "--yes")


@causes("ReceivesRejected")
def receives_rejected(bed):
    """The total was lowered by hand."""
    coupon = bed.coupon(3)
    with bed.pg() as pg, bed.stack.client() as client:
        pg.execute("UPDATE coupon SET total_num = 1 WHERE id = %s", (coupon,))
        assert [client.issue(coupon, n, ack="issued")["code"] for n in (1, 2)] == [0, 9]
    yield


@causes("MessagesRepeated")
def messages_repeated(bed):
    """The queue has the length that a policy allows, and RabbitMQ refuses what is published."""
    coupon = bed.coupon()
    bed.stack.stop("worker-1", "worker-2")
    bed.stack.policy_set("full", f"^{QUEUE}$", '{"max-length":1,"overflow":"reject-publish"}')
    try:
        with bed.busy(lambda client, number: client.issue(coupon, number)):
            yield
    finally:
        bed.stack.policy_clear("full")
        bed.stack.start("worker-1", "worker-2")


# ---- coupons


@causes("CouponUnavailable")
def coupon_unavailable(bed):
    """A key of it has a wrong type."""
    coupon = bed.coupon()
    key = f"coupon:{{{coupon}}}:users"
    with bed.redis() as cache:
        cache.set(key, "written by another program")
        yield
        cache.delete(key)


@causes("NumbersDiffer")
def numbers_differ(bed):
    coupon = bed.coupon()
    with bed.redis() as cache:
        cache.hincrby(f"coupon:{{{coupon}}}", "stock", 3)
    yield
    bed.stack.ctl("rebuild", coupon)


@causes("CodeKeysMissing")
def code_keys_missing(bed):
    stack, keys = bed.stack, bed.folder / "code-keys"
    Codes(stack, stack.env["COUPON_CODE_KEYS"]).generate(bed.coupon(), 1, bed.folder / "codes")
    with bed.gateway(COUPON_CODE_KEYS=keys):
        yield
        part = bed.folder / "part"
        shutil.copy(stack.env["COUPON_CODE_KEYS"], part)
        part.chmod(0o600)
        part.rename(keys)
        wait_over(bed, "CodeKeysMissing")


# ---- answers


@causes("AnswersUnavailable")
def answers_unavailable(bed):
    coupon = bed.coupon()
    bed.stack.stop("redis")
    with bed.busy(lambda client, number: client.issue(coupon, number)):
        yield
        bed.stack.start("redis")
        wait_over(bed, "AnswersUnavailable")


@causes("AnswersUnknown")
def answers_unknown(bed):
    with bed.unsettled(200, "AnswersUnknown"):
        yield


@causes("AnswersBusy")
def answers_busy(bed):
    coupon = bed.coupon()

    def crowd(client, number):
        users = range(100 * number, 100 * number + 100)
        client.pipeline([{"op": "issue", "coupon": coupon, "user": user} for user in users])

    with bed.gateway(COUPON_INFLIGHT_MAX=10) as gateway:
        with bed.busy(crowd, gateway):
            yield
        wait_over(bed, "AnswersBusy")


@causes("AnswersSlow")
def answers_slow(bed):
    with bed.unsettled(1500, "AnswersSlow"):
        yield


@causes("KeysRefused")
def keys_refused(bed):
    key = bed.stack.ctl("key", "create", "--name", "known", "--role", "issue")
    wrong = key[:-1] + ("a" if key[-1] != "a" else "b")
    with bed.busy(lambda client, number: client.call("auth", token=wrong)):
        yield


@causes("AdminKeysRefused")
def admin_keys_refused(bed):
    with bed.admin() as url:
        with bed.busy(
            lambda client, number: requests.post(
                f"{url}/admin/session", json={"key": f"cmq_{number:010}_x"}, timeout=60
            )
        ):
            yield
        wait_over(bed, "AdminKeysRefused")


# ---- events


@causes("EventsLate")
def events_late(bed):
    """RabbitMQ is away, so that what an operator changes is not published."""
    bed.stack.queues_register()
    bed.stack.stop("rabbitmq")
    bed.stack.coupon_make(10, events="on")
    yield
    bed.stack.start("rabbitmq")


@contextlib.contextmanager
def webhook(bed, endpoint):
    """A webhook that has an event to deliver."""
    webhooks = Webhooks(bed.stack)
    try:
        made, _ = webhooks.add(endpoint.url())
        webhooks.enqueue(bed.stack.coupon_make(10))
        yield webhooks, made
    finally:
        webhooks.close()


@causes("WebhooksLate")
def webhooks_late(bed):
    answers = {"status": 500}
    with contextlib.closing(Endpoint(lambda request: answers["status"])) as endpoint:
        with webhook(bed, endpoint):
            yield
            answers["status"] = 204
            wait_over(bed, "WebhooksLate")


@causes("WebhookDisabled")
def webhook_disabled(bed):
    with (
        contextlib.closing(Endpoint()) as endpoint,
        webhook(bed, endpoint) as (webhooks, made),
    ):
        webhooks("edit", made, "--state", "disabled")
        yield
        webhooks("edit", made, "--state", "enabled")
        wait_over(bed, "WebhookDisabled")


# ---- the tests


def wait_over(bed, alert):
    wait_until(lambda: alert not in bed.prometheus.firing(), WITHIN_S)


def test_each_alert_has_a_cause(bed):
    rules = [rule for group in bed.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    alerts = {rule["name"] for rule in rules if rule["type"] == "alerting"}
    assert alerts == {f"Couponmq{alert}" for alert in CAUSES}
    assert [rule for rule in rules if rule["health"] != "ok"] == []


@pytest.mark.parametrize("alert", CAUSES)
def test_it_fires_and_ends(calm, alert):
    cause = CAUSES[alert](calm)
    next(cause)
    try:
        wait_until(lambda: alert in calm.prometheus.firing(), WITHIN_S)
    finally:
        with contextlib.suppress(StopIteration):
            next(cause)
    wait_over(calm, alert)


def test_each_recorded_series_has_had_data(bed):
    for group in bed.prometheus.ask("rules", type="record")["groups"]:
        for rule in group["rules"]:
            assert bed.prometheus.has_had(rule["name"]), rule["name"]


def queries(dashboard):
    """(panel, query) of each of its panels, for all that its variables can be."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], re.sub(r"\$\w+", ".+", target["expr"])


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/grafana").glob("*.json")), ids=str)
def test_each_query_of_the_dashboards_has_had_data(bed, path):
    asked = list(queries(json.loads(path.read_text(encoding="utf-8"))))
    assert asked
    assert [one for one in asked if not bed.prometheus.has_had(one[1])] == []
