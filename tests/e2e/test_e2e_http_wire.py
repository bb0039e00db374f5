"""HTTP byte by byte: versions, bodies, pipelines, errors, and clients that do not read."""

import contextlib
import json
import signal
import socket

import pytest

from stack import dial, wait_until

POST = b"POST /v1/ping HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b"Content-Length: 2\r\n\r\n{}"
GET = b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
OLD = b"GET /v1/ping HTTP/1.0\r\n"


def connect(stack, timeout=60):
    return dial(stack.env["COUPON_HTTP_LISTEN"], timeout)


def reply_read(reader):
    """(status line, headers, body), or None at the end."""
    line = reader.readline().decode().strip()
    if not line:
        return None
    headers = {}
    while header := reader.readline().decode().strip():
        name, _, value = header.partition(": ")
        headers[name] = value
    return line, headers, reader.read(int(headers.get("Content-Length", 0)))


def replies(stack, data):
    """The replies to a client that half-closes the connection."""
    with connect(stack) as connection, connection.makefile("rb") as reader:
        connection.sendall(data)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        found = []
        while reply := reply_read(reader):
            found.append(reply)
        return found


def statuses(stack, data):
    return [int(line.split()[1]) for line, _, _ in replies(stack, data)]


@pytest.mark.parametrize(
    "data, expected",
    [
        (GET + POST + BODY + GET, [200, 200, 200]),
        (b"\r\n" + GET, [200]),
        (POST + b"\r\n" + GET, [200, 200]),
        (GET[:-2] + b"Content-Length: 2\r\n\r\nxx" + GET, [200, 200]),
        (GET[:-2] + b"Connection: close\r\n\r\n" + GET, [200]),
        (GET[:-2] + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + GET, [200, 200]),
        (b"GET http://[::1]:80/v1/ping?a#b HTTP/1.1\r\nHost: x\r\n\r\n" + GET, [400, 200]),
        (b"GET http://localhost HTTP/1.1\r\nHost: x\r\n\r\n" + GET, [404, 200]),
        (b"GET http://x/v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET, [421, 200]),
        (b"GET http://localhost/v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n", [200]),
        (GET.replace(b"GET", b"PUT")[:-2] + BODY + GET, [405, 200]),
        (GET.replace(b"GET /v1/ping", b"OPTIONS *") + GET, [204, 200]),
        (OLD + b"\r\n" + GET, [200]),
        (OLD + b"Connection: keep-alive\r\n\r\n" + GET, [200, 200]),
        (GET.replace(b"v1/ping", b"nothing") + GET, [404, 200]),
        (POST + b"Content-Length: 1\r\n\r\n{" + GET, [400, 200]),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\n\r\n" + GET,
            [200, 200],
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n" + GET,
            [200, 200],
        ),
        (POST + b"Expect: 100-continue\r\n" + BODY, [200]),
        (GET[:20], []),
        (POST + b"Content-Length: 3\r\n\r\n{}", []),
    ],
)
def test_each_request_is_answered_in_order(stack, data, expected):
    assert statuses(stack, data) == expected


@pytest.mark.parametrize(
    "data, status",
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /v1/ping\r\n\r\n", 400),
        (b"GET /v1/ping HTTP/2.0\r\n\r\n", 400),
        (b"GET /v1/pi ng HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/ping HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /v1/ping HTTP/1.1\r\nX: " + b"y" * 17000, 431),
        (b"GET /" + b"x" * 17000, 414),
        (POST + b"Content-Length: x\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (POST + b"Content-Length : 2\r\n\r\n{}", 400),
        (POST + b"Transfer-Encoding: chunked\r\n" + BODY, 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n{}", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501),
        (POST + b"Content-Length: 999999\r\n\r\n{}", 413),
        (POST + b"Expect: 100-continue\r\nContent-Length: 999999\r\n\r\n", 413),
        (POST + b"Expect: 200-ok\r\n" + BODY, 417),
        (GET.replace(b"\r\n", b"\n"), 400),
        (GET[:-2] + b"X: a\r\n b\r\n\r\n", 400),
        (GET[:-2] + b"Host: localhost\r\n\r\n", 400),
        (b"GET /v1/ping HTTP/1.1\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2;a\n{}\r\n0\r\n\r\n", 400),
        (GET.replace(b"GET", b"BREW"), 501),
    ],
)
def test_what_is_refused_gets_json_and_the_connection_is_closed(stack, data, status):
    ((line, headers, body),) = replies(stack, data + GET)
    assert int(line.split()[1]) == status
    assert (headers["Content-Type"], headers["Connection"]) == ("application/json", "close")
    answer = json.loads(body)
    assert answer["status"] == ("too_large" if status == 413 else "bad_request")
    assert answer["message"]


def test_versions_and_connection_headers(stack):
    ((line, headers, _),) = replies(stack, OLD + b"\r\n")
    assert (line, headers["Connection"]) == ("HTTP/1.0 200 OK", "close")
    ((line, headers, _),) = replies(stack, OLD + b"Connection: keep-alive\r\n\r\n")
    assert (line, headers["Connection"]) == ("HTTP/1.0 200 OK", "keep-alive")
    ((line, headers, _),) = replies(stack, GET)
    assert line == "HTTP/1.1 200 OK" and "Connection" not in headers


def test_continue_is_sent_before_the_body(stack):
    with connect(stack) as connection, connection.makefile("rb") as reader:
        connection.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert reply_read(reader) == ("HTTP/1.1 100 Continue", {}, b"")
        connection.sendall(b"{}")
        assert reply_read(reader)[0] == "HTTP/1.1 200 OK"


def test_a_long_pipeline_in_one_piece(stack):
    assert statuses(stack, GET * 2000) == [200] * 2000


METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def slow_reader(gateway, requests):
    """A connection with a small buffer, on which so many replies wait that the kernel cannot take
    them all."""
    with dial(gateway.settings["COUPON_HTTP_LISTEN"], 20, 4096) as connection:
        connection.sendall(METRICS * requests)
        yield connection


def test_replies_that_do_not_fit_into_the_kernel(stack, gateway_make):
    """The next request is not taken before the reply is sent, so that memory is bounded."""
    gateway = gateway_make(stack)
    memory = [gateway.memory(), 0]

    def stays():
        memory.append(gateway.memory())
        return memory[-1] == memory[-2]

    with slow_reader(gateway, 4000) as connection, connection.makefile("rb") as reader:
        wait_until(stays)
        size = 0
        for _ in range(4000):
            line, _, body = reply_read(reader)
            assert line == "HTTP/1.1 200 OK" and body.endswith(b"\n")
            size += len(body)
        assert memory[-1] - memory[0] < size / 2


def test_a_client_that_does_not_read_is_cut(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_IDLE_TIMEOUT_MS=1000)
    with slow_reader(gateway, 2000):
        wait_until(lambda: gateway.metrics()["couponmq_connections_cut_total"] == 1)
        assert gateway.metrics()["couponmq_http_connections"] == 1


def test_a_gateway_that_stops_sends_its_replies(stack, gateway_make):
    gateway = gateway_make(stack)
    with slow_reader(gateway, 2000) as connection, connection.makefile("rb") as reader:
        last = reply_read(reader)
        gateway.signal(signal.SIGTERM)
        wait_until(lambda: "event=stopping" in gateway.log())
        with contextlib.suppress(ConnectionError):
            while reply := reply_read(reader):
                last = reply
        assert len(last[2]) == int(last[1]["Content-Length"]), "the last one is whole"
    wait_until(lambda: "event=stopped" in gateway.log())
