"""HTTP connections, headers and bodies have limits too; what is small and in time is answered."""

import contextlib
import json
import signal
import ssl

import pytest

from stack import dial, wait_until

HEAD = b"POST /v1/ping HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Raw:
    """One HTTP connection, byte by byte."""

    def __init__(self, gateway, timeout=60):
        self.socket = dial(gateway.settings["COUPON_HTTP_LISTEN"], timeout)
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def has_answer(self, within=0):
        """Whether the gateway has said something, or closed the connection. A socket is readable
        also for what is TLS' own."""
        timeout = self.socket.gettimeout()
        self.socket.settimeout(within)
        try:
            self.unread += self.socket.recv(65536)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
            return bool(self.unread)
        except ConnectionError:
            pass
        finally:
            self.socket.settimeout(timeout)
        return True

    def read_all(self):
        """Until the gateway closes the connection."""
        data = self.unread
        with contextlib.suppress(ConnectionError):
            while piece := self.socket.recv(65536):
                data += piece
        return data

    def read_reply(self):
        """(status, body) of one reply with a length."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.socket.recv(65536)
            assert piece, data
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        (length,) = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        while len(body) < length:
            body += self.socket.recv(65536)
        return int(head.split()[1]), body

    def get(self, path):
        self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return self.read_reply()


def http_connections(gateway):
    with Raw(gateway) as raw:
        _, body = raw.get("/metrics")
    (line,) = [
        line for line in body.decode().splitlines() if line.startswith("couponmq_http_connections ")
    ]
    return int(line.split()[1])


@pytest.mark.plain  # under TLS who is one too many gets no reply: there is no handshake
def test_http_connections_count(stack, gateway_make):
    """At COUPON_CONNECTIONS_MAX only health and metrics are served on a few more."""
    gateway = gateway_make(stack, COUPON_CONNECTIONS_MAX=3)
    wait_until(lambda: http_connections(gateway) == 1)  # its own: those of before have ended
    with contextlib.ExitStack() as connections:

        def served():
            """A connection that is counted, once its own of above has ended, too."""
            raw = connections.enter_context(Raw(gateway))
            return raw if raw.get("/v1/ping")[0] == 200 else None

        three = [wait_until(served) for _ in range(3)]
        with gateway.client() as client:
            assert client.read_reply()["status"] == "busy"
        with Raw(gateway) as raw:
            status, body = raw.get("/v1/ping")
            assert status == 429 and json.loads(body)["status"] == "busy"
            assert raw.read_all() == b""
        for path in ("/healthz", "/readyz", "/metrics"):
            with Raw(gateway, timeout=2) as raw:  # an idle one is closed after 5 s
                assert raw.get(path)[0] == 200
                assert raw.read_all() == b"", "it is closed after the reply"
        many = [connections.enter_context(Raw(gateway)) for _ in range(40)]
        with Raw(gateway, timeout=2) as raw:
            assert raw.get("/healthz")[0] == 200, "in the place of one that only waits"
        assert any(b" 429 " in raw.read_all() for raw in many[:24]), "these are few"
        assert three[0].get("/v1/ping")[0] == 200
        for raw in (three[0], *many):
            raw.socket.close()

        def serves():
            with gateway.client() as client:
                client.send_line({"op": "ping"})
                return client.read_reply()["code"] == 0

        wait_until(serves)


def test_closed_http_connections_no_longer_count(stack, gateway_make):
    gateway = gateway_make(stack)
    with contextlib.ExitStack() as connections:
        raws = [connections.enter_context(Raw(gateway)) for _ in range(20)]
        for raw in raws[:10]:
            assert raw.get("/v1/ping")[0] == 200
        for raw in raws[10:]:
            raw.send(HEAD[:10])
        wait_until(lambda: http_connections(gateway) == 21)
    wait_until(lambda: http_connections(gateway) == 1)


def test_a_refused_client_may_send_the_rest(stack, gateway_make):
    """The reply is not lost by a connection that is reset; but there is an end to it."""
    gateway = gateway_make(stack)
    for bytes_each, n, is_ended in ((10_000, 30, False), (100_000, 100, True)):
        with Raw(gateway) as raw:
            raw.send(HEAD + b"Content-Length: 90000000\r\n\r\n")
            status, _ = raw.read_reply()
            assert status == 413
            try:
                for _ in range(n):
                    raw.send(bytes_each * b" ")
                was_ended = False
            except (ConnectionError, ssl.SSLError):
                was_ended = True
            assert was_ended == is_ended
    with Raw(gateway) as idle:
        idle.send(HEAD + b"Content-Length: 90000000\r\n\r\n")
        assert idle.read_reply()[0] == 413
        wait_until(lambda: http_connections(gateway) == 1)


@pytest.mark.parametrize(
    "begin", [HEAD, HEAD + b"Content-Length: 1000\r\n\r\n"], ids=["head", "body"]
)
def test_a_slow_request_is_ended(stack, gateway_make, begin):
    """However often a byte comes."""
    gateway = gateway_make(stack, COUPON_IDLE_TIMEOUT_MS=600)
    with Raw(gateway) as slow:

        def has_ended():
            slow.send(b"x")
            return slow.has_answer(within=0.05)

        slow.send(begin)
        with contextlib.suppress(ConnectionError):
            wait_until(has_ended)
            told = slow.read_all()
            assert told == b"" or b" 408 " in told


def test_a_connection_that_is_used_is_not_slow(stack, gateway_make):
    """The time is for each request, not for the connection."""
    gateway = gateway_make(stack, COUPON_IDLE_TIMEOUT_MS=2000)
    with Raw(gateway) as raw, Raw(gateway) as slow:
        slow.send(HEAD)

        def slow_has_ended():
            assert raw.get("/v1/ping")[0] == 200
            return slow.has_answer()

        wait_until(slow_has_ended)
        assert raw.get("/v1/ping")[0] == 200


def test_a_connection_that_waits_for_its_answer_is_not_slow(rough, gateway_make):
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough, COUPON_IDLE_TIMEOUT_MS=300, COUPON_ISSUED_TIMEOUT_MS=1500)
    rough.sigstop("worker-1")
    body = json.dumps({"coupon": coupon, "user": "1", "ack": "issued"}).encode()
    with Raw(gateway) as raw:
        head = HEAD.replace(b"ping", b"issue") + b"Content-Length: %d\r\n\r\n" % len(body)
        raw.send(head + body)
        assert raw.read_reply()[0] == 504
    rough.sigcont("worker-1")


def test_headers_are_few(stack, gateway_make):
    gateway = gateway_make(stack)
    lines = [b"X-%d: y\r\n" % n for n in range(150)]
    with Raw(gateway) as raw:
        raw.send(HEAD + b"".join(lines[:90]) + b"Content-Length: 2\r\n\r\n{}")
        assert raw.read_reply()[0] == 200
        raw.send(HEAD + b"".join(lines) + b"\r\n")
        assert b" 431 " in raw.read_all()
    with Raw(gateway) as raw:
        raw.send(HEAD + b"".join(lines))
        assert b" 431 " in raw.read_all(), "also before the headers end"
    with Raw(gateway) as raw:
        assert raw.get("/v1/ping")[0] == 200
        raw.send(HEAD + b"".join(lines))
        assert b" 431 " in raw.read_all(), "also those of the next request"


def wait_closed(raws, n):
    """The connections on which the gateway has said something, once they are so many."""

    def answered():
        told = [raw for raw in raws if raw.has_answer()]
        return len(told) >= n and told

    return wait_until(answered)


@pytest.mark.parametrize("n", [8, 14, 24])
def test_bodies_have_a_limit_together(stack, gateway_make, n):
    gateway = gateway_make(stack, COUPON_BUFFER_BYTES=262144)
    with contextlib.ExitStack() as connections:
        raws = [connections.enter_context(Raw(gateway)) for _ in range(n)]
        # All at once: five fit, and those that are refused take none of their room.
        gateway.signal(signal.SIGSTOP)
        for raw in raws:
            raw.send(HEAD + b"Content-Length: 60000\r\n\r\n" + b" " * 50000)
        gateway.signal(signal.SIGCONT)
        refused = wait_closed(raws, n - 5)
        assert all(b" 429 " in raw.read_all() for raw in refused)
        with Raw(gateway) as small:
            assert small.get("/v1/ping")[0] == 200
        kept = [raw for raw in raws if raw not in refused]
        assert len(kept) == 5
        for raw in kept:
            raw.send(b" " * 9998 + b"{}")
            assert raw.read_reply()[0] == 200, "what was there before is answered"
    with Raw(gateway) as raw:
        raw.send(HEAD + b"Content-Length: 60000\r\n\r\n" + b" " * 59998 + b"{}")
        assert raw.read_reply()[0] == 200


def test_bodies_of_closed_connections_do_not_count(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_BUFFER_BYTES=262144)
    for _ in range(8):
        with Raw(gateway) as raw:
            raw.send(HEAD + b"Content-Length: 60000\r\n\r\n" + b" " * 50000)
        wait_until(lambda: http_connections(gateway) == 1)
    with Raw(gateway) as raw:
        raw.send(HEAD + b"Content-Length: 60000\r\n\r\n" + b" " * 59998 + b"{}")
        assert raw.read_reply()[0] == 200


def test_pipelined_requests_wait_outside_the_gateway(rough, gateway_make):
    """While a request is not answered, its connection is not read from."""
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=60000)
    rough.sigstop("worker-1")
    body = json.dumps({"coupon": coupon, "user": "1", "ack": "issued"}).encode()
    with Raw(gateway, timeout=2) as raw:
        head = HEAD.replace(b"ping", b"issue") + b"Content-Length: %d\r\n\r\n" % len(body)
        raw.send(head + body)
        before = gateway.memory()
        with pytest.raises(TimeoutError):
            for _ in range(300):
                raw.send((head + body) * 1000)
        assert gateway.memory() - before < 2**20
    rough.sigcont("worker-1")
