"""What another client notices of an attack (docs/guides/security.md): the latencies of its `ping`
and `issue`, and the peak memory of the gateway, while 2,000 connections send as much as the gateway
takes, or slowly a part of a request. Of most kinds nobody reads the answers. The other client is of
the same address: it has no share of its own. Where keys are asked for, it has one; where there is
TLS, each of its calls has a connection of its own, from another address."""

import contextlib
import json
import os
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import time

from gate import TOKEN_HEAD, Gateway, Issuer, b64, certificate_make, json_b64, key_make
from rig import QUICK, RUN, at_most, coupon_make, failures, figures, has, stack, users_take

CONNECTIONS = 2000
DURATION_S = 10
CALLS_LEAST = 20
BLOCK_BYTES = 65536
WANTED_MS = 100
BOUND_MIB = 64  # COUPON_BUFFER_BYTES
OTHER_SOURCE = "127.0.0.2"
SHAKERS = 200  # connections of handshakes at a time


def line(**members):
    return json.dumps(members).encode() + b"\n"


def http(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def token_wrong(n):
    """By the form one of the issuer, each with another signature."""
    claims = json_b64({"sub": f"u{n}"})
    return f"{json_b64(TOKEN_HEAD)}.{claims}.{b64(os.urandom(64))}"


def user_colliding(n):
    """One of 2^20 with the same hash, where that is multiplied by 33 for each byte."""
    return "".join(("Ez", "FY")[n >> bit & 1] for bit in range(20))


class Kind:
    """A request by its number; all are different. `slow`: instead a piece a second of one that
    never ends; `gate`: at a gateway that asks for keys; `shakes`: ends after the gateway's part of
    a TLS handshake, and begins anew."""

    def __init__(self, make, is_read=False, over_http=False, slow=False, gate=False, shakes=False):
        self.make = make
        self.is_read = is_read
        self.over_http = over_http
        self.slow = slow
        self.gate = gate or shakes
        self.shakes = shakes


KINDS = {
    "stats": Kind(lambda coupon, n: line(op="stats")),
    "status": Kind(lambda coupon, n: line(op="status", coupon=coupon, user=f"s{n}")),
    "issue": Kind(lambda coupon, n: line(op="issue", coupon=coupon, user=f"i{n}")),
    "coupon": Kind(lambda coupon, n: line(op="coupon", coupon=coupon)),
    "ping, answers read": Kind(lambda coupon, n: line(op="ping"), is_read=True),
    "wrong codes": Kind(lambda coupon, n: line(op="claim", code=f"WRONG-{n:015}", user=f"r{n}")),
    "parts of lines": Kind(lambda coupon, n: b'{"op":"ping","id":"' + b"x" * BLOCK_BYTES),
    "HTTP": Kind(lambda coupon, n: http("GET", "/v1/stats"), over_http=True),
    "HTTP /metrics": Kind(lambda coupon, n: http("GET", "/metrics"), over_http=True),
    "users whose ids collide": Kind(
        lambda coupon, n: line(op="issue", coupon=coupon, user=user_colliding(n))
    ),
    "slow heads": Kind(lambda coupon, n: f"X-{n}: x\r\n".encode(), over_http=True, slow=True),
    "slow bodies": Kind(lambda coupon, n: b" ", over_http=True, slow=True),
    "wrong keys": Kind(
        lambda coupon, n: line(op="auth", token=f"cmq_{n:010}_{'x' * 43}"), gate=True
    ),
    "wrong tokens": Kind(lambda coupon, n: line(op="auth", token=token_wrong(n)), gate=True),
    f"TLS handshakes, {SHAKERS} at a time": Kind(None, shakes=True),
}
SLOW_BEGINS = {
    "slow heads": b"POST /v1/issue HTTP/1.1\r\nHost: localhost\r\n",
    "slow bodies": http("POST", "/v1/issue", b" " * 4096)[:-4096],
}


# The flooding client, a process of its own: bench/flood.py KIND COUPON


def blocks_make(kind, coupon):
    """Some blocks of requests; of parts of lines each has one."""
    blocks, n = [], 0
    for _ in range(8):
        block = b""
        while len(block) < BLOCK_BYTES:
            block += kind.make(coupon, n)
            n += 1
        blocks.append(block)
    return blocks


def address_of(kind):
    host, port = os.environ["COUPON_HTTP_LISTEN" if kind.over_http else "COUPON_LISTEN"].split(":")
    return host, int(port)


class Flood:
    def __init__(self, kind, coupon):
        self.kind = kind
        self.blocks = blocks_make(kind, coupon)
        self.selector = selectors.DefaultSelector()
        for number in range(CONNECTIONS):
            one = socket.socket()
            if not kind.is_read:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(address_of(kind))
            one.setblocking(False)
            events = selectors.EVENT_WRITE | (selectors.EVENT_READ if kind.is_read else 0)
            self.selector.register(one, events, [number, b""])

    def turn(self, one, unsent, events):
        if events & selectors.EVENT_READ and not one.recv(BLOCK_BYTES):
            raise ConnectionError
        if events & selectors.EVENT_WRITE:
            if not unsent[1]:
                unsent[1] = memoryview(self.blocks[unsent[0] % len(self.blocks)])
            unsent[1] = unsent[1][one.send(unsent[1]) :]

    def run(self):
        """Until it is killed, or all connections are cut."""
        print("ready", flush=True)
        while self.selector.get_map():
            for key, events in self.selector.select():
                try:
                    self.turn(key.fileobj, key.data, events)
                except BlockingIOError:
                    pass
                except OSError:
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()


class Slow:
    """Each connection begins a request, and sends a piece of it in each second. One that the
    gateway has closed begins anew."""

    def __init__(self, name, coupon):
        self.name, self.kind, self.coupon = name, KINDS[name], coupon
        self.connections = [self.begun() for _ in range(CONNECTIONS)]

    def begun(self):
        one = socket.create_connection(address_of(self.kind))
        one.sendall(SLOW_BEGINS[self.name])
        return one

    def run(self):
        print("ready", flush=True)
        n = 0
        while True:
            for i, one in enumerate(self.connections):
                n += 1
                try:
                    one.sendall(self.kind.make(self.coupon, n))
                except OSError:
                    one.close()
                    with contextlib.suppress(OSError):  # else in the next turn
                        self.connections[i] = self.begun()
                time.sleep(1 / CONNECTIONS)


class Shakes:
    """Handshakes that cost the gateway a signature and the client next to nothing: the same first
    message for all, and nothing after the gateway's."""

    def __init__(self, kind):
        self.kind = kind
        sent = ssl.MemoryBIO()
        context = ssl.create_default_context()
        try:
            context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
        except ssl.SSLWantReadError:
            self.hello = sent.read()
        self.selector = selectors.DefaultSelector()

    def begin(self):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(address_of(self.kind))
        self.selector.register(one, selectors.EVENT_WRITE)

    def turn(self, one, events):
        try:
            if events & selectors.EVENT_WRITE:
                one.send(self.hello)
                self.selector.modify(one, selectors.EVENT_READ)
                return
            one.recv(BLOCK_BYTES)
        except OSError:
            pass
        self.selector.unregister(one)
        one.close()
        self.begin()

    def run(self):
        for _ in range(SHAKERS):
            self.begin()
        print("ready", flush=True)
        while True:
            for key, events in self.selector.select():
                self.turn(key.fileobj, events)


def attack_run(name, coupon):
    kind = KINDS[name]
    attack = Slow(name, coupon) if kind.slow else Shakes(kind) if kind.shakes else None
    (attack or Flood(kind, coupon)).run()


# The other client


class Client:
    """A client of the stack's gateway, or of one that asks for a key."""

    def __init__(self, gate=None, key=None):
        if gate and gate.tls:
            self.socket = gate.dial(OTHER_SOURCE)
        else:
            host, port = (gate.lines if gate else os.environ["COUPON_LISTEN"]).rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.file = self.socket.makefile("rb")
        if key:
            self.call(op="auth", token=key)

    def close(self):
        self.file.close()
        self.socket.close()

    def call(self, **members):
        """Whether the answer is a good one."""
        self.socket.sendall(line(**members))
        return json.loads(self.file.readline())["code"] == 0


def memory_peak_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        (peak,) = [line.split()[1] for line in file if line.startswith("VmHWM")]
    return int(peak) / 1024


def calls_measure(coupon, seconds, gate=None, key=None):
    """Takes turns with `ping` and `issue`. Returns their times in ms, and how many failed."""
    client, times, failed = Client(gate, key), {"ping": [], "issue": []}, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times["ping"]) < CALLS_LEAST:
        user = f"other{users_take(1)}"
        for op, members in (("ping", {}), ("issue", {"coupon": coupon, "user": user})):
            begin = time.monotonic()
            if gate and gate.tls:
                client.close()
                client = Client(gate, key)
            is_good = client.call(op=op, **members)
            times[op].append((time.monotonic() - begin) * 1000)
            failed += not is_good
        time.sleep(0.005)
    return times, failed


def kind_run(name, coupon, pid, env=(), **honest):
    """The other client beside this attack on the gateway of that pid."""
    attack = subprocess.Popen(
        [sys.executable, __file__, name, coupon],
        env={**os.environ, **dict(env)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if attack.stdout.readline() != "ready\n":
            failures.append(f"flood of {name}: it did not start")
            return
        times, failed = calls_measure(coupon, 1 if QUICK else DURATION_S, **honest)
        if attack.poll() is not None:
            failures.append(f"flood of {name}: the attack has ended")
    finally:
        attack.kill()
        attack.wait()
    figures[f"flood_{name}_mib"] = memory_peak_mib(pid)
    if failed:
        failures.append(f"flood of {name}: {failed} requests of another client failed")
    for op, all_ms in times.items():
        figures[f"flood_{name}_{op}_p99_ms"] = sorted(all_ms)[len(all_ms) * 99 // 100]


def kind_measure(name):
    """At a gateway that has just started: its peak is that of this kind."""
    coupon = coupon_make(f"flood {name}")
    if KINDS[name].gate:
        stranger = {"COUPON_CONNECTIONS_NETWORKS": "192.0.2.0/24"}  # as nobody is here
        tls = {**certificate_make(), **stranger} if KINDS[name].shakes else {}
        with Gateway("flood", **Issuer().settings, **tls) as gate:
            env = {"COUPON_LISTEN": gate.lines, "COUPON_HTTP_LISTEN": gate.http}
            key = key_make(gate)
            kind_run(name, coupon, gate.process.pid, env, gate=gate, key=key)
        return
    stack("stop", "gateway")
    stack("start", "gateway")
    with open(f"{RUN}/gateway.pid", encoding="utf-8") as file:
        pid = int(file.read())
    kind_run(name, coupon, pid)


def flood_measure():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    for name in KINDS:
        kind_measure(name)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


MEASURES = (flood_measure,)


def rows():
    names = [name for name in KINDS if has(f"flood_{name}_ping_p99_ms")]
    if not names:
        return
    title = f"another client beside an attack over {CONNECTIONS:,} connections"
    yield f"{title}; {BOUND_MIB} MiB may be input and replies", None, None
    for name in names:
        ping, issue = (figures[f"flood_{name}_{op}_p99_ms"] for op in ("ping", "issue"))
        peak = figures[f"flood_{name}_mib"]
        note = f"{at_most(max(ping, issue), WANTED_MS, ' ms')}; peak {peak:.0f} MiB"
        yield f"  {name}: ping / issue p99", f"{ping:.1f} / {issue:.1f} ms", note


if __name__ == "__main__":
    attack_run(*sys.argv[1:])
