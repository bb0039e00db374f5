"""Clients that send far more than they should: how much of it is handled before another client's
request, and what it costs the gateway."""

import contextlib
import json
import signal
import socket

import pytest

from stack import wait_until

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
