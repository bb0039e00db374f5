"""Behind a balancer: whose a connection is, by the PROXY protocol, for the limits of addresses."""

import contextlib
import json
import socket
import struct

import pytest

from process import gateway_process
from stack import TRUST, has_tls, wait_until

BALANCER = "127.0.0.3"
SETTINGS = {
    "COUPON_PROXY_FROM": BALANCER,
    "COUPON_CONNECTIONS_PER_ADDRESS_MAX": "2",
    "COUPON_RATE_ADDRESS": "10",
    "COUPON_LOG_ACCESS": "1",
}


def line(source):
    return f"PROXY TCP4 {source} 198.51.100.7 40000 7411\r\n".encode()


def binary(source, command=1):
    addresses = socket.inet_aton(source) + socket.inet_aton("198.51.100.7")
    body = addresses + struct.pack("!HH", 40000, 7411)
    head = b"\r\n\r\n\0\r\nQUIT\n" + bytes([0x20 | command, 0x11]) + struct.pack("!H", len(body))
    return head + body


@pytest.fixture
def gateway(stack):
    gateway = gateway_process(stack, "gateway-proxy", **SETTINGS)
    yield gateway
    gateway.end()


def raw(gateway, header, name="COUPON_LISTEN", pieces=1000):
    host, port = gateway.settings[name].rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), 60, source_address=(BALANCER, 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(0, len(header), pieces):
        connection.sendall(header[at : at + pieces])
    return connection


def dial(gateway, header, name="COUPON_LISTEN", pieces=1000):
    connection = raw(gateway, header, name, pieces)
    if has_tls():
        connection = TRUST.context().wrap_socket(connection, server_hostname="127.0.0.1")
    return connection


def ask(connection, op="ping"):
    connection.sendall(json.dumps({"op": op}).encode() + b"\n")
    return json.loads(connection.makefile("rb").readline())["code"]


@pytest.mark.parametrize("header", [line, binary])
@pytest.mark.parametrize("pieces", [1, 1000])
def test_each_has_the_limits_of_its_address(gateway, header, pieces):
    with (
        dial(gateway, header("192.0.2.1"), pieces=pieces) as one,
        dial(gateway, header("192.0.2.1"), pieces=pieces) as two,
        dial(gateway, header("192.0.2.2"), pieces=pieces) as other,
    ):
        codes = [ask(one) for _ in range(30)]
        assert codes[:20] == [0] * 20 and 23 in codes
        assert ask(two) == 23
        assert ask(other) == 0
        refused = "couponmq_connections_refused_address_total"
        before = gateway.metrics()[refused]
        raw(gateway, header("192.0.2.1")).close()
        wait_until(lambda: gateway.metrics()[refused] == before + 1)


@pytest.mark.parametrize(
    "header, address",
    [
        (line("192.0.2.7"), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 7411\r\n", "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:192.0.2.8 2001:db8::1 40000 7411\r\n", "192.0.2.8"),
    ],
)
def test_the_access_log_has_its_address(gateway, header, address):
    with dial(gateway, header) as one:
        assert ask(one) == 0
    assert f" address={address} " in gateway.log()


def test_over_http(gateway):
    with dial(gateway, line("192.0.2.9"), "COUPON_HTTP_LISTEN") as one:
        one.sendall(b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", binary("192.0.2.1", command=0)])
def test_the_balancer_itself(gateway, header):
    """A health check: its address is the balancer's, which is of this machine."""
    with dial(gateway, header) as one:
        assert [ask(one) for _ in range(50)] == [0] * 50


@pytest.mark.parametrize(
    "header",
    [b'{"op":"ping"}\n', b"PROXY TCP4 192.0.2.1\r\n", b"\r\n\r\n\0\r\nQUIT\n\x31" + b"x" * 600],
    ids=["none", "half", "version"],
)
def test_a_connection_without_a_header_is_closed(gateway, header):
    failed = "couponmq_proxy_headers_failed_total"
    before = gateway.metrics()[failed]
    with raw(gateway, header) as one, contextlib.suppress(ConnectionResetError):
        assert one.recv(4096) == b""
    assert gateway.metrics()[failed] == before + 1


def test_others_have_no_header(stack):
    """A client that is no balancer cannot choose its address."""
    gateway = gateway_process(stack, "gateway-proxy", ready=None, **SETTINGS)
    try:
        wait_until(lambda: "event=ready" in gateway.log())
        with gateway.client() as client:
            assert client.call("ping")["code"] == 0
            client.send_bytes(line("192.0.2.1"))
            assert client.read_reply()["code"] == 40
    finally:
        gateway.end()
