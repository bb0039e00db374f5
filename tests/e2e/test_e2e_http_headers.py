"""What the headers of a request over HTTP change: keys, ids of requests, traces, pages of other
origins. tests/unit/test_http_reply.c has what needs no services."""

import pytest
import requests

from stack import port_free, wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
PAGE = "https://shop.example"


def issue(gateway, coupon, user, headers=(), **members):
    body = {"coupon": coupon, "user": user, **members}
    return requests.post(gateway.http("/v1/issue"), json=body, headers=dict(headers), timeout=60)


def test_a_key_in_the_header_is_the_key(stack, make_coupon):
    """A key is one key in either spelling, and over the socket: one receive."""
    coupon = make_coupon(10, limit=10)
    first = issue(stack, coupon, "1", {"Idempotency-Key": '"order 77"'}, ack="issued").json()
    assert first["status"] == "issued"
    for again in (
        issue(stack, coupon, "1", {"Idempotency-Key": "order 77"}).json(),
        issue(stack, coupon, "1", key="order 77").json(),
        issue(stack, coupon, "1", {"Idempotency-Key": "order 77"}, key="order 77").json(),
    ):
        assert (again["code"], again["receive"]) == (0, first["receive"])
    with stack.client() as client:
        assert client.issue(coupon, "1", key="order 77")["receive"] == first["receive"]
    differs = issue(stack, coupon, "1", {"Idempotency-Key": "order 78"}, key="order 77")
    assert (differs.status_code, differs.json()["status"]) == (400, "bad_request")
    assert "Idempotency-Key" in differs.json()["message"]
    other = issue(stack, coupon, "1", {"Idempotency-Key": "order 78"}).json()
    assert other["receive"] != first["receive"]
    state = requests.get(stack.http(f"/v1/coupon?coupon={coupon}"), timeout=60).json()
    assert state["stock"] == 8


@pytest.fixture
def alone(stack, gateway_make):
    """A gateway without Redis."""
    return gateway_make(stack, ready=False, REDIS_URL=f"redis://127.0.0.1:{port_free()}/0")


def test_what_failed_is_in_the_log_by_its_name(stack, alone):
    headers = {"X-Request-Id": "order-77", "traceparent": TRACEPARENT}
    response = issue(alone, "1", "1", headers)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "3")
    assert response.headers["X-Request-Id"] == "order-77"

    def logged():
        return [line for line in alone.log().splitlines() if "event=http_request" in line]

    (line,) = wait_until(logged)
    for word in ("of=issue", "http=503", "answer=unavailable", "request_id=order-77"):
        assert word in line.split()
    assert {f"trace={TRACE}", f"span={SPAN}"} <= set(line.split())
    key = stack.ctl("key", "create", "--name", "test", "--role", "issue")
    with alone.client() as client:
        wait_until(lambda: client.call("auth", token=key)["code"] == 0)
    issue(alone, "1", "1", {"X-Request-Id": "with-key", "Authorization": f"Bearer {key}"})
    (_, line) = wait_until(lambda: (lines := logged())[1:] and lines)
    assert {"request_id=with-key", f"key={key.split('_')[1]}"} <= set(line.split())
    made = issue(alone, "1", "1", {"traceparent": TRACEPARENT}).headers["X-Request-Id"]
    (*_, line) = wait_until(lambda: (lines := logged())[2:] and lines)
    assert f"request_id={made}" in line.split()
    for other in (
        {},
        {"traceparent": TRACEPARENT.upper()},
        {"X-Request-Id": "a b"},
    ):
        assert issue(alone, "1", "1", other).status_code == 503
    assert issue(alone, "x", "1", headers).status_code == 400
    issue(alone, "1", "1", {"X-Request-Id": "last"})
    lines = wait_until(lambda: "request_id=last" in alone.log() and logged())
    assert len(lines) == 4, "without a name nothing, nor for what the request says"


def test_wrong_codes_say_when_to_try_again(stack):
    url, body = stack.http("/v1/claim"), {"code": "wrong", "user": "retry-after"}

    def held_back():
        response = requests.post(url, json=body, timeout=60)
        return (response,) if response.status_code == 429 else None  # which is false by itself

    (response,) = wait_until(held_back)
    wait_ms = response.json()["retry_after_ms"]
    assert int(response.headers["Retry-After"]) == -(-wait_ms // 1000)


def test_pages_of_listed_origins(stack, gateway_make, make_coupon):
    coupon = make_coupon(10)
    gateway = gateway_make(stack, COUPON_HTTP_ORIGINS=f"http://localhost:3000,{PAGE}")
    preflight = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    response = requests.options(gateway.http("/v1/issue"), headers=preflight, timeout=60)
    assert response.headers["Access-Control-Allow-Origin"] == PAGE
    issued = issue(gateway, coupon, "1", {"Origin": PAGE})
    assert (issued.status_code, issued.headers["Access-Control-Allow-Origin"]) == (200, PAGE)
    refused = issue(gateway, coupon, "1", {"Origin": PAGE})
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (409, PAGE)
    assert issue(gateway, coupon, "2").headers["Vary"] == "Origin"
    for origin in ("http://shop.example", f"{PAGE}:444", f"{PAGE}.evil", "null", "*"):
        for response in (
            issue(gateway, coupon, "3", {"Origin": origin}),
            requests.options(
                gateway.http("/v1/issue"), headers={**preflight, "Origin": origin}, timeout=60
            ),
        ):
            assert response.status_code == 403
            assert not [name for name in response.headers if name.startswith("Access-Control")]
    assert issue(gateway, coupon, "4", {"Host": "evil.example", "Origin": PAGE}).status_code == 421
    state = requests.get(gateway.http(f"/v1/coupon?coupon={coupon}"), timeout=60).json()
    assert state["stock"] == 8, "of users 1 and 2"


def test_without_the_setting_no_reply_is_for_pages(stack):
    for headers in ({}, {"Origin": stack.http("")}):
        for method in ("GET", "OPTIONS"):
            response = requests.request(method, stack.http("/v1/ping"), headers=headers, timeout=60)
            assert response.status_code < 300 and "Vary" not in response.headers
            assert not [name for name in response.headers if name.startswith("Access-Control")]
