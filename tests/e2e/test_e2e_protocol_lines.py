"""Lines and connections of the socket, as docs/reference/protocol.md defines them."""

import concurrent.futures
import contextlib
import json
import socket

import pytest

from process import metrics_read
from replies import LINE_LIMIT, still_talks
from stack import wait_until

PING = b'{"op":"ping"}\n'


def test_line_ends_and_empty_lines(gateway):
    gateway.send_bytes(b'\n\r\n\n{"op":"ping","id":1}\r\n\r\n\n{"op":"ping","id":2}\n')
    assert [gateway.read_reply()["id"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_of_exactly_the_limit(gateway, end):
    gateway.send_bytes(b'{"op":"ping","id":1' + b" " * (LINE_LIMIT - 20) + b"}" + end)
    assert gateway.read_reply() == {"id": 1, "code": 0, "status": "ok"}


@pytest.mark.parametrize("length", [LINE_LIMIT + 1, LINE_LIMIT + 2, 2 * LINE_LIMIT, 1_000_000])
def test_a_longer_line_is_told_once_and_skipped(gateway, length):
    gateway.send_bytes(
        b'{"op":"ping","id":1' + b" " * (length - 20) + b"}\n" + b'{"op":"ping","id":2}\n'
    )
    reply = gateway.read_reply()
    assert (reply["code"], reply["status"]) == (43, "too_large") and str(LINE_LIMIT) in reply[
        "message"
    ]
    assert gateway.read_reply()["id"] == 2


def test_a_longer_line_is_told_before_its_end(gateway):
    gateway.send_bytes(b"x" * (LINE_LIMIT + 2))
    assert gateway.read_reply()["code"] == 43
    gateway.send_bytes(b"x" * 100_000 + b"\n" + PING)
    assert gateway.read_reply()["code"] == 0


def test_one_byte_at_a_time(gateway, make_coupon):
    line = (
        json.dumps({"id": "slow", "op": "issue", "coupon": make_coupon(1), "user": "1"}).encode()
        + b"\n"
        + PING
    )
    for at in range(len(line)):
        gateway.send_bytes(line[at : at + 1])
    assert {gateway.read_reply().get("id") for _ in range(2)} == {"slow", None}


def test_half_a_line_and_gone(stack, gateway):
    with stack.client() as client:
        client.send_bytes(b'{"op":"pi')
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read_line() is None, "an incomplete line is no request"
    assert still_talks(gateway)


def test_two_thousand_requests_at_once(gateway, make_coupon):
    coupon = make_coupon(1500)
    replies = gateway.pipeline(
        [{"op": "issue", "coupon": coupon, "user": str(user + 1)} for user in range(2000)]
    )
    codes = [reply["code"] for reply in replies]
    assert (codes.count(0), codes.count(2)) == (1500, 500)
    assert len({reply["receive"] for reply in replies if reply["code"] == 0}) == 1500


def test_good_and_bad_lines_mixed_each_get_their_answer(gateway, make_coupon):
    coupon = make_coupon(1000)
    lines = []
    for number in range(0, 900, 3):
        lines += [
            '{"id":%d,"op":"issue","coupon":"%s","user":"%d"}' % (number, coupon, number + 1),
            '{"id":%d,"op":"ping"}' % (number + 1),
            '{"id":%d,"op":"issue","coupon":"0","user":"1"}' % (number + 2),
        ]
    gateway.send_bytes(("\n".join(lines) + "\n").encode())
    replies = [gateway.read_reply() for _ in lines]
    assert sorted(reply["id"] for reply in replies) == list(range(900))
    assert all(reply["code"] == (0, 0, 40)[reply["id"] % 3] for reply in replies)


def test_a_half_closed_connection_still_gets_its_answers(stack, make_coupon):
    coupon = make_coupon(100)
    with stack.client() as client:
        for user in range(1, 101):
            client.send_line(
                {"id": user, "op": "issue", "coupon": coupon, "user": user, "ack": "issued"}
            )
        client.socket.shutdown(socket.SHUT_WR)
        replies = [client.read_reply() for _ in range(100)]
        assert {reply["id"] for reply in replies} == set(range(1, 101))
        assert all(reply["status"] == "issued" for reply in replies)
        assert client.read_line() is None, "and then it is closed"


def test_a_client_that_is_gone_has_its_coupon_all_the_same(stack, gateway, make_coupon):
    coupon = make_coupon(10)
    with stack.client() as client:
        client.send_line({"op": "issue", "coupon": coupon, "user": "1", "ack": "issued"})
    status = wait_until(lambda: gateway.call("status", coupon=coupon, user="1")["receives"])
    assert len(status) == 1
    assert gateway.issue(coupon, 1)["status"] == "limit_reached"


def test_one_users_requests_from_many_connections_at_once(stack, gateway, make_coupon):
    coupon = make_coupon(1000, limit=3)

    def many(_):
        with stack.client() as client:
            return [
                reply["code"]
                for reply in client.pipeline([{"op": "issue", "coupon": coupon, "user": "7"}] * 50)
            ]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = sum(pool.map(many, range(8)), [])
    assert (codes.count(0), codes.count(4)) == (3, 397)
    assert gateway.call("coupon", coupon=coupon)["stock"] == 997


# HTTP that reaches the port of the socket API: a web page can make a browser send it, and chooses
# the body


@pytest.mark.parametrize(
    "first",
    [
        "POST / HTTP/1.1",
        "GET / HTTP/1.1",
        "PUT /x HTTP/1.1",
        "options * HTTP/1.1",
        "PRI * HTTP/2.0",
        "Host: 127.0.0.1",
        "hOST:127.0.0.1",
        "POST /" + "x" * 70000 + " HTTP/1.1",
    ],
    ids=lambda first: first[:12],
)
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_the_body_of_an_http_request_is_not_executed(stack, make_coupon, first, unix):
    coupon = make_coupon(10)
    body = json.dumps({"op": "issue", "coupon": coupon, "user": "1", "ack": "issued"})
    before = metrics_read(stack.http("/metrics"))["couponmq_connections_http_total"]
    with stack.client_unix() if unix else stack.client() as client:
        assert client.issue(coupon, 2)["code"] == 0
        client.send_bytes(f'{{"op":"ping","id":7}}\n{first}\r\n'.encode())
        with contextlib.suppress(ConnectionError):
            client.send_bytes(f"X: y\r\n\r\n{body}\n".encode())
        with contextlib.suppress(ConnectionError):  # a reset may overtake the reply
            assert client.read_line() in (None, '{"id":7,"code":0,"status":"ok"}')
            assert client.read_line() is None
    assert metrics_read(stack.http("/metrics"))["couponmq_connections_http_total"] == before + 1
    with stack.client() as client:
        assert client.call("status", coupon=coupon, user="1")["receives"] == []
        assert client.call("ping")["code"] == 0
    assert "event=connection_http" in stack.log("gateway")


def test_lines_that_only_look_like_http_are_malformed_lines(stack):
    with stack.client() as client:
        for line in ("POSTPONE", "X-Host: a", "Hostname", '"GET /"', "get"):
            client.send_line(line)
            assert client.read_reply()["status"] == "bad_request"
