"""Services with host names, and a name server that does not answer: the gateway's loop does not
wait for the look-ups."""

import re
import socket

import pytest
import requests

from relay import Relay, port_of
from stack import wait_until


def named(url, name):
    return re.sub(r"(?<=[@/])127\.0\.0\.1(?=:)", f"{name}.slow.test", url)


@pytest.mark.parametrize("part, setting", [("redis", "REDIS_URL"), ("postgresql", "DATABASE_URL")])
def test_a_name_that_is_not_resolved_holds_up_nobody(
    rough, gateway_make, slow_names, part, setting
):
    settings, silent = slow_names
    coupon = rough.coupon_make(100)
    url = named(rough.env[setting], part)
    assert "slow.test" in url
    gateway = gateway_make(rough, ready=False, **{setting: url}, **settings)
    with gateway.client(timeout=60) as client:
        if part != "redis":  # without PostgreSQL it issues only after its mark in Redis was read
            wait_until(lambda: client.issue(coupon, 60)["status"] in ("accepted", "limit_reached"))
        for user in range(1, 30):
            assert client.call("ping")["code"] == 0
            reply = client.issue(coupon, user)
            assert reply["status"] == ("unavailable" if part == "redis" else "accepted")
        assert (
            requests.get(gateway.http("/readyz"), timeout=60).json()[part]
            == "its host name is being looked up"
        )
        silent.unlink()
        wait_until(gateway.ready)
        assert client.issue(coupon, 50, ack="issued")["status"] == "issued"
        assert client.call("status", coupon=coupon, user="50")["receives"][0]["state"] == "issued"


@pytest.fixture
def silent_host():
    """The port of one that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def two_hosts(url, port):
    """The silent one first."""
    return re.sub(r"127\.0\.0\.1:(\d+)", rf"127.0.0.1:{port},127.0.0.1:\1", url)


def test_a_silent_host_before_that_of_postgresql(rough, gateway_make, worker_make, silent_host):
    url = two_hosts(rough.env["DATABASE_URL"], silent_host)
    assert "," in url
    rough.stop("worker-1")
    worker_make(rough, DATABASE_URL=url)
    gateway = gateway_make(rough, DATABASE_URL=url, COUPON_CALL_TIMEOUT_MS=500)
    coupon = rough.coupon_make(10)
    with gateway.client() as client:
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["status"] == "issued")
    settings = {"DATABASE_URL": two_hosts(rough.env_of("operator")["DATABASE_URL"], silent_host)}
    assert rough.ctl_run("show", coupon, settings=settings).returncode == 0


def test_a_name_that_does_not_exist_is_said(rough, gateway_make):
    url = re.sub(r"127\.0\.0\.1", "nobody.invalid", rough.env["REDIS_URL"])
    gateway = gateway_make(rough, ready=False, REDIS_URL=url)
    wait_until(lambda: gateway.trouble("redis").startswith("nobody.invalid: "))
    assert "event=redis_lost host=nobody.invalid" in gateway.log()


@pytest.mark.parametrize(
    "part, setting",
    [("redis", "REDIS_URL"), ("postgresql", "DATABASE_URL"), ("rabbitmq", "AMQP_URL")],
)
def test_a_name_that_comes_back_as_another_address(
    rough, gateway_make, slow_names, tmp_path, part, setting
):
    settings, silent = slow_names
    address = tmp_path / "address"
    address.write_text("127.0.0.1")
    silent.unlink()
    coupon = rough.coupon_make(100)
    with Relay(port_of(rough.env[setting])) as first:
        url = named(first.url(rough.env[setting]), part)
        gateway = gateway_make(rough, **{setting: url, "SLOW_NAMES_ADDRESS": address}, **settings)
        port = first.port
        with gateway.client() as client:
            assert client.issue(coupon, 1, ack="issued")["status"] == "issued"
        silent.touch()
    wait_until(lambda: gateway.trouble(part) != "ok")  # its machine is gone, and the name with it
    with Relay(
        port_of(rough.env[setting]), port=port, host="127.0.0.2"
    ), gateway.client() as client:
        address.write_text("127.0.0.2")
        silent.unlink()
        wait_until(gateway.ready)
        assert client.issue(coupon, 2, ack="issued")["status"] == "issued"
