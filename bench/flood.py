"""What another client notices of a flood: the latencies of its `ping` and `issue`, and the peak
memory of the gateway, while 2,000 connections send as much as the gateway takes. Of most kinds
nobody reads the answers. The other client is of the same address: it has no share of its own."""

import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time

from rig import QUICK, RUN, at_most, coupon_make, failures, figures, has, stack, users_take

CONNECTIONS = 2000
DURATION_S = 10
CALLS_LEAST = 20
BLOCK_BYTES = 65536
WANTED_MS = 100
BOUND_MIB = 64  # COUPON_SOCKET_BUFFER_BYTES


def line(**members):
    return json.dumps(members).encode() + b"\n"


def http(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Kind:
    """A request by its number; all are different."""

    def __init__(self, make, is_read=False, over_http=False):
        self.make = make
        self.is_read = is_read
        self.over_http = over_http


KINDS = {
    "stats": Kind(lambda coupon, n: line(op="stats")),
    "status": Kind(lambda coupon, n: line(op="status", coupon=coupon, user=f"s{n}")),
    "issue": Kind(lambda coupon, n: line(op="issue", coupon=coupon, user=f"i{n}")),
    "coupon": Kind(lambda coupon, n: line(op="coupon", coupon=coupon)),
    "ping, answers read": Kind(lambda coupon, n: line(op="ping"), is_read=True),
    "wrong codes": Kind(lambda coupon, n: line(op="redeem", code=f"WRONG-{n:015}", user=f"r{n}")),
    "parts of lines": Kind(lambda coupon, n: b'{"op":"ping","id":"' + b"x" * BLOCK_BYTES),
    "HTTP": Kind(lambda coupon, n: http("GET", "/v1/stats"), over_http=True),
    "HTTP /metrics": Kind(lambda coupon, n: http("GET", "/metrics"), over_http=True),
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


class Flood:
    def __init__(self, kind, coupon):
        self.kind = kind
        self.blocks = blocks_make(kind, coupon)
        self.selector = selectors.DefaultSelector()
        name = "COUPON_HTTP_LISTEN" if kind.over_http else "COUPON_LISTEN"
        host, port = os.environ[name].rsplit(":", 1)
        for number in range(CONNECTIONS):
            one = socket.socket()
            if not kind.is_read:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect((host, int(port)))
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
        """Until it is killed. A connection that is cut stays closed."""
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
        signal.pause()


# The other client


class Client:
    def __init__(self):
        host, port = os.environ["COUPON_LISTEN"].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.file = self.socket.makefile("rb")

    def call_ms(self, **members):
        """The time of an answer, which has to be a good one."""
        begin = time.monotonic()
        self.socket.sendall(line(**members))
        code = json.loads(self.file.readline())["code"]
        return (time.monotonic() - begin) * 1000, code == 0


def memory_peak_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        (peak,) = [line.split()[1] for line in file if line.startswith("VmHWM")]
    return int(peak) / 1024


def calls_measure(coupon, seconds):
    """Takes turns with `ping` and `issue`. Returns their times in ms, and how many failed."""
    client, times, failed = Client(), {"ping": [], "issue": []}, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times["ping"]) < CALLS_LEAST:
        user = f"other{users_take(1)}"
        for op, members in (("ping", {}), ("issue", {"coupon": coupon, "user": user})):
            ms, is_good = client.call_ms(op=op, **members)
            times[op].append(ms)
            failed += not is_good
        time.sleep(0.005)
    return times, failed


def kind_measure(name):
    stack("stop", "gateway")
    stack("start", "gateway")  # its peak is that of this kind
    coupon = coupon_make(f"flood {name}")
    flood = subprocess.Popen(
        [sys.executable, __file__, name, coupon], stdout=subprocess.PIPE, text=True
    )
    try:
        if flood.stdout.readline() != "ready\n":
            failures.append(f"flood of {name}: it did not start")
            return
        times, failed = calls_measure(coupon, 1 if QUICK else DURATION_S)
    finally:
        flood.kill()
        flood.wait()
    with open(f"{RUN}/gateway.pid", encoding="utf-8") as file:
        figures[f"flood_{name}_mib"] = memory_peak_mib(int(file.read()))
    if failed:
        failures.append(f"flood of {name}: {failed} requests of another client failed")
    for op, all_ms in times.items():
        figures[f"flood_{name}_{op}_p99_ms"] = sorted(all_ms)[len(all_ms) * 99 // 100]


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
    title = f"another client beside a flood over {CONNECTIONS:,} connections"
    yield f"{title}; {BOUND_MIB} MiB may be input and replies", None, None
    for name in names:
        ping, issue = (figures[f"flood_{name}_{op}_p99_ms"] for op in ("ping", "issue"))
        peak = figures[f"flood_{name}_mib"]
        note = f"{at_most(max(ping, issue), WANTED_MS, ' ms')}; peak {peak:.0f} MiB"
        yield f"  {name}: ping / issue p99", f"{ping:.1f} / {issue:.1f} ms", note


if __name__ == "__main__":
    Flood(KINDS[sys.argv[1]], sys.argv[2]).run()
