"""COUPON_DRAIN_S: a gateway that is told to end says so, and serves on until its time is over, or
it is told again."""

import os
import signal

import pytest
import requests

from stack import dial, port_answers, wait_until

LONG = 600


def readyz(gateway):
    reply = requests.get(gateway.http("/readyz"), timeout=60)
    return reply.status_code, reply.json()["gateway"] if not reply.ok else "ok"


def draining(gateway, times=1):
    """Told to end, and all of its processes know."""
    gateway.signal(signal.SIGTERM)
    wait_until(lambda: gateway.log().count("event=draining") == times)


def test_everything_is_served_while_it_drains(stack, make_coupon, gateway_make):
    coupon = make_coupon(10)
    gateway = gateway_make(stack, COUPON_DRAIN_S=LONG)
    with gateway.client() as before:
        assert before.call("ping")["code"] == 0
        draining(gateway)
        assert readyz(gateway) == (503, "draining")
        assert requests.get(gateway.http("/healthz"), timeout=60).status_code == 200
        with gateway.client() as after:
            for user, client in ((1, before), (2, after)):
                assert client.issue(coupon, user, ack="issued")["status"] == "issued"
        body = {"coupon": coupon, "user": "3", "ack": "issued"}
        reply = requests.post(gateway.http("/v1/issue"), json=body, timeout=60)
        assert reply.json()["status"] == "issued"
        gateway.signal(signal.SIGTERM)
        assert gateway.child.wait(120) == 0
        assert before.read_line() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_it(stack, gateway_make, number):
    gateway = gateway_make(stack, COUPON_DRAIN_S=LONG)
    draining(gateway)
    gateway.signal(number)
    assert gateway.child.wait(120) == 0
    assert f"event=stopping signal={int(number)} " in gateway.log()


@pytest.mark.parametrize("processes", [1, 2])
def test_it_ends_when_its_time_is_over(stack, gateway_make, processes):
    gateway = gateway_make(stack, COUPON_DRAIN_S=1, COUPON_PROCESSES=processes)
    draining(gateway, processes)
    assert gateway.child.wait(120) == 0
    assert gateway.log().count("event=stopping signal=0 ") == processes
    assert "process_killed" not in gateway.log()


def test_without_it_there_is_no_wait(stack, gateway_make):
    gateway = gateway_make(stack)
    assert gateway.terminate() == 0
    assert "event=draining" not in gateway.log()


def test_all_processes_drain(stack, make_coupon, gateway_make):
    """Also when each gets the signal twice: from its parent, and from who tells all processes of a
    service, as systemd does."""
    coupon = make_coupon(100)
    gateway = gateway_make(stack, COUPON_DRAIN_S=LONG, COUPON_PROCESSES=3)
    draining(gateway, 3)
    processes = gateway.processes()
    for pid in processes:
        os.kill(pid, signal.SIGTERM)
    assert {readyz(gateway) for _ in range(30)} == {(503, "draining")}
    for user in range(30):
        with gateway.client() as client:
            assert client.issue(coupon, user)["code"] == 0
    assert gateway.processes() == processes
    gateway.signal(signal.SIGTERM)
    assert gateway.child.wait(120) == 0
    assert gateway.log().count("event=stopping signal=10 ") == 3


def test_a_process_that_dies_meanwhile_is_not_replaced(stack, gateway_make):
    """The new one would not drain."""
    gateway = gateway_make(stack, COUPON_DRAIN_S=LONG, COUPON_PROCESSES=2)
    draining(gateway, 2)
    victim, other = gateway.processes()
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: gateway.processes() == [other])
    assert {readyz(gateway) for _ in range(10)} == {(503, "draining")}
    gateway.signal(signal.SIGTERM)
    assert gateway.child.wait(120) == 0
    assert gateway.log().count("event=ready") == 2


def test_without_their_parent_the_processes_do_not_drain(stack, gateway_make):
    """A gateway that is started again needs the ports."""
    gateway = gateway_make(stack, COUPON_DRAIN_S=LONG, COUPON_PROCESSES=2)
    gateway.kill9()
    wait_until(lambda: gateway.log().count("event=stopped") == 2)
    assert "event=draining" not in gateway.log()


# Connections of HTTP


def get(path="/v1/ping"):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def replies_read(reader):
    """The value of Connection in each reply, until the end."""
    values, value = [], None
    for line in reader:
        if line.startswith(b"HTTP/1.1 "):
            assert line.split()[1] == b"200", line
        elif line.startswith(b"Connection:"):
            value = line.split()[1].decode()
        elif line.startswith(b'{"code":0'):
            values.append(value)
            value = None
    return values


def test_http_tells_its_clients_to_leave(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_DRAIN_S=LONG)
    with dial(gateway.settings["COUPON_HTTP_LISTEN"]) as one, one.makefile("rb") as reader:
        one.sendall(get())
        while not reader.readline().startswith(b'{"code":0'):
            pass
        draining(gateway)
        one.sendall(get())
        assert replies_read(reader) == ["close"], "the connection ends with its next reply"


def test_http_answers_what_was_sent_ahead(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_DRAIN_S=LONG)
    with dial(gateway.settings["COUPON_HTTP_LISTEN"]) as one, one.makefile("rb") as reader:
        draining(gateway)
        one.sendall(get() * 3)
        assert replies_read(reader) == [None, None, "close"]


# The end


def test_at_the_end_connections_are_refused_and_who_waits_for_nothing_is_told(
    rough, rough_coupon, gateway_make
):
    """While another client still waits for its answer."""
    coupon = rough_coupon()
    gateway = gateway_make(rough, COUPON_PROCESSES=2)
    clients = [gateway.client() for _ in range(8)]
    waits, *others = clients
    for client in others:
        assert client.call("ping")["code"] == 0
    rough.sigstop("worker-1")
    issue = {"op": "issue", "coupon": coupon.coupon, "user": "1", "ack": "issued"}
    waits.send_line(issue)
    wait_until(lambda: gateway.metrics()["couponmq_outcomes_waiting"] == 1)
    gateway.signal(signal.SIGTERM)
    for client in others:
        assert client.read_line() is None
        for _ in range(2):
            client.send_line({"op": "ping"})  # which is not reset: replies could be lost
    for name in ("COUPON_LISTEN", "COUPON_HTTP_LISTEN"):
        port = int(gateway.settings[name].rsplit(":", 1)[1])
        wait_until(lambda port=port: not port_answers(port))
    assert gateway.child.poll() is None
    rough.sigcont("worker-1")
    assert waits.read_reply()["status"] == "issued"
    assert waits.read_line() is None
    assert gateway.child.wait(120) == 0
    for client in clients:
        client.close()
