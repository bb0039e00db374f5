"""The log on standard error: who does not read it holds up nothing; and the access log."""

import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest
import requests

from process import gateway_process, guarded_process, jwks_write
from stack import Client, dial, port_answers, port_free, wait_until
from test_e2e_auth import SECRET, b64, key_make, token

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LOGGED = {"over", "op", "coupon", "answer", "http", "ms", "key", "address", "request_id", "trace",
          "span"}  # fmt: skip


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.long
def test_a_log_that_nobody_reads_stops_nothing(stack, make_coupon, processes):
    """Standard error is a pipe that is full: requests are answered, the end of the process is not
    held up, and once the pipe is read, the log goes on and tells how much was dropped."""
    coupon = make_coupon(4000)
    address = f"127.0.0.1:{port_free()}"
    settings = {
        "COUPON_LISTEN": address,
        "COUPON_HTTP_LISTEN": "off",
        "COUPON_UNIX_SOCKET": "",
        "COUPON_TRACE": "all",
        "COUPON_PROCESSES": str(processes),
    }
    with subprocess.Popen(
        [str(stack.build_dir / "coupon-gateway")],
        env={**os.environ, **stack.env, **settings},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as gateway:
        try:
            wait_until(lambda: port_answers(int(address.rpartition(":")[2])))
            with Client(address) as client:
                wait_until(lambda: client.issue(coupon, 1)["code"] in (0, 4))
                for user in range(2, 3001):
                    assert client.issue(coupon, user)["code"] == 0
                log = []
                reader = threading.Thread(target=lambda: log.extend(gateway.stderr))
                reader.start()
                wait_until(lambda: any(b"event=log_dropped" in line for line in log))
                assert client.issue(coupon, 1)["code"] == 4
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(30) == 0
            reader.join()
        finally:
            gateway.kill()
    assert all(line.startswith(b"time=") and line.endswith(b"\n") for line in log)
    assert b"event=stopped" in b"".join(log[-100:])


def access_lines(gateway):
    """What the access log tells beside the time, in the order of the answers."""
    lines = (json.loads(line) for line in gateway.log().splitlines() if line.startswith("{"))
    told = [
        {name: value for name, value in line.items() if name in LOGGED}
        for line in lines
        if line["event"] == "request"
    ]
    assert all(line.keys() == LOGGED for line in told)
    return told


@pytest.fixture
def logging(stack, tmp_path):
    jwks = {"keys": [{"kty": "oct", "kid": "one", "k": b64(SECRET)}]}
    gateway = guarded_process(
        stack, "gateway-logging", jwks_write(tmp_path, jwks), COUPON_LOG_FORMAT="json"
    )
    yield gateway
    gateway.end()


def test_each_request_is_logged_once(stack, make_coupon, logging):
    """Over lines: what was asked, by whom at that time, and what came of it; no key, no token."""
    coupon, keys = make_coupon(10), [key_make(stack, "issue,read") for _ in range(2)]
    ids = [key.split("_")[1] for key in keys]
    with logging.client() as client:
        for key in keys:
            wait_until(lambda key=key: client.call("auth", token=key)["code"] == 0)
        mine = token(sub="me")
        begin = len(access_lines(logging))
        client.call("auth", id=1, token=keys[0])
        client.issue(coupon, "u", id='a"b', trace=f"00-{TRACE}-{SPAN}-01")
        client.call("status", coupon=coupon, user="u")
        client.call("coupon", coupon="999999")
        client.call("claim", code="NONE", user="u")
        client.pipeline(
            [
                {"op": "issue", "coupon": coupon, "user": "v", "ack": "issued"},
                {"op": "auth", "token": keys[1]},
            ]
        )
        client.call("stats")
        client.call("auth", token=keys[0] + "!")
        client.call("ping")
        client.call("auth", token=mine)
        client.call("coupons")
        client.send_line("{")
        client.read_reply()
        lines = access_lines(logging)[begin:]
    assert all(line["over"] == "lines" and line["http"] == 0 for line in lines)
    assert all(line["address"] == "127.0.0.1" for line in lines)
    assert all((line["ms"] > 0) == (line["op"] != "") for line in lines)
    of_issue, of_auth = lines[1], lines[0]
    assert (of_issue["request_id"], of_issue["trace"], of_issue["span"]) == ('a\\"b', TRACE, SPAN)
    assert (of_auth["request_id"], of_auth["trace"], of_auth["span"]) == ("1", "", "")
    pipelined, lines[5:7] = lines[5:7], []
    assert sorted((line["op"], line["answer"], line["key"]) for line in pipelined) == [
        ("auth", "ok", ids[1]),
        ("issue", "ok", ids[0]),
    ], "who asked, not whose the connection is when the answer comes"
    assert [(line["op"], line["coupon"], line["answer"], line["key"]) for line in lines] == [
        ("auth", 0, "ok", ids[0]),
        ("issue", int(coupon), "ok", ids[0]),
        ("status", int(coupon), "ok", ids[0]),
        ("coupon", 999999, "not_found", ids[0]),
        ("claim", 0, "code_invalid", ids[0]),
        ("stats", 0, "forbidden", ids[1]),
        ("auth", 0, "unauthorized", ""),
        ("ping", 0, "ok", ""),
        ("auth", 0, "ok", ""),
        ("coupons", 0, "ok", ""),
        ("", 0, "bad_request", ""),
    ]
    for secret in (keys[0].split("_", 2)[2], keys[1].split("_", 2)[2], mine.split(".")[2]):
        assert secret not in logging.log()


def test_each_request_over_http_is_logged_once(stack, make_coupon, logging):
    coupon, key = make_coupon(10), key_make(stack, "issue,read")
    bearer = {"Authorization": f"Bearer {key}"}

    def ask(method, path, headers=None, **body):
        url = logging.http(path)
        reply = requests.request(method, url, headers=headers, json=body or None, timeout=60)
        return reply.status_code, reply.headers["X-Request-Id"]

    wait_until(lambda: ask("GET", "/v1/ping", bearer)[0] == 200)
    begin = len(access_lines(logging))
    traced = {**bearer, "X-Request-Id": "mine", "traceparent": f"00-{TRACE}-{SPAN}-00"}
    told = [
        ask("POST", "/v1/issue", traced, coupon=coupon, user="u"),
        ask("GET", f"/v1/status?coupon={coupon}&user=u", bearer),
        ask("HEAD", "/v1/coupon?coupon=999999", bearer),
        ask("POST", "/v1/issue", bearer, coupon="x", user="u"),
        ask("POST", "/v1/issue", {"Authorization": f"Bearer {key}!"}, coupon=coupon, user="u"),
        ask("GET", "/metrics", bearer),
        ask("PUT", "/v1/ping", bearer),
        ask("GET", f"/v1/{key}", bearer),
    ]
    with dial(logging.settings["COUPON_HTTP_LISTEN"]) as raw:
        raw.sendall(b"GET no HTTP\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
    assert ask("GET", "/healthz")[0] == 200, "a page is not logged"
    *lines, of_raw = access_lines(logging)[begin:]
    assert [(line["http"], line["request_id"]) for line in lines] == told
    assert told[0][1] == "mine"
    assert [line["trace"] for line in lines] == [TRACE] + 7 * [""]
    assert [(line["op"], line["coupon"], line["answer"], line["key"] != "") for line in lines] == [
        ("issue", int(coupon), "ok", True),
        ("status", int(coupon), "ok", True),
        ("coupon", 999999, "not_found", True),
        ("issue", 0, "bad_request", True),
        ("issue", 0, "unauthorized", False),
        ("/metrics", 0, "forbidden", True),
        ("ping", 0, "bad_request", False),
        ("", 0, "bad_request", False),
    ]
    assert (of_raw["op"], of_raw["http"], of_raw["answer"]) == ("", 400, "bad_request")
    assert all(line["over"] == "http" and line["address"] == "127.0.0.1" for line in lines)
    assert key.split("_", 2)[2] not in logging.log()


def test_a_share_of_requests_is_logged(stack):
    for one_of, least, most in ((0, 0, 0), (4, 100, 400)):
        gateway = gateway_process(stack, "gateway-sampling", COUPON_LOG_ACCESS=one_of)
        try:
            with gateway.client() as client:
                client.pipeline([{"op": "ping"} for _ in range(1000)])
            assert least <= gateway.log().count("event=request ") <= most
        finally:
            gateway.end()


def test_the_unix_socket_has_no_address(stack):
    path = stack.run_dir / "logging.sock"
    gateway = gateway_process(stack, "gateway-unix", COUPON_LOG_ACCESS=1, COUPON_UNIX_SOCKET=path)
    try:
        with Client(str(path)) as client:
            assert client.call("ping")["code"] == 0
        assert "address=unix" in gateway.log()
    finally:
        gateway.end()


class Refusing:
    """A service that ends each connection at once, and counts them."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.n = 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.n += 1
            connection.close()

    def url(self, scheme, path):
        return f"{scheme}://nobody:wrong@127.0.0.1:{self.server.getsockname()[1]}/{path}"


@pytest.mark.parametrize("service", ["rabbitmq", "redis"])
def test_a_store_that_refuses_everybody_is_told_once(stack, gateway_make, worker_make, service):
    """Not at each attempt."""
    refusing = Refusing()
    if service == "rabbitmq":
        settings = {"AMQP_URL": refusing.url("amqp", "%2f")}
        processes = [
            gateway_make(stack, ready=False, **settings),
            worker_make(stack, ready=False, **settings),
        ]
    else:
        settings = {"REDIS_URL": refusing.url("redis", "0")}
        processes = [worker_make(stack, ready=False, **settings)]
    wait_until(lambda: refusing.n >= 60)
    log = "".join(process.log() for process in processes)
    refusing.server.close()
    told = re.findall(
        r"event=(?:amqp_unreachable|amqp_lost|keeper_redis_\w+|outbox_failed|uses_failed) .*", log
    )
    assert 0 < len(told) <= refusing.n // 3, told
