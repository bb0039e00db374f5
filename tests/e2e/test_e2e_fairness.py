"""Clients that send far more than they should: how much of it is handled before another client's
request, and what it costs the gateway."""

import contextlib
import json
import signal
import socket
import struct
from pathlib import Path

import pytest

from stack import dial, has_tls, wait_until, with_faults

FLOODERS = 100
LINES_BYTES = 60000


def flood_lines(op, coupon):
    line = {
        "ping": {"op": "ping"},
        "stats": {"op": "stats"},
        "bad": {"op": "issue", "coupon": coupon, "user": ""},
        "status": {"op": "status", "coupon": coupon, "user": 1},
        "issue": {"op": "issue", "coupon": coupon, "user": 1},
    }[op]
    line = json.dumps(line).encode() + b"\n"
    return line * (LINES_BYTES // len(line)), LINES_BYTES // len(line)


@pytest.mark.parametrize("op", ["ping", "bad", "status", "issue", "stats"])
def test_a_flood_does_not_go_before_others(stack, make_coupon, gateway_make, op):
    """All connections have thousands of lines waiting when one that came last sends two requests:
    only a small part of the flood is handled before them."""
    coupon, other_coupon = make_coupon(10), make_coupon(10)
    gateway = gateway_make(stack)
    lines, lines_n = flood_lines(op, coupon)
    with contextlib.ExitStack() as connections:
        flooders = [connections.enter_context(gateway.client()) for _ in range(FLOODERS)]
        other = connections.enter_context(gateway.client(timeout=60))
        assert all(client.call("ping")["code"] == 0 for client in (*flooders, other))
        before = other.call("stats")["stats"]["requests_total"]
        gateway.signal(signal.SIGSTOP)
        for client in flooders:
            client.send_bytes(lines)
        other.send_bytes(
            b'{"id":1,"op":"ping"}\n{"id":2,"op":"issue","coupon":"%s","user":"1"}\n'
            % str(other_coupon).encode()
        )
        gateway.signal(signal.SIGCONT)
        assert {other.read_reply()["status"] for _ in range(2)} == {"ok", "accepted"}
        handled = other.call("stats")["stats"]["requests_total"] - before
        assert handled < FLOODERS * lines_n / 4, f"of {FLOODERS * lines_n} lines"


def unread_bytes(gateway):
    """What the kernel holds of all that was sent to the gateway."""
    port = f":{int(gateway.settings['COUPON_LISTEN'].rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1].endswith(port))


@pytest.mark.plain
def test_what_a_flood_sends_is_not_read_before_another_request(rough, rough_coupon, gateway_make):
    """A connection is read in its turn: a request that came first is under way before the others
    are read, which stand for those that come all the time."""
    part = b'{"op":"ping","id":"' + b"x" * 30000
    coupon = rough_coupon().coupon
    rough.build_dir, before = with_faults(rough, "coupon-gateway").parent, rough.build_dir
    try:
        gateway = gateway_make(rough, COUPON_FAULT="gateway_before_send:1:stop")
    finally:
        rough.build_dir = before
    with contextlib.ExitStack() as connections:
        clients = [connections.enter_context(gateway.client()) for _ in range(FLOODERS + 1)]
        assert all(client.call("ping")["code"] == 0 for client in clients)
        first, *flooders = clients
        gateway.signal(signal.SIGSTOP)
        first.send_line({"op": "issue", "coupon": coupon, "user": "1"})
        for client in flooders:
            client.send_bytes(part)
        gateway.signal(signal.SIGCONT)
        wait_until(lambda: "fault: " in gateway.log())
        left = unread_bytes(gateway)
        gateway.signal(signal.SIGCONT)
        assert first.read_reply()["code"] == 0
        assert left > FLOODERS * len(part) * 2 / 3


def test_every_line_of_a_flood_is_answered(stack, make_coupon, gateway_make):
    """A turn ends in the middle of what a client has sent, perhaps at its end."""
    coupon = make_coupon(10)
    gateway = gateway_make(stack)
    with contextlib.ExitStack() as connections:
        clients = [connections.enter_context(gateway.client(timeout=60)) for _ in range(30)]
        for n, client in enumerate(clients):
            lines = [json.dumps({"id": i, "op": "ping"}) for i in range(3000)]
            lines.append(json.dumps({"id": "last", "op": "issue", "coupon": coupon, "user": n}))
            client.send_bytes("\n".join(lines).encode() + b"\n")
            client.socket.shutdown(socket.SHUT_WR)
        for client in clients:
            ids = [json.loads(line)["id"] for line in iter(client.read_line, None)]
            assert set(ids) == {"last", *range(3000)} and len(ids) == 3001
    wait_until(lambda: gateway.metrics()["couponmq_connections"] == 0)


def sent_ms_ago(connection):
    """tcpi_last_data_sent: of the clock by which the gateway knows how long a request waited."""
    return struct.unpack_from("I", connection.getsockopt(socket.SOL_TCP, socket.TCP_INFO, 48), 44)[
        0
    ]


@pytest.mark.parametrize("over", ["lines", "HTTP"])
def test_requests_of_clients_that_have_gone_are_not_begun(stack, make_coupon, gateway_make, over):
    """They took more than a second to be read; who waits is served, who has only closed its own
    side is told."""
    coupon, gateway = make_coupon(100), gateway_make(stack)

    def dial_one():
        name = "COUPON_LISTEN" if over == "lines" else "COUPON_HTTP_LISTEN"
        return dial(gateway.settings[name])

    def send(one, user):
        body = json.dumps({"coupon": coupon, "user": f"{user}"}).encode()
        if over == "lines":
            one.sendall(b'{"op":"issue",' + body[1:] + b"\n")
        else:
            one.sendall(
                b"POST /v1/issue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )

    with gateway.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
    gone, half, stays = ([dial_one() for _ in range(n)] for n in (20, 1, 5))
    gateway.signal(signal.SIGSTOP)
    for user, one in enumerate((*gone, *half, *stays)):
        send(one, user)
    for one in gone:
        one.close()
    half[0].shutdown(socket.SHUT_WR)
    wait_until(lambda: sent_ms_ago(stays[-1]) > 1100)
    gateway.signal(signal.SIGCONT)
    assert all(b'"status":"accepted"' in one.recv(4096) for one in stays)
    if not has_tls():  # whose library closes both sides, and resets what has unread tickets
        assert b'"status":"busy"' in half[0].recv(4096)
        wait_until(lambda: gateway.metrics()["couponmq_answers_total{busy}"] == 21)
    for one in stays:
        one.close()
    name = "couponmq_connections" if over == "lines" else "couponmq_http_connections"
    wait_until(lambda: gateway.metrics()[name] == (over == "HTTP"))  # its own
    assert json.loads(stack.ctl("show", coupon, "--json"))["redis"]["stock"] == 95
