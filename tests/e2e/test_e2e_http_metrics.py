"""Monitoring: /healthz, /readyz, /metrics; and several processes behind one listener."""

import concurrent.futures
import os
import resource
import signal
import subprocess

import pytest
import requests

from process import metrics_read, privileges_drop
from stack import wait_until

PARTS = {"redis": "redis", "rabbitmq": "rabbitmq", "postgres": "postgresql"}


def ready(stack):
    response = requests.get(stack.http("/readyz"), timeout=60)
    return response.status_code, response.json()


def test_healthy_and_ready(stack):
    response = requests.get(stack.http("/healthz"), timeout=60)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert ready(stack) == (
        200,
        {
            "ready": True,
            "degraded": [],
            "redis": "ok",
            "rabbitmq": "ok",
            "postgresql": "ok",
            "warnings": [],
        },
    )


@pytest.mark.parametrize("service", PARTS)
def test_readyz_names_what_is_away(rough, service):
    """Without Redis nothing is issued; without one of the others it is."""
    part, issues = PARTS[service], service != "redis"
    rough.stop(service)
    status, body = wait_until(lambda: part in (answer := ready(rough))[1]["degraded"] and answer)
    assert (status, body["ready"]) == ((200, True) if issues else (503, False))
    assert body[PARTS[service]] not in ("", "ok"), "the reason is reported"
    assert [part for part in PARTS.values() if body[part] != "ok"] == [PARTS[service]]
    assert requests.get(rough.http("/healthz"), timeout=60).status_code == 200
    rough.start(service)
    wait_until(lambda: ready(rough)[1]["degraded"] == [])
    coupon = rough.coupon_make(10)
    with rough.client() as client:
        assert client.issue(coupon, 1, ack="issued")["status"] == "issued"


def test_metrics_move_as_they_should(stack, make_coupon, gateway_make):
    coupon = make_coupon(2)
    gateway = gateway_make(stack)
    before = gateway.metrics()
    with gateway.client() as client:
        client.issue(coupon, 1, ack="issued")
        client.issue(coupon, 2, key="k")
        client.issue(coupon, 2, key="k")
        client.issue(coupon, 3)
        client.issue("bad", 3)
        client.issue(987654321, 3)
        client.call("ping")
        assert gateway.metrics()["couponmq_connections"] == 1
        wait_until(lambda: gateway.metrics()["couponmq_messages_confirmed_total"] == 2)
        wait_until(lambda: gateway.metrics()["couponmq_receives_unconfirmed"] == 0)
        now = gateway.metrics()
    moved = {
        name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)
    }
    expected = {
        "couponmq_requests_total": 7,
        "couponmq_connections_total": 1,
        "couponmq_receives_accepted_total": 2,
        "couponmq_messages_published_total": 2,
        "couponmq_messages_confirmed_total": 2,
        "couponmq_outcomes_total": 1,
        "couponmq_script_calls_total": 5,
        "couponmq_script_call_requests_total": 5,
        "couponmq_answers_total{ok}": 4,
        "couponmq_answers_total{out_of_stock}": 1,
        "couponmq_answers_total{bad_request}": 1,
        "couponmq_answers_total{not_found}": 1,
        "couponmq_issue_seconds_count": 5,
    }
    assert {name: moved.get(name) for name in expected} == expected
    assert now["couponmq_issue_seconds_bucket{+Inf}"] == now["couponmq_issue_seconds_count"]
    assert (now["couponmq_redis_up"], now["couponmq_amqp_up"], now["couponmq_database_up"]) == (
        1,
        1,
        1,
    )
    wait_until(lambda: gateway.metrics()["couponmq_connections"] == 0)


def test_stats_are_the_metrics(stack):
    with stack.client() as client:
        stats = client.call("stats")["stats"]
    metrics = metrics_read(stack.http("/metrics"))
    flat = {name: value for name, value in stats.items() if name != "answers"}
    assert {f"couponmq_{name}" for name in flat} <= metrics.keys()
    assert {f"couponmq_answers_total{{{name}}}" for name in stats["answers"]} <= metrics.keys()


# --processes


def load(gateway, coupon, first, connections=30, each=20):
    """Returns the codes of connections * each requests of as many users."""

    def one(number):
        with gateway.client() as client:
            users = range(first + number * each, first + (number + 1) * each)
            requests_ = [{"op": "issue", "coupon": coupon, "user": str(user)} for user in users]
            return [reply["code"] for reply in client.pipeline(requests_)]

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(one, range(connections)), [])


def test_three_processes_answer_and_count_as_one(stack, make_coupon, gateway_make, pg):
    coupon = make_coupon(500)
    gateway = gateway_make(stack, COUPON_PROCESSES=3)
    codes = load(gateway, coupon, 1)
    assert (codes.count(0), codes.count(2)) == (500, 100)
    metrics = gateway.metrics()
    assert metrics["couponmq_requests_total"] == 600
    assert metrics["couponmq_answers_total{ok}"] == 500
    assert metrics["couponmq_connections_total"] == 30
    wait_until(
        lambda: pg.execute("SELECT issued_num FROM coupon WHERE id = %s", (coupon,)).fetchone()
        == (500,)
    )
    assert all(
        gateway.metrics()["couponmq_requests_total"] == 600 for _ in range(10)
    ), "whichever answers"


def test_a_killed_process_is_started_again(stack, make_coupon, gateway_make):
    coupon = make_coupon(10000)
    gateway = gateway_make(stack, COUPON_PROCESSES=3)
    assert load(gateway, coupon, 1).count(0) == 600
    victim = gateway.processes()[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in gateway.processes())
    wait_until(lambda: gateway.log().count("event=gateway_known") == 4)
    wait_until(lambda: gateway.metrics()["couponmq_redis_up"] == 3)
    assert load(gateway, coupon, 10001).count(0) == 600
    metrics = gateway.metrics()
    assert metrics["couponmq_requests_total"] == 1200, "the counts of the dead process are kept"
    assert "process_died" in gateway.log()
    assert gateway.terminate() == 0
    assert not gateway.processes()


def processes_limit(gateway, soft):
    command = ["prlimit", "--pid", str(gateway.child.pid), f"--nproc={soft}:"]
    subprocess.run(command, check=True, preexec_fn=privileges_drop)


@pytest.mark.plain  # another user, who may not read the key of the certificate
def test_where_no_process_can_be_started_it_is_tried_again(stack, make_coupon, gateway_make):
    coupon = make_coupon(10000)
    gateway = gateway_make(stack, unprivileged=True, COUPON_PROCESSES=2)
    processes_limit(gateway, "1")
    victim, survivor = gateway.processes()
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: gateway.log().count("event=process_not_started") >= 3)
    assert gateway.processes() == [survivor]
    assert load(gateway, coupon, 1, connections=5).count(0) == 100, "the other continues"
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    processes_limit(gateway, "unlimited" if most == resource.RLIM_INFINITY else most)
    wait_until(lambda: gateway.log().count("event=gateway_known") == 3)
    assert gateway.terminate() == 0


@pytest.mark.long
def test_a_frozen_process_holds_up_neither_its_neighbour_nor_the_end(
    stack, make_coupon, gateway_make
):
    """It may have receives alone, and is given COUPON_STOP_WAIT_S before it is killed."""
    coupon = make_coupon(10000)
    gateway = gateway_make(stack, COUPON_PROCESSES=2, COUPON_STOP_WAIT_S=1)
    frozen = gateway.processes()[0]
    os.kill(frozen, signal.SIGSTOP)
    for first in range(1, 1001, 100):
        assert load(gateway, coupon, first, connections=5).count(0) == 100
    assert gateway.terminate() == 1
    assert f"event=process_killed pid={frozen}" in gateway.log()
    assert not gateway.processes()
