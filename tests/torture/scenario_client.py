"""Clients that are slow, do not read, do not write, or disconnect in the middle: all others are
served as before, and the resources of these clients are released."""

import contextlib
import json
import resource
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from load import Ask, now
from scenario import scenario
from stack import dial, wait_until

HERE = Path(__file__).resolve().parent
IDLE_CONNECTIONS = 10_000
OWN_DESCRIPTORS = 500


def connect(part, receive_bytes=None):
    return dial(part.listen, 20, receive_bytes)


def reset(one):
    """Ends it by RST, without FIN."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def asks_make(rig, chance, campaign, number, users=10**9):
    """Requests of the history, not sent yet."""
    asks = []
    for _ in range(number):
        ask = Ask(
            "issue",
            campaign.user(chance.randint(1, users)),
            f"key {chance.randint(1, 3)}",
            chance.choice((None, None, "queued", "issued")),
        )
        ask.client, ask.gateway, ask.at = "own", "", now()
        campaign.note(ask)
        asks.append(ask)
    return asks


def lines_of(asks, campaign):
    return "".join(ask.line(number, campaign.coupon) for number, ask in enumerate(asks)).encode()


def answers_take(asks, data):
    """The complete lines of `data` are answers to those requests."""
    for line in data.split(b"\n")[:-1]:
        reply = json.loads(line)
        ask = asks[reply["id"]]
        assert ask.reply is None, f"answered twice: {line}"
        ask.answer(reply)


def read_until_end(one):
    data = b""
    while piece := one.recv(65536):
        data += piece
    return data


def connections_gone(rig, part, before):
    rig.wait(lambda: part.metrics()["couponmq_connections"] <= before + 2, 30)


@scenario()
def clients_write_slowly(rig, chance):
    """Requests that arrive byte by byte on 40 connections; each is answered."""
    campaign = rig.load.campaigns[1]
    with contextlib.ExitStack() as stack:
        writers = []
        for _ in range(40):
            one = stack.enter_context(connect(chance.choice(rig.gateways)))
            asks = asks_make(rig, chance, campaign, 1)
            writers.append((one, asks, lines_of(asks, campaign)))
        for at in range(max(len(line) for _, _, line in writers)):
            for one, _, line in writers:
                one.sendall(line[at : at + 1])
            if at == 40:
                rig.check_served()
        for one, asks, _ in writers:
            answers_take(asks, one.makefile("rb").readline())
            assert asks[0].reply, "answered"


@scenario()
def clients_read_slowly(rig, chance):
    """Answers that are read a few bytes at a time: either all of them arrive, or the connection is
    cut at its limit."""
    campaign = rig.load.campaigns[1]
    with contextlib.ExitStack() as stack:
        readers = []
        for _ in range(10):
            one = stack.enter_context(connect(chance.choice(rig.gateways), receive_bytes=2048))
            asks = asks_make(rig, chance, campaign, 200)
            one.sendall(lines_of(asks, campaign))
            one.shutdown(socket.SHUT_WR)
            readers.append([one, asks, b""])
        rig.check_served()
        while any(reader[0] for reader in readers):
            for reader in readers:
                piece = reader[0].recv(chance.randint(1, 3000)) if reader[0] else b""
                reader[2] += piece
                if not piece:
                    reader[0] = None
        for _, asks, data in readers:
            answers_take(asks, data)
            assert all(ask.reply for ask in asks), "every client that reads gets every answer"


@scenario()
def clients_half_close(rig, chance):
    """Clients that shut down their sending side at once get every answer, then the end."""
    campaign = rig.load.campaigns[0]
    with contextlib.ExitStack() as stack:
        halves = []
        for _ in range(50):
            one = stack.enter_context(connect(chance.choice(rig.gateways)))
            asks = asks_make(rig, chance, campaign, chance.randint(1, 30))
            one.sendall(
                lines_of(asks, campaign) + (b'{"op":"iss' if chance.random() < 0.3 else b"")
            )
            one.shutdown(socket.SHUT_WR)
            halves.append((one, asks))
        for one, asks in halves:
            answers_take(asks, read_until_end(one))
            assert all(ask.reply for ask in asks), "each is answered"


@scenario()
def clients_reset(rig, chance):
    """Connections reset in the middle of a line, or with answers in flight."""
    campaign = rig.load.campaigns[0]
    for part in rig.gateways:
        before = part.metrics()["couponmq_connections"]
        for _ in range(200):
            one = connect(part)
            asks = asks_make(rig, chance, campaign, chance.randint(0, 5))
            data = lines_of(asks, campaign) + lines_of([Ask("issue", 7)], campaign)
            one.sendall(data[: -chance.randint(1, 20)])
            reset(one)
        connections_gone(rig, part, before)
    rig.check_served()


@scenario()
def clients_never_read(rig, chance):
    """Clients that send requests and never read: cut at the limit of their output, whose memory is
    freed."""
    flood = b'{"op":"stats"}\n' * 500
    part = chance.choice(rig.gateways)
    before = part.metrics()
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(connect(part, receive_bytes=4096)) for _ in range(10)]
        for one in deaf:
            one.setblocking(False)

        def all_cut():
            for one in deaf:
                with contextlib.suppress(OSError):
                    one.send(flood)
            return part.metrics()["couponmq_connections_cut_total"] >= before[
                "couponmq_connections_cut_total"
            ] + len(deaf)

        rig.wait(all_cut, 30)
        rig.check_served()
    connections_gone(rig, part, before["couponmq_connections"])


@scenario()
def clients_idle(rig, _chance):
    """10,000 connections that send nothing, or stopped in the middle of a line."""
    part = rig.gateways[0]
    # A gateway raises its limit to the hard one, and accepts clients on three quarters of it.
    number = min(
        IDLE_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[1] * 3 // 4 - OWN_DESCRIPTORS
    )
    if number < IDLE_CONNECTIONS:
        print(f"torture: the limit of descriptors lets only {number} connections stay idle")
    before = part.metrics()["couponmq_connections"]
    idle = [sys.executable, HERE / "idle.py", part.listen, str(number)]
    with subprocess.Popen(idle, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert int(holder.stdout.readline()) == number
            rig.wait(lambda: part.metrics()["couponmq_connections"] >= before + number - 10, 30)
            rig.check_served()
        finally:
            holder.stdin.close()
    connections_gone(rig, part, before)


@scenario()
def clients_of_http_slow(rig, chance):
    """HTTP requests that never end: half a head, half a body; others get their answers over HTTP
    too."""
    part = chance.choice(rig.gateways)
    listen = part.process.settings["COUPON_HTTP_LISTEN"]
    halves = (
        b"GET /v1/pi",
        b"POST /v1/issue HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{",
        b"GET /metrics HTTP/1.1\r\nHo",
        b"",
    )
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            one = stack.enter_context(dial(listen, 10))
            one.sendall(chance.choice(halves))
        begun = time.monotonic()
        assert part.metrics()["couponmq_redis_up"] == 1
        assert time.monotonic() - begun < 2, "others are answered"
        rig.check_served()
    wait_until(part.ready)
