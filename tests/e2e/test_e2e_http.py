"""The operations over HTTP, as docs/reference/http.md defines them."""

import gzip
import json

import pytest
import requests

from replies import LINE_LIMIT, refused, still_talks
from stack import dial, wait_until


JSON = {"Content-Type": "application/json"}
HEAD = (
    b"POST /v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)


def http_ask(stack, path, body=None, method="POST", headers=JSON):
    return requests.request(method, stack.http(path), data=body, timeout=60, headers=headers)


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
        ("GET", "/v1/claim?code=1&user=1", 405),
        ("POST", "/v1/claimed", 404),
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


def test_http_methods_that_nobody_needs(stack):
    paths = {
        "/v1/issue": "POST, OPTIONS",
        "/v1/ping": "GET, HEAD, POST, OPTIONS",
        "/v1/users/1/coupons": "GET, HEAD, OPTIONS",
        "/healthz": "GET, HEAD, OPTIONS",
    }
    for path, allowed in paths.items():
        for method in ("PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"):
            response = http_ask(stack, path, method=method)
            assert (response.status_code, response.headers["Allow"]) == (405, allowed)
        response = http_ask(stack, path, method="OPTIONS")
        assert (response.status_code, response.headers["Allow"], response.content) == (
            204,
            allowed,
            b"",
        )
        assert http_ask(stack, path, method="BREW").status_code == 501
    assert http_ask(stack, "/nothing", method="PUT").status_code == 404


def test_http_paths_with_a_slash_at_their_end(stack):
    for path in ("/v1/ping", "/v1/users/1/coupons", "/healthz", "/metrics"):
        response = http_ask(stack, path + "/", method="GET")
        assert (
            response.status_code == 404 and f"did you mean {path}, " in response.json()["message"]
        )
    for path in ("/v1/", "/v1/auth/", "/v1/pong/"):
        response = http_ask(stack, path, method="GET")
        assert response.json()["message"] == "no such path"


def test_http_encodings_of_a_body(stack, make_coupon):
    """Nothing that is encoded is read as if it were not, and nothing plain that is labelled."""
    coupon = make_coupon(10)
    body = json.dumps({"coupon": coupon, "user": "1"}).encode()
    for text in (body, gzip.compress(body), b""):
        for coding in ("gzip", "GZIP", "deflate", "br", "identity, gzip", "x"):
            response = http_ask(
                stack, "/v1/issue", text, headers={**JSON, "Content-Encoding": coding}
            )
            assert response.status_code == 415
            assert f'Content-Encoding is "{coding}"' in response.json()["message"]
    for coding in ("identity", "IDENTITY", ""):
        response = http_ask(
            stack,
            "/v1/issue",
            json.dumps({"coupon": coupon, "user": f"u{coding}"}),
            headers={**JSON, "Content-Encoding": coding},
        )
        assert response.status_code == 200, coding
    assert http_ask(stack, "/v1/coupon", json.dumps({"coupon": coupon})).json()["stock"] == 7


def test_a_byte_order_mark_is_passed_over(stack, make_coupon):
    coupon, mark = make_coupon(10), b"\xef\xbb\xbf"
    body = mark + json.dumps({"coupon": coupon, "user": "1"}).encode()
    assert http_ask(stack, "/v1/issue", body).status_code == 200
    assert http_ask(stack, "/v1/issue", mark + body).status_code == 400
    assert http_ask(stack, "/v1/ping", mark).status_code == 400
    with dial(stack.env["COUPON_LISTEN"]) as connection:
        connection.sendall(mark + b'{"op":"ping"}\n')
        assert json.loads(connection.makefile("rb").readline())["code"] == 0


def test_a_request_line_that_is_too_long(stack):
    for path in ("/v1/ping?x=", "/healthz?", "/"):
        for n in (17_000, 100_000):
            response = http_ask(stack, path + n * "a", method="GET")
            assert response.status_code == 414 and "16384" in response.json()["message"]
    response = http_ask(stack, "/v1/ping", headers={**JSON, "X": 17_000 * "a"})
    assert response.status_code == 431


MONITORING = ("/healthz", "/readyz", "/metrics")


def foreign(response, status, header, value):
    """The reply of this status that names the header and its value."""
    answer = response.json()
    assert response.status_code == status and answer["message"].startswith(f'{header} is "{value}"')
    assert answer["status"] == ("forbidden" if status == 403 else "bad_request")
    assert "Access-Control-Allow-Origin" not in response.headers
    return True


@pytest.mark.parametrize(
    "type_",
    ["", "text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "x"]
    + ["multipart/form-data; boundary=x", "text/plain; application/json", "application/jsonx"],
)
def test_http_a_body_that_is_no_json_by_its_type(stack, make_coupon, type_):
    """A page of any site may send these without asking the gateway before."""
    coupon = make_coupon(1)
    body = json.dumps({"coupon": coupon, "user": "1"})
    response = http_ask(stack, "/v1/issue", body, headers={"Content-Type": type_} if type_ else {})
    assert foreign(response, 415, "Content-Type", type_)
    assert http_ask(stack, "/v1/ping", "{}", headers={}).status_code == 415
    assert http_ask(stack, f"/v1/coupon?coupon={coupon}", method="GET").json()["stock"] == 1
    charset = {"Content-Type": "Application/JSON ; charset=utf-8"}
    assert http_ask(stack, "/v1/issue", body, headers=charset).status_code == 200


def test_http_a_host_that_is_not_the_gateways(stack, make_coupon):
    """A page whose own name means the gateway's address by now, which passes for its own server."""
    coupon = make_coupon(1)
    body = json.dumps({"coupon": coupon, "user": "1"})
    for host in ("evil.example", "evil.example:7480", "localhost.evil", "127.1", "", 'a"b', "\xe9"):
        headers = {"Host": host.encode("latin-1"), **JSON}
        shown = host.replace("\xe9", "?")
        assert foreign(http_ask(stack, "/v1/issue", body, headers=headers), 421, "Host", shown)
        for path in (f"/v1/coupon?coupon={coupon}", "/openapi.json", "/"):
            response = http_ask(stack, path, method="GET", headers=headers)
            assert foreign(response, 421, "Host", shown)
        for path in MONITORING:
            assert http_ask(stack, path, method="GET", headers=headers).status_code == 200
    for host in ("127.0.0.1", "10.1.2.3:80", "[::1]:7480", "localhost", "LOCALHOST:1"):
        assert http_ask(stack, "/v1/ping", headers={"Host": host}).status_code == 200
    assert http_ask(stack, f"/v1/coupon?coupon={coupon}", method="GET").json()["stock"] == 1


def test_http_an_origin_that_is_not_the_gateways(stack, make_coupon):
    coupon = make_coupon(1)
    body = json.dumps({"coupon": coupon, "user": "1"})
    own = stack.http("")
    for origin in ("https://evil.example", "null", "http://localhost:1", f"{own}1", "http://"):
        headers = {"Origin": origin, **JSON}
        assert foreign(http_ask(stack, "/v1/issue", body, headers=headers), 403, "Origin", origin)
        for path in (f"/v1/coupon?coupon={coupon}", "/openapi.json", "/", *MONITORING):
            response = http_ask(stack, path, method="GET", headers=headers)
            assert foreign(response, 403, "Origin", origin)
    assert http_ask(stack, f"/v1/coupon?coupon={coupon}", method="GET").json()["stock"] == 1
    headers = {"Origin": own, **JSON}
    assert http_ask(stack, "/v1/issue", body, headers=headers).status_code == 200


def test_http_hosts_that_are_allowed(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_HTTP_HOSTS="shop.example,gateway")

    def status(**headers):
        return http_ask(gateway, "/v1/ping", "{}", headers={**headers, **JSON}).status_code

    assert status(Host="gateway:7480") == status(Host="Shop.Example") == 200
    assert status(Host="example") == status(Host="a.shop.example") == 421
    assert status(Origin="https://shop.example") == 200
    assert status(Origin="https://evil.example") == 403
    assert status(Host="gateway", Origin="http://shop.example:3000") == 200


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
    request = HEAD % (b"ping", 8) + b'{"id":%d}'
    with dial(stack.env["COUPON_HTTP_LISTEN"], 10) as connection, connection.makefile(
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
    for user in range(1, 51):
        body = json.dumps({"coupon": coupon, "user": user, "ack": "issued"}).encode()
        with dial(stack.env["COUPON_HTTP_LISTEN"], 10) as connection:
            connection.sendall(HEAD % (b"issue", len(body)) + body)
    wait_until(lambda: gateway.call("coupon", coupon=coupon)["stock"] == 50)
    assert still_talks(gateway)
    assert requests.get(stack.http("/healthz"), timeout=60).status_code == 200


def test_http_head_has_no_body(stack):
    with dial(stack.env["COUPON_HTTP_LISTEN"]) as connection:
        connection.settimeout(5)
        connection.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = connection.recv(65536)
        assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        rest = b""
        while piece := connection.recv(65536):
            rest += piece
        assert rest.startswith(b"HTTP/1.1 200") and rest.endswith(b'{"status":"ok"}\n')
