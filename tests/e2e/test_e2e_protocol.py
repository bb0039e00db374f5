"""The contract of docs/protocol.md, byte by byte, over the socket and HTTP."""

import concurrent.futures
import contextlib
import json
import socket

import pytest
import requests

from process import metrics_read
from stack import wait_until

LINE_LIMIT = 65536
PING = b'{"op":"ping"}\n'


def ask(gateway, line):
    """One line of bytes (without its end), one reply."""
    gateway.send_bytes(line + b"\n")
    return gateway.read_reply()


def refused(reply, words=""):
    assert (reply["code"], reply["status"]) == (40, "bad_request"), reply
    assert words in reply["message"], reply
    return True


def still_talks(gateway):
    return gateway.call("ping")["code"] == 0


# Ids


@pytest.mark.parametrize(
    "text",
    [
        '"9223372036854775807"',
        '"1234567890123456789"',
        "9007199254740991",
        '"1"',
        "1",
        '"9007199254740993"',
    ],
)
def test_ids_that_are_taken(gateway, make_coupon, text):
    coupon = make_coupon(1)
    reply = ask(
        gateway, b'{"op":"issue","coupon":"%s","user":%s}' % (coupon.encode(), text.encode())
    )
    assert reply["code"] == 0
    assert reply["receive"].split(".")[1] == text.strip('"'), "to the last digit"
    status = ask(
        gateway, b'{"op":"status","coupon":"%s","user":%s}' % (coupon.encode(), text.encode())
    )
    assert status["user"] == text.strip('"')


@pytest.mark.parametrize(
    "text",
    '"042" "+1" "0" 0 "-1" -1 1.0 1e3 "1.0" "1e3" "" " 1" "1\\n" "12345678901234567890"'
    ' "9223372036854775808" "0x1" "１"'
    " null true [1] {} 042 +1 .5 1. NaN Infinity --1".split(" "),
)
@pytest.mark.parametrize("member", ["coupon", "user"])
def test_ids_that_are_refused(gateway, member, text):
    members = {"coupon": '"1"', "user": '"1"', member: text}
    line = f'{{"op":"issue","coupon":{members["coupon"]},"user":{members["user"]}}}'
    refused(ask(gateway, line.encode()))
    assert still_talks(gateway)


@pytest.mark.parametrize(
    "text", ["9007199254740992", "9007199254740993", "9223372036854775807", "1" + "0" * 30]
)
def test_a_number_that_readers_would_change_is_to_be_a_string(gateway, text):
    reply = ask(gateway, b'{"op":"issue","coupon":"1","user":%s}' % text.encode())
    refused(reply, "send it as a string")
    assert reply["message"].startswith("user is ")


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "9007199254740991",
        "-9007199254740991",
        '""',
        '"a b"',
        '"\\"\\\\"',
        '"é\u20ac\U0001f600"',
        '"%s"' % ("x" * 64),
    ],
)
def test_the_requests_id_comes_back_as_it_was(gateway, text):
    line = b'{"id":%s,"op":"ping"}' % text.encode()
    gateway.send_bytes(line + b"\n")
    raw = gateway.read_line()
    assert json.loads(raw)["id"] == json.loads(text)
    assert raw.startswith('{"id":' + text), raw
    missing = ask(gateway, b'{"id":%s,"op":"issue","coupon":"1"}' % text.encode())
    assert refused(missing, "user") and missing["id"] == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740992",
        "-9007199254740992",
        "1.5",
        "null",
        "true",
        "[]",
        "{}",
        '"%s"' % ("x" * 65),
        '"%s"' % ("é" * 33),
    ],
)
def test_a_requests_id_that_is_refused(gateway, text):
    reply = ask(gateway, b'{"id":%s,"op":"ping"}' % text.encode())
    refused(reply, "64 bytes" if text[0] != "1" else "")
    assert "id" not in reply


# Malformed requests


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"{",
        b"}",
        b"{}",
        b"[]",
        b"null",
        b"42",
        b'"ping"',
        b'{"op":"ping"',
        b'{"op":"ping",}',
        b"{'op':'ping'}",
        b'{op:"ping"}',
        b'{"op":"ping"} x',
        b'{"op":"ping"}{"op":"ping"}',
        b'{"op":"ping"}\x00',
        b'{"op":"ping","id":"a\x00b"}',
        b'{"op":"ping","id":"a\\u0000b"}',
        b'{"op":"pi\\u0000ng"}',
        b'{"op\\u0000":"ping"}',
        b"\x00",
        b'{"op":"ping","id":"\xff"}',
        b'{"op":"ping","id":"\xc3"}',
        b'{"op":"ping","id":"\xc0\x80"}',
        b'{"op":"ping","id":"\xed\xa0\x80"}',
        b'{"op":"ping","id":"\xf5\x80\x80\x80"}',
        b'{"op":"ping","id":"\\ud800"}',
        b'{"op":"ping","id":"\\x41"}',
        b'{"op":"ping","id":"a\tb"}',
        b'\xef\xbb\xbf{"op":"ping"}',
        b"\x16\x03\x01\x02\x00\x01",
        b'{"op":"ping","id":1,"id":2}',
        b'{"op":"ping","op":"ping"}',
        b'{"op":"ping","o\\u0070":"stats"}',
        b'{"op":"ping","coupon":"1"}',
        b'{"op":"ping","":1}',
        b'{"op":"ping","Id":1}',
        b'{"OP":"ping"}',
        b'{"op":"issue","coupon":"1","user":"1","slot":1}',
        b'{"op":"coupon","coupon":"1","user":"1"}',
        b'{"op":"ping","id":01}',
        b'{"op":tru}',
    ],
)
def test_lines_that_are_refused(gateway, line):
    refused(ask(gateway, line))
    assert still_talks(gateway)


def test_valid_utf8_is_taken(gateway):
    assert (
        ask(gateway, '{"op":"ping","id":"ünï\u0800\U0010ffff"}'.encode())["id"]
        == "ünï\u0800\U0010ffff"
    )
    assert ask(gateway, b'{"op":"ping","id":"\\ud83d\\ude00"}')["id"] == "\U0001f600"


@pytest.mark.parametrize("depth", [16, 17, 1000, 30000])
def test_deep_nesting(gateway, depth):
    refused(ask(gateway, b'{"op":"ping","x":' + b"[" * depth + b"]" * depth + b"}"))
    assert still_talks(gateway)


def test_many_members(gateway):
    refused(ask(gateway, json.dumps({f"member {n}": n for n in range(2000)}).encode()))
    assert still_talks(gateway)


@pytest.mark.parametrize("op", ["redeem", "auth", "coupons", "", "ISSUE", "issue ", "x" * 10000])
def test_unknown_operations(gateway, op):
    refused(gateway.call(op), "op is ")


@pytest.mark.parametrize("op", ["null", "1", "[]", '["ping"]'])
def test_an_operation_is_a_string(gateway, op):
    refused(ask(gateway, b'{"op":%s}' % op.encode()), "op is ")


@pytest.mark.parametrize(
    "request_, word",
    [
        ({"op": "issue"}, "coupon"),
        ({"op": "issue", "coupon": "1"}, "user"),
        ({"op": "issue", "user": "1"}, "coupon"),
        ({"op": "coupon"}, "coupon"),
        ({"op": "status"}, "receive"),
        ({"op": "status", "coupon": "1"}, "receive"),
        ({"op": "status", "receive": "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0", "user": "1"}, "receive"),
    ],
)
def test_missing_members(gateway, request_, word):
    gateway.send_line(request_)
    refused(gateway.read_reply(), word)


@pytest.mark.parametrize(
    "receive",
    [
        "",
        "1",
        "1.1",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.00",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0.0",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.-1",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.256",
        "1.1.01jd8z6q4t1m0v5k9x3b7c2n8r.0",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8U.0",
        "1.1.81JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        "01.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        "1.0.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        1,
        None,
    ],
)
def test_receives_that_are_refused(gateway, receive):
    refused(gateway.call("status", receive=receive), "receive is ")


# key and ack


@pytest.mark.parametrize(
    "key",
    [
        "k",
        "x" * 64,
        "a b:c",
        "\"quoted\" \\ 'x'",
        "~!@#$%^&*(){}[]<>?/|,.;+-=_`",
        "%s%n%d",
        "1:01:0:k",
    ],
)
def test_keys_that_are_taken(gateway, make_coupon, pg, key):
    coupon = make_coupon(5, limit=5)
    reply = gateway.issue(coupon, 1, key=key, ack="issued")
    assert reply["status"] == "issued"
    assert gateway.issue(coupon, 1, key=key)["receive"] == reply["receive"]
    assert pg.execute("SELECT key FROM user_coupon WHERE coupon_id = %s", (coupon,)).fetchall() == [
        (key,)
    ]
    assert (
        gateway.call("status", coupon=coupon, user=1)["receives"][0]["receive"] == reply["receive"]
    )


@pytest.mark.parametrize(
    "key", ["", "x" * 65, "é", "\u20ac", "a\tb", "a\nb", "\x7f", "\x1f", 1, None, True, ["k"]]
)
def test_keys_that_are_refused(gateway, key):
    refused(gateway.issue(1, 1, key=key), "key is ")


@pytest.mark.parametrize("ack", ["", "Accepted", "issued ", "committed", 1, None, []])
def test_acks_that_are_refused(gateway, ack):
    refused(gateway.issue(1, 1, ack=ack), "must be accepted, queued or issued")


# Lines


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


# HTTP


def http_ask(stack, path, body=None, method="POST", **options):
    return requests.request(method, stack.http(path), data=body, timeout=10, **options)


def test_http_each_operation_by_post(stack, make_coupon):
    coupon = make_coupon(1, limit=2)
    response = http_ask(
        stack, "/v1/issue", json.dumps({"coupon": coupon, "user": "1", "ack": "issued", "id": 5})
    )
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    issued = response.json()
    assert (issued["id"], issued["status"]) == (5, "issued")
    assert (
        http_ask(stack, "/v1/status", json.dumps({"receive": issued["receive"]})).json()["status"]
        == "issued"
    )
    assert http_ask(stack, "/v1/coupon", json.dumps({"coupon": coupon})).json()["stock"] == 0
    assert http_ask(stack, "/v1/ping").json() == {"code": 0, "status": "ok"}
    assert http_ask(stack, "/v1/ping", "{}").json() == {"code": 0, "status": "ok"}
    assert http_ask(stack, "/v1/stats", "{}").json()["stats"]["requests_total"] > 0
    lost = http_ask(stack, "/v1/issue", json.dumps({"coupon": coupon, "user": "2"}))
    assert (lost.status_code, lost.json()["status"]) == (409, "out_of_stock")


def test_http_the_reading_operations_by_get(stack, make_coupon):
    coupon = make_coupon(1)
    receive = http_ask(
        stack, "/v1/issue", json.dumps({"coupon": coupon, "user": "1", "ack": "issued"})
    ).json()["receive"]
    assert (
        http_ask(stack, f"/v1/status?receive={receive}", method="GET").json()["status"] == "issued"
    )
    assert (
        len(http_ask(stack, f"/v1/status?coupon={coupon}&user=1", method="GET").json()["receives"])
        == 1
    )
    assert http_ask(stack, f"/v1/coupon?coupon={coupon}", method="GET").json()["state"] == "open"
    assert http_ask(stack, "/v1/ping", method="GET").status_code == 200
    assert http_ask(stack, "/v1/stats", method="GET").status_code == 200


def test_http_status_codes(stack, make_coupon):
    def status(body):
        return http_ask(stack, "/v1/issue", json.dumps(body)).status_code

    assert status({"coupon": "987654321", "user": "1"}) == 404
    assert status({"coupon": "0", "user": "1"}) == 400
    coupon = make_coupon(10)
    assert [status({"coupon": coupon, "user": "1"}) for _ in range(2)] == [200, 409]
    stack.ctl("pause", coupon)
    assert status({"coupon": coupon, "user": "2"}) == 409
    stack.ctl("close", coupon)
    assert status({"coupon": coupon, "user": "2"}) == 409


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/v1/issue?coupon=1&user=1", 405),
        ("HEAD", "/v1/issue", 405),
        ("POST", "/v1/redeem", 404),
        ("POST", "/v1/", 404),
        ("POST", "/v1/issue/", 404),
        ("GET", "/", 404),
        ("GET", "/v2/ping", 404),
        ("GET", "/v1/coupon?coupon=042", 400),
        ("GET", "/v1/coupon?coupon=%31%00", 400),
        ("GET", "/v1/coupon?coupon=1&coupon=2", 400),
        ("GET", "/v1/coupon?coupon=1&x=2", 400),
        ("GET", "/v1/coupon?coupon=%ff", 400),
        ("GET", "/v1/coupon", 400),
    ],
)
def test_http_wrong_method_path_or_query(stack, method, path, status):
    assert http_ask(stack, path, method=method).status_code == status


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_http_methods_that_nobody_needs(stack, method):
    assert http_ask(stack, "/v1/ping", method=method).status_code in (405, 501)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"coupon=1&user=1",
        b'{"op":"issue","coupon":"1","user":"1"}',
        b"\xff",
        b'{"coupon":"1","user":"1"}x',
    ],
)
def test_http_bodies_that_are_refused(stack, body):
    response = http_ask(stack, "/v1/issue", body)
    assert response.status_code == 400
    refused(response.json())


def test_http_body_of_the_limit_and_beyond(stack):
    assert http_ask(stack, "/v1/ping", b"{" + b" " * (LINE_LIMIT - 2) + b"}").status_code == 200
    assert http_ask(stack, "/v1/ping", b"{" + b" " * (LINE_LIMIT - 1) + b"}").status_code == 413
    assert http_ask(stack, "/v1/ping").status_code == 200


def test_http_keep_alive(stack):
    host, port = stack.env["COUPON_HTTP_LISTEN"].rsplit(":", 1)
    request = b"POST /v1/ping HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n" + b'{"id":%d}'
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile(
        "rb"
    ) as reader:
        for number in (1, 2, 3):
            connection.sendall(request % number)
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            headers = dict(
                iter(
                    lambda: tuple(reader.readline().decode().strip().lower().partition(": ")[::2]),
                    ("", ""),
                )
            )
            assert json.loads(reader.read(int(headers["content-length"])))["id"] == number


def test_http_a_client_that_is_gone_disturbs_nobody(stack, gateway, make_coupon):
    coupon = make_coupon(100)
    host, port = stack.env["COUPON_HTTP_LISTEN"].rsplit(":", 1)
    for user in range(1, 51):
        body = json.dumps({"coupon": coupon, "user": user, "ack": "issued"}).encode()
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(
                b"POST /v1/issue HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )
    wait_until(lambda: gateway.call("coupon", coupon=coupon)["stock"] == 50)
    assert still_talks(gateway)
    assert requests.get(stack.http("/healthz"), timeout=5).status_code == 200


def test_http_head_has_no_body(stack):
    with socket.create_connection(stack.env["COUPON_HTTP_LISTEN"].rsplit(":", 1)) as connection:
        connection.settimeout(5)
        connection.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        head = connection.recv(65536)
        assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        rest = b""
        while piece := connection.recv(65536):
            rest += piece
        assert rest.startswith(b"HTTP/1.1 200") and rest.endswith(b'{"status":"ok"}\n')
