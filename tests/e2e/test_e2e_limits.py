"""Every limit, made small: what exceeds it is answered `busy`, or cut off, and other clients are
not affected."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess

import pytest
import requests

from process import gateway_process
from stack import WOULD_WAIT, dial, wait_until


def http_get(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def issues(coupon, users):
    return [{"op": "issue", "coupon": coupon, "user": str(user)} for user in users]


@pytest.fixture
def many_descriptors():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_in_flight_of_one_connection(stack, make_coupon, gateway_make):
    """Beyond the limit a connection is not read from until it has less in flight."""
    coupon = make_coupon(100)
    gateway = gateway_make(stack, COUPON_INFLIGHT_PER_CONNECTION_MAX=5)
    with gateway.client() as client, gateway.client() as other:
        codes = [reply["code"] for reply in client.pipeline(issues(coupon, range(1, 21)))]
        assert codes == [0] * 20
        assert other.issue(coupon, 50)["code"] == 0
    assert gateway.metrics()["couponmq_answers_total{busy}"] == 0


def test_three_thousand_lines_at_once(stack, make_coupon):
    with stack.client() as client:
        replies = client.pipeline(issues(make_coupon(3000), range(1, 3001)))
        assert [reply["code"] for reply in replies] == [0] * 3000


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_half_closed_client_gets_the_replies_of_all_its_lines(
    stack, make_coupon, gateway_make, limit
):
    coupon = make_coupon(100)
    gateway = gateway_make(stack, COUPON_INFLIGHT_PER_CONNECTION_MAX=limit)
    with gateway.client() as client:
        lines = [{"id": n, **issue} for n, issue in enumerate(issues(coupon, range(1, 51)))]
        lines = [*map(json.dumps, lines), '{"id":"last","op":"ping"}', '{"op":"half']
        client.send_bytes("\n".join(lines).encode())
        client.socket.shutdown(socket.SHUT_WR)
        replies = []
        while (line := client.read_line()) is not None:
            replies.append(json.loads(line))
        assert [reply["code"] for reply in replies] == [0] * 51
        assert {reply["id"] for reply in replies} == {"last", *range(50)}


def test_a_paused_connection(rough, gateway_make):
    """It is not closed as idle, holds a bounded amount of what its client sends, delays no other
    client, and goes on when its requests are answered."""
    coupon = rough.coupon_make(1000)
    gateway = gateway_make(
        rough,
        COUPON_INFLIGHT_PER_CONNECTION_MAX=3,
        COUPON_IDLE_TIMEOUT_MS=300,
        COUPON_ISSUED_TIMEOUT_MS=60000,
    )
    lines = [
        b"".join(json.dumps({**issue, "ack": "issued"}).encode() + b"\n" for issue in part)
        for part in (issues(coupon, range(1, 31)), issues(coupon, range(31, 61)))
    ]
    rough.sigstop("worker-1")
    with gateway.client() as paused, gateway.client(timeout=2) as flooding:
        paused.send_bytes(lines[0])
        flooding.send_bytes(lines[1])
        before = gateway.memory()
        with pytest.raises(TimeoutError):
            for _ in range(500):
                flooding.send_bytes(b" " * 100 + b"\n" * 100000)
        assert gateway.memory() - before < 2**20
        with gateway.client() as other:
            assert other.call("ping")["code"] == 0
            assert other.read_line() is None, "an idle connection is closed meanwhile"
        assert gateway.metrics()["couponmq_requests_inflight"] == 6
        rough.sigcont("worker-1")
        assert {paused.read_reply()["status"] for _ in range(30)} == {"issued"}
    wait_until(lambda: gateway.metrics()["couponmq_connections"] == 0)


def test_in_flight_of_all(rough, gateway_make):
    coupon = rough.coupon_make(100)
    gateway = gateway_make(rough, COUPON_INFLIGHT_MAX=5, COUPON_ISSUED_TIMEOUT_MS=60000)
    with gateway.client() as client, gateway.client() as other:
        rough.sigstop("worker-1")
        for user in range(1, 6):
            client.send_line(
                {"id": user, "op": "issue", "coupon": coupon, "user": user, "ack": "issued"}
            )
        busy = wait_until(lambda: (reply := other.call("ping"))["code"] == 20 and reply)
        assert busy["status"] == "busy"
        assert other.issue(coupon, 7)["code"] == 20
        assert (
            requests.post(
                gateway.http("/v1/issue"), json={"coupon": coupon, "user": 8}, timeout=60
            ).status_code
            == 429
        )
        rough.sigcont("worker-1")
        assert {client.read_reply()["status"] for _ in range(5)} == {"issued"}
        assert other.issue(coupon, 7)["code"] == 0


def is_served(client):
    try:
        return client.call("ping")["code"] == 0
    except OSError:
        return False


def connect(gateway, count):
    """The clients, and what closes them; None while the gateway still counts a connection that has
    ended, as of those that asked whether it is ready."""
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(gateway.client()) for _ in range(count)]
        return (clients, opened.pop_all()) if all(map(is_served, clients)) else None


@pytest.mark.plain
def test_connections(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_CONNECTIONS_MAX=3)
    three, connections = wait_until(lambda: connect(gateway, 3))
    with connections:
        with gateway.client() as one_more:
            reply = one_more.read_reply()
            assert (reply["code"], reply["status"]) == (20, "busy") and "connections" in reply[
                "message"
            ]
            assert one_more.read_line() is None
        assert all(client.call("ping")["code"] == 0 for client in three)
        three[0].close()
        _, again = wait_until(lambda: connect(gateway, 1))
        again.close()
    assert gateway.metrics()["couponmq_connections_refused_total"] >= 1


@pytest.mark.plain
def test_connections_of_an_address(stack, gateway_make):
    """Connections of the socket API and HTTP count together; Unix sockets and other addresses have
    room."""
    gateway = gateway_make(
        stack, COUPON_CONNECTIONS_PER_ADDRESS_MAX=4, COUPON_CONNECTIONS_NETWORKS="127.0.0.2"
    )
    listen = gateway.settings["COUPON_LISTEN"]

    def ping_from(address):
        with dial(listen, source=address) as one:
            one.sendall(b'{"op":"ping"}\n')
            return json.loads(one.makefile("rb").readline())

    four, connections = wait_until(lambda: connect(gateway, 4))
    with connections:
        with gateway.client() as fifth:
            reply = fifth.read_reply()
            assert (reply["code"], reply["status"]) == (20, "busy")
            assert reply["message"] == "too many connections of your address"
            assert fifth.read_line() is None
        assert requests.get(gateway.http("/v1/ping"), timeout=60).status_code == 429
        assert ping_from("127.0.0.3")["code"] == 0
        unlimited = [connections.enter_context(dial(listen, source="127.0.0.2")) for _ in range(8)]
        for one in unlimited:
            one.sendall(b'{"op":"ping"}\n')
            assert b'"code":0' in one.makefile("rb").readline()
        four[0].close()
        wait_until(lambda: ping_from("127.0.0.1")["code"] == 0)
        connections.pop_all().close()
    name = "couponmq_connections_refused_address_total"
    assert wait_until(lambda: requests.get(gateway.http("/healthz"), timeout=60).ok)
    assert gateway.metrics()[name] >= 2
    assert gateway.log().count("event=connections_of_address address=127.0.0.1") == 1


@pytest.mark.parametrize("setting", ["COUPON_CONNECTIONS_NETWORKS", "COUPON_PROXY_FROM"])
def test_networks_that_are_none_stop_the_start(stack, setting):
    result = subprocess.run(
        [stack.build_dir / "coupon-gateway", "-n"],
        env={**os.environ, **stack.env, setting: "10.0.0.0/33"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1
    assert f'{setting} is "10.0.0.0/33"' in result.stderr
    assert "allowed are addresses and networks" in result.stderr


@pytest.mark.plain
def test_a_client_that_never_reads_is_cut_off(stack, make_coupon, gateway_make):
    coupon = make_coupon(100)
    gateway = gateway_make(
        stack, COUPON_OUTPUT_LIMIT_BYTES=16384, COUPON_INFLIGHT_PER_CONNECTION_MAX=1000000
    )
    listen = gateway.settings["COUPON_LISTEN"]
    with dial(listen, 10, 4096) as deaf, gateway.client() as good:
        flood = b'{"op":"issue","coupon":"1","user":"bad"}\n' * 1000
        with pytest.raises(ConnectionError):
            for sent in range(1000):
                deaf.sendall(flood)
                if sent % 20 == 0:
                    assert good.issue(coupon, sent + 1)["code"] in (0, 2)
        assert good.call("ping")["code"] == 0
        metrics = gateway.metrics()
        assert (metrics["couponmq_connections_cut_total"], metrics["couponmq_connections"]) == (
            1,
            1,
        )


LINES = {
    "replies": b'{"op":"stats"}\n' * 4000,  # about 10 MB of replies, which nobody reads
    "part of a line": b'{"op":"ping","id":"' + b"x" * 60000,
    "lines": b'{"op":"issue","coupon":"1","user":"1","ack":"issued"}\n' * 4000,
}


@pytest.mark.parametrize("data", LINES.values(), ids=LINES)
@pytest.mark.plain
def test_what_all_connections_hold_is_bounded(stack, gateway_make, data):
    bound = 1048576
    gateway = gateway_make(stack, COUPON_BUFFER_BYTES=bound, COUPON_OUTPUT_LIMIT_BYTES=64 * bound)
    listen = gateway.settings["COUPON_LISTEN"]
    held = []
    with contextlib.ExitStack() as connections, gateway.client() as good:
        deaf = []
        for _ in range(40):
            one = connections.enter_context(dial(listen, receive_bytes=4096))
            one.setblocking(False)
            deaf.append([one, data])
        for _ in range(30):
            for pair in deaf:
                with contextlib.suppress(*WOULD_WAIT, ConnectionError):
                    pair[1] = pair[1][pair[0].send(pair[1]) :]
            assert good.call("ping")["code"] == 0
            metrics = gateway.metrics()
            held.append(metrics["couponmq_connections_held_bytes"])
        assert max(held) <= bound
        if data != LINES["lines"]:
            assert max(held) > bound / 3, "it was tried"
    wait_until(lambda: gateway.metrics()["couponmq_connections_held_bytes"] == 0)


def test_unread_replies_over_http_are_in_the_bound(stack, gateway_make, many_descriptors):
    """Connections that hold most are cut, also for what the socket API holds."""
    bound = 262144
    gateway = gateway_make(stack, COUPON_BUFFER_BYTES=bound)
    listen = gateway.settings["COUPON_HTTP_LISTEN"]
    held = []
    with contextlib.ExitStack() as connections, gateway.client() as good:
        for _ in range(120):
            one = connections.enter_context(dial(listen, receive_bytes=4096))
            one.setblocking(False)
            with contextlib.suppress(*WOULD_WAIT, ConnectionError):
                one.send(http_get("/openapi.json") * 200)
            assert good.call("ping")["code"] == 0
            held.append(gateway.metrics()["couponmq_connections_held_bytes"])
        assert bound / 3 < max(held) <= bound
        wait_until(lambda: gateway.metrics()["couponmq_connections_cut_total"] > 0)
        assert "COUPON_BUFFER_BYTES" in gateway.log()
    wait_until(lambda: gateway.metrics()["couponmq_connections_held_bytes"] == 0)


def test_idle_connections_are_closed_and_busy_ones_are_not(rough, gateway_make):
    coupon = rough.coupon_make(100)
    gateway = gateway_make(rough, COUPON_IDLE_TIMEOUT_MS=5000, COUPON_ISSUED_TIMEOUT_MS=60000)
    with gateway.client() as idle, gateway.client() as waiting:
        rough.sigstop("worker-1")
        waiting.send_line({"op": "issue", "coupon": coupon, "user": 1, "ack": "issued"})
        assert idle.call("ping")["code"] == 0
        assert idle.read_line() is None
        metrics = gateway.metrics()
        assert (metrics["couponmq_connections_idle_total"], metrics["couponmq_connections"]) == (
            1,
            1,
        )
        rough.sigcont("worker-1")
        assert waiting.read_reply()["status"] == "issued"
        assert waiting.call("ping")["code"] == 0, "a late answer does not end the connection"


def test_two_thousand_connections(stack, make_coupon, many_descriptors, gateway_make):
    coupon = make_coupon(1000)
    gateway = gateway_make(stack)
    with contextlib.ExitStack() as connections:
        clients = [connections.enter_context(gateway.client()) for _ in range(2000)]
        for user, client in enumerate(clients, 1):
            client.send_line({"id": user, "op": "issue", "coupon": coupon, "user": user})
        replies = [client.read_reply() for client in clients]
        assert [reply["id"] for reply in replies] == list(range(1, 2001)), "each has its own answer"
        assert [reply["code"] for reply in replies].count(0) == 1000
        assert gateway.metrics()["couponmq_connections"] == 2000
    wait_until(lambda: gateway.metrics()["couponmq_connections"] == 0)


@contextlib.contextmanager
def floods_open(gateway, n, over_http=False):
    """Connections that were accepted; closed at the end."""
    name = "COUPON_HTTP_LISTEN" if over_http else "COUPON_LISTEN"
    listen = gateway.settings[name]
    with contextlib.ExitStack() as connections:
        floods = [connections.enter_context(dial(listen)) for _ in range(n)]
        gauge = "couponmq_http_connections" if over_http else "couponmq_connections"
        wait_until(lambda: gateway.metrics()[gauge] >= n)
        yield floods


FLOODS = {  # a request, how many of them on each connection, how many connections
    "ping": (b'{"op":"ping"}\n', 800, 200),
    "stats": (b'{"op":"stats"}\n', 800, 200),
    "status": (b'{"op":"status","coupon":"1","user":"u"}\n', 800, 200),
    "issue": (b'{"op":"issue","coupon":"1","user":"u"}\n', 800, 200),
    "bad": (b'{"op":"none"}\n', 800, 200),
    "http": (http_get("/v1/ping"), 200, 100),
    "http stats": (http_get("/v1/stats"), 200, 100),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_another_client_is_served_before_the_rest_of_a_flood(
    stack, many_descriptors, gateway_make, flood
):
    """What all floods send is there before it sends one; `stats` is served in its turn."""
    gateway, (request, requests_n, floods_n) = gateway_make(stack), flood
    with gateway.client() as other, floods_open(
        gateway, floods_n, request.startswith(b"GET")
    ) as floods:
        assert other.call("ping")["code"] == 0
        before = gateway.metrics()["couponmq_requests_total"]
        gateway.signal(signal.SIGSTOP)
        for one in floods:
            one.sendall(request * requests_n)
        other.send_bytes(b'{"op":"ping"}\n{"op":"stats"}\n')
        gateway.signal(signal.SIGCONT)
        assert other.read_reply()["code"] == 0
        handled = other.read_reply()["stats"]["requests_total"] - before
        assert handled < floods_n * requests_n / 10


def test_another_client_is_served_before_long_lines(stack, many_descriptors, gateway_make):
    """They are paid for in advance: the first one of each connection, too."""
    gateway, n, begin = gateway_make(stack), 100, b'{"op":"ping","id":"' + b"x" * 60000
    with gateway.client() as other, floods_open(gateway, n) as floods:
        assert other.call("ping")["code"] == 0
        for one in floods:
            one.sendall(begin)
        held = "couponmq_connections_held_bytes"
        wait_until(lambda: gateway.metrics()[held] == n * len(begin))
        before = gateway.metrics()["couponmq_requests_total"]
        gateway.signal(signal.SIGSTOP)
        for one in floods:
            one.sendall(b'"}\n')
        other.send_bytes(b'{"op":"ping"}\n{"op":"stats"}\n')
        gateway.signal(signal.SIGCONT)
        assert other.read_reply()["code"] == 0
        assert other.read_reply()["stats"]["requests_total"] - before < n / 4
        wait_until(lambda: gateway.metrics()["couponmq_requests_total"] == before + n + 2)


@pytest.mark.plain
def test_a_client_is_served_before_all_that_connect_are_accepted(
    stack, many_descriptors, gateway_make
):
    gateway, n = gateway_make(stack), 600
    listen = gateway.settings["COUPON_LISTEN"]
    with gateway.client() as other, contextlib.ExitStack() as connections:
        assert other.call("ping")["code"] == 0
        before = gateway.metrics()["couponmq_connections_total"]
        gateway.signal(signal.SIGSTOP)
        for _ in range(n):
            connections.enter_context(dial(listen))
        other.send_bytes(b'{"op":"ping"}\n{"op":"stats"}\n')
        gateway.signal(signal.SIGCONT)
        assert other.read_reply()["code"] == 0
        accepted = other.read_reply()["stats"]["connections_total"] - before
        assert accepted < n / 2
        wait_until(lambda: gateway.metrics()["couponmq_connections"] == n + 1)
    wait_until(lambda: gateway.metrics()["couponmq_connections"] == 0)


def test_reads_in_redis_do_not_delay_issuing(rough, many_descriptors, gateway_make):
    """Redis gets a few at once: what is issued waits for these only."""
    coupon, n = rough.coupon_make(10), 4000
    gateway = gateway_make(rough, COUPON_CALL_TIMEOUT_MS=60000, COUPON_INFLIGHT_MAX=10**6)
    line = json.dumps({"op": "coupon", "coupon": coupon}).encode() + b"\n"
    with gateway.client() as other, floods_open(gateway, 20) as floods:
        wait_until(lambda: other.call("coupon", coupon=coupon)["code"] == 0)
        before = gateway.metrics()["couponmq_requests_total"]
        rough.sigstop("redis")
        for one in floods:
            one.sendall(line * (n // len(floods)))
        wait_until(lambda: gateway.metrics()["couponmq_requests_inflight"] == n)
        other.send_line({"op": "issue", "coupon": coupon, "user": 1})
        wait_until(lambda: gateway.metrics()["couponmq_requests_inflight"] == n + 1)
        rough.sigcont("redis")
        assert other.read_reply()["code"] == 0
        left = gateway.metrics()["couponmq_requests_inflight"]
        assert left > n / 4
        wait_until(lambda: gateway.metrics()["couponmq_requests_inflight"] == 0)
        assert gateway.metrics()["couponmq_requests_total"] == before + n + 1


@pytest.mark.plain
def test_without_descriptors_accepting_pauses_and_recovers(stack):
    gateway = gateway_process(stack, "gateway-few-descriptors")
    resource.prlimit(gateway.child.pid, resource.RLIMIT_NOFILE, (96, 96))  # it would take fewer
    try:
        with gateway.client() as first, contextlib.ExitStack() as connections:
            clients = [connections.enter_context(gateway.client()) for _ in range(60)]
            for client in clients:
                client.send_line({"op": "ping"})
            pauses = wait_until(lambda: first.call("stats")["stats"]["accept_pauses_total"])
            assert wait_until(
                lambda: first.call("stats")["stats"]["accept_pauses_total"] > pauses
            ), "it retries"
            assert (
                first.call("stats")["stats"]["connections"] < 72
            ), "a quarter is kept for the services"
            for client in clients[:30]:
                client.close()
            assert all(
                client.read_reply()["code"] == 0 for client in clients[30:]
            ), "a waiting connection is accepted"
        assert 0 < gateway.log().count("accept_pause") < 200, "it paused instead of spinning"
        assert gateway.terminate() == 0
    finally:
        gateway.end()


@pytest.mark.plain
def test_connections_follow_the_limit_of_descriptors(stack, gateway_make):
    """300 clients of each kind, and 256 descriptors: monitoring is answered, and so is who has a
    place."""
    gateway = gateway_make(stack, descriptors_max=256)
    with contextlib.ExitStack() as connections:
        clients = [connections.enter_context(gateway.client()) for _ in range(300)]
        for _ in range(300):
            connections.enter_context(dial(gateway.settings["COUPON_HTTP_LISTEN"]))
        for path in ("/healthz", "/readyz", "/metrics"):
            reply = requests.get(gateway.http(path), timeout=20)
            assert reply.status_code == 200, path
        assert clients[0].call("ping")["code"] == 0
        assert clients[299].read_reply()["code"] == 20, "one beyond the limit is answered busy"
    assert gateway.metrics()["couponmq_accept_pauses_total"] == 0


@pytest.mark.plain
def test_a_half_closed_client_that_never_reads_goes_too(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_IDLE_TIMEOUT_MS=500, COUPON_OUTPUT_LIMIT_BYTES=2**30)
    listen = gateway.settings["COUPON_LISTEN"]
    with dial(listen, receive_bytes=4096) as deaf:
        deaf.sendall(b'{"op":"stats"}\n' * 15000)  # their answers are more than the kernel takes
        deaf.shutdown(socket.SHUT_WR)
        wait_until(lambda: gateway.metrics()["couponmq_connections_total"] >= 1)
        wait_until(lambda: gateway.metrics()["couponmq_connections_idle_total"] == 1)
        assert gateway.metrics()["couponmq_connections"] == 0


@pytest.mark.plain
def test_clients_leave_descriptors_for_the_services(rough):
    gateway = gateway_process(rough, "gateway-few-descriptors-http")
    resource.prlimit(gateway.child.pid, resource.RLIMIT_NOFILE, (80, 80))
    try:
        with contextlib.ExitStack() as connections:
            listen = gateway.settings["COUPON_HTTP_LISTEN"]
            for _ in range(200):
                connections.enter_context(dial(listen))
            with gateway.client() as client:
                coupon = rough.coupon_make(1)
                rough.stop("redis")
                rough.start("redis")
                wait_until(lambda: client.issue(coupon, 1)["code"] in (0, 4))
    finally:
        gateway.end()
