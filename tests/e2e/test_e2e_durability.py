"""Services with settings too weak for the promises: the gateway and the worker report them, and
continue."""

import contextlib

import pika
import pytest
import redis
import requests

from history import QUEUE
from process import Worker, gateway_process, metrics_read
from stack import wait_until

PROGRAMS = ("gateway", "worker-1")


@pytest.fixture
def cache(rough):
    with redis.Redis.from_url(rough.env["REDIS_URL"], decode_responses=True) as client:
        yield client


def readyz(stack):
    response = requests.get(stack.http("/readyz"), timeout=60)
    return response.status_code, response.json()


def warnings(stack):
    return readyz(stack)[1]["warnings"]


def lines(log, event):
    return [line for line in log.splitlines() if f"event={event}" in line]


def configs_asked(cache):
    """The number of CONFIG GET commands so far."""
    told = cache.info("commandstats").get("cmdstat_config|get", {})
    return told.get("calls", 0) + told.get("rejected_calls", 0)


def redis_reconnect(stack, cache):
    """Cuts every connection to Redis, and waits until the gateway has reconnected and has read the
    settings."""
    wait_until(lambda: readyz(stack)[0] == 200)
    before = configs_asked(cache)
    cache.client_kill_filter(_type="normal", skipme=True)
    wait_until(lambda: configs_asked(cache) >= before + 3 and readyz(stack)[0] == 200)


@contextlib.contextmanager
def redis_set(stack, cache, setting, value):
    before = cache.config_get(setting)[setting]
    cache.config_set(setting, value)
    try:
        redis_reconnect(stack, cache)
        yield
    finally:
        cache.config_set(setting, before)
        redis_reconnect(stack, cache)
        wait_until(lambda: warnings(stack) == [])


def test_the_stack_as_it_is_warns_of_nothing(rough, cache):
    before = {name: len(rough.log(name)) for name in PROGRAMS}
    rough.stop(*PROGRAMS)
    rough.start(*PROGRAMS)
    redis_reconnect(rough, cache)
    assert readyz(rough) == (
        200,
        {
            **dict.fromkeys(("redis", "rabbitmq", "postgresql"), "ok"),
            **{"ready": True, "degraded": [], "warnings": []},
        },
    )
    for name in PROGRAMS:
        log = rough.log(name)[before[name] :]
        assert [
            lines(log, event) for event in ("weak_setting", "setting_unknown", "queue_differs")
        ] == [[], [], []]


@pytest.mark.parametrize(
    "setting, value, wanted",
    [
        ("appendfsync", "everysec", "always"),
        ("appendonly", "no", "yes"),
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ],
)
def test_a_weak_redis(rough, cache, setting, value, wanted):
    told = len(lines(rough.log("gateway"), "weak_setting"))
    with redis_set(rough, cache, setting, value):
        (warning,) = wait_until(lambda: warnings(rough))
        assert warning.startswith(f"redis: {setting} is {value}, wanted {wanted}: ")
        assert readyz(rough)[0] == 200 and readyz(rough)[1]["ready"] is True
        wait_until(lambda: metrics_read(rough.http("/metrics"))["couponmq_weak_settings"] == 1)
        (line,) = lines(rough.log("gateway"), "weak_setting")[told:]
        assert (
            "level=warn" in line
            and f"setting={setting} value={value} wanted={wanted} effect=" in line
        )
        redis_reconnect(rough, cache)
        wait_until(lambda: len(lines(rough.log("gateway"), "weak_setting")) == told + 2)


def test_a_redis_that_does_not_tell_is_unknown_and_said_once(rough, cache):
    told = len(lines(rough.log("gateway"), "setting_unknown"))
    cache.execute_command("ACL", "SETUSER", "couponmq_gateway", "-config")
    try:
        for _ in range(2):
            redis_reconnect(rough, cache)
            wait_until(
                lambda: [warning.split(":")[:2] for warning in warnings(rough)]
                == [["redis", " the service does not show its settings"]]
            )
        assert len(lines(rough.log("gateway"), "setting_unknown")) == told + 1
        assert readyz(rough)[0] == 200
    finally:
        cache.execute_command("ACL", "SETUSER", "couponmq_gateway", "+config|get")
        redis_reconnect(rough, cache)
    wait_until(lambda: warnings(rough) == [])


def test_an_operator_has_acknowledged_it(rough, cache, gateway_make):
    """Nothing warns that Redis does not show its settings."""
    cache.execute_command("ACL", "SETUSER", "couponmq_gateway", "-config")
    rough.stop("gateway")
    try:
        before = configs_asked(cache)
        gateway = gateway_make(rough, COUPON_REDIS_DURABILITY="acknowledged")
        wait_until(lambda: configs_asked(cache) >= before + 3)
        assert requests.get(gateway.http("/readyz"), timeout=60).json()["warnings"] == []
        gateway.end()  # whatever Redis has answered is taken
        assert lines(gateway.log(), "setting_unknown") == []
    finally:
        cache.execute_command("ACL", "SETUSER", "couponmq_gateway", "+config|get")


def programs_disconnect(superuser):
    superuser.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'couponmq_%'"
    )


@pytest.mark.parametrize("setting", ["synchronous_commit", "full_page_writes", "fsync"])
def test_a_weak_postgresql(rough, superuser, setting):
    before = {name: len(lines(rough.log(name), "weak_setting")) for name in PROGRAMS}
    superuser.execute(f"ALTER SYSTEM SET {setting} = off")
    superuser.execute("SELECT pg_reload_conf()")
    try:
        wait_until(lambda: superuser.execute(f"SHOW {setting}").fetchone() == ("off",))
        programs_disconnect(superuser)
        (warning,) = wait_until(lambda: warnings(rough))
        assert warning.startswith(f"postgresql: {setting} is off, wanted on: ")
        for name, told in before.items():
            sessions = 2 if name == "worker-1" else 1  # of receives, and of uses
            wait_until(lambda: len(lines(rough.log(name), "weak_setting")) == told + sessions)
            assert (
                f"part=postgresql setting={setting} value=off wanted=on"
                in lines(rough.log(name), "weak_setting")[-1]
            )
        wait_until(lambda: readyz(rough)[0] == 200)
        coupon = rough.coupon_make(10)
        with rough.client() as client:
            assert (
                client.issue(coupon, 1, ack="issued")["status"] == "issued"
            ), "it is only a warning"
    finally:
        superuser.execute(f"ALTER SYSTEM RESET {setting}")
        superuser.execute("SELECT pg_reload_conf()")
        wait_until(lambda: superuser.execute(f"SHOW {setting}").fetchone() == ("on",))
        programs_disconnect(superuser)
    wait_until(lambda: warnings(rough) == [])
    wait_until(lambda: metrics_read(rough.http("/metrics"))["couponmq_weak_settings"] == 0)


def test_commits_that_wait_for_less_than_a_replica_will_do(rough, superuser):
    for program in ("gateway", "worker"):
        superuser.execute(f"ALTER ROLE couponmq_{program} SET synchronous_commit = local")
    try:
        before = rough.log("gateway").count("event=database_ready")
        programs_disconnect(superuser)
        wait_until(lambda: rough.log("gateway").count("event=database_ready") > before)
        asked = rough.log("worker-1").count("event=database_connected")
        programs_disconnect(superuser)
        wait_until(lambda: rough.log("worker-1").count("event=database_connected") > asked)
        assert warnings(rough) == []
    finally:
        for program in ("gateway", "worker"):
            superuser.execute(f"ALTER ROLE couponmq_{program} RESET synchronous_commit")
        programs_disconnect(superuser)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-queue-type": "classic"}, {"x-queue-type": "quorum", "x-delivery-limit": 5}],
    ids=["plain", "classic", "limit"],
)
def test_a_queue_that_is_not_declared_as_ours(rough, arguments):
    """The programs use it as it is, and say so until it is replaced."""
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        rough.stop("gateway", "worker-1")
        channel.queue_delete(QUEUE)
        channel.queue_declare(QUEUE, durable=True, arguments=arguments)
        gateway = gateway_process(rough, "gateway-differs")
        worker = Worker(rough, "worker-differs", {})
        try:
            coupon = rough.coupon_make(10)
            for process in (gateway, worker):
                line = wait_until(lambda: lines(process.log(), "queue_differs"))[0]
                assert (
                    "level=error" in line
                    and f"name={QUEUE}" in line
                    and "PRECONDITION_FAILED" in line
                    and "couponctl queue move" in line
                )
                (warning,) = requests.get(process.http("/readyz"), timeout=60).json()["warnings"]
                assert QUEUE in warning and "couponctl queue move" in warning
            assert metrics_read(gateway.http("/metrics"))["couponmq_queues_differing"] == 1
            wait_until(lambda: worker.metrics()["couponmq_worker_queues_differing"] == 1)
            with gateway.client() as client:
                wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
                assert client.issue(coupon, 1, ack="issued")["status"] == "issued"
                channel.queue_delete(QUEUE)  # the worker declares it as ours
                wait_until(lambda: worker.metrics()["couponmq_worker_queues_differing"] == 0)
                assert client.issue(coupon, 2, ack="issued")["status"] == "issued"
            assert len(lines(worker.log(), "queue_differs")) == 1
        finally:
            gateway.end()
            worker.end()
            channel.queue_delete(QUEUE, if_unused=False)
    rough.start("gateway", "worker-1")
