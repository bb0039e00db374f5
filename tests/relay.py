"""
A TCP relay between two parts, which injects faults into their link. It runs as a process of its
own, so that it is fast and not delayed by the test, which sends it commands as lines of JSON.

Each connection has two ways: up, from the client to the service, and down. Each way is in one mode:

  pass     bytes are passed on at once
  hold     nothing is read or passed on, nothing is closed; after it everything arrives, late
  hold_ends   the next piece without its last bytes, then hold
  lose     read and thrown away. Ends with a reset, for the stream has a hole
  delay    each piece MS later, and up to JITTER more, in order
  trickle  one byte every MS

and may be ended in one of four ways: cut (both sides get FIN), reset (both sides get RST), reset in
the middle of the next piece, or half-open: one side gets RST, the other never receives anything
again.

A trap is a pattern: a connection whose client sends it is held that way from this piece on.
"""

import base64
import heapq
import itertools
import json
import random
import re
import selectors
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

BUFFER_BYTES = 1 << 18  # read ahead of the other side
PIECE_BYTES = 1 << 16
WAYS = ("up", "down")
END_BYTES = 6  # PostgreSQL ends every answer with six bytes of their own
SAID_BYTES = 1 << 20  # kept of the bytes that servers send
RST_AT_CLOSE = struct.pack("ii", 1, 0)


def port_of(address):
    """The port of host:port, or of a URL with both."""
    return int(re.search(r":(\d+)(?=/|$)", address).group(1))


class Relay:
    """The side of the test. Every call has taken effect when it returns."""

    def __init__(self, target_port, seed=0, port=0, buffer_bytes=0, host="127.0.0.1"):
        """buffer_bytes: of the kernel, for what clients send; 0: its default."""
        numbers = map(str, (target_port, port, seed, buffer_bytes))
        self.child = subprocess.Popen(
            ["/usr/bin/python3", "-B", str(Path(__file__).resolve()), host, *numbers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.port = self._answer()["port"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def url(self, url):
        """The URL, host:port or port with this relay's port."""
        return re.sub(r":\d+(?=/|$)", f":{self.port}", url)

    def mode(self, mode, *ways, ms=0, jitter_ms=0):
        """For open and future connections; both ways when none is given."""
        for way in ways or WAYS:
            self._call(do="mode", mode=mode, way=way, ms=ms, jitter_ms=jitter_ms)

    def hold(self):
        """Data of clients is no longer passed on."""
        self.mode("hold", "up")

    def trap(self, pattern):
        """pattern: text or bytes. Each connection that sends it is held until let_go()."""
        pattern = pattern if isinstance(pattern, bytes) else pattern.encode()
        self._call(do="trap", pattern=base64.b64encode(pattern).decode())

    def trapped_num(self):
        """Connections that the trap has held so far."""
        return self._call(do="count")["trapped"]

    def let_go(self):
        """Ends the trap, and from now on records what servers send."""
        self._call(do="let_go")

    def said(self):
        return base64.b64decode(self._call(do="said")["said"])

    def cut(self):
        """Ends every connection; held data is lost. Later connections pass."""
        self._call(do="cut")

    def heal(self):
        """Everything passes again. Connections that lost data meanwhile, or are half-open, are
        reset."""
        self._call(do="heal")

    def reset(self):
        self._call(do="reset")

    def reset_in_piece(self, way):
        """Once: the next piece that way is cut at a random byte, then both sides get RST."""
        self._call(do="reset_in_piece", way=way)

    def half_open(self, deaf):
        """deaf, "client" or "server", keeps its connections and receives nothing any more; the
        other side gets RST."""
        self._call(do="half_open", deaf=deaf)

    def open_num(self):
        return self._call(do="count")["open"]

    def deaf_num(self):
        """Half-open connections whose end was not yet detected."""
        return self._call(do="count")["deaf"]

    def cut_num(self):
        """Connections that reset_in_piece has ended so far."""
        return self._call(do="count")["cut"]

    def bytes_passed(self):
        return self._call(do="count")["bytes"]

    def close(self):
        self.child.stdin.close()
        self.child.stdout.close()
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def _call(self, **command):
        self.child.stdin.write(json.dumps(command) + "\n")
        self.child.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self.child.stdout.readline()
        assert line, f"the relay ended with {self.child.wait()}"
        return json.loads(line)


# The process


class Way:
    """One direction of a connection: bytes read from source and not yet taken by target."""

    def __init__(self, name, source, target):
        self.name, self.source, self.target = name, source, target
        self.pending = bytearray()
        self.delayed = []  # (due, number, bytes) of pieces that wait for their time
        self.next_byte = 0.0
        self.eof = self.eof_sent = self.holed = False
        self.held = False  # by a trap or without the end of a piece: then nothing is read
        self.kept = b""  # read before it was held

    def hold(self, kept):
        self.held, self.kept = True, kept

    def release(self):
        self.pending += self.kept
        self.held, self.kept = False, b""

    def waiting_bytes(self):
        return len(self.pending) + sum(len(piece) for _, _, piece in self.delayed)


class Connection:
    def __init__(self, client, server):
        self.sides = {"client": client, "server": server}
        self.ways = {"up": Way("up", client, server), "down": Way("down", server, client)}
        self.deaf = None  # the only side left of a half-open one


class Forwarder:
    def __init__(self, host, target_port, port, seed, buffer_bytes):
        self.target = ("127.0.0.1", target_port)
        self.chance = random.Random(seed)
        self.modes = {way: ("pass", 0, 0) for way in WAYS}
        self.armed = set()  # ways whose next piece is cut
        self.connections = {}  # socket: connection
        self.numbers = itertools.count()
        self.cut = self.bytes = 0
        self.selector = selectors.DefaultSelector()
        self.pattern = None  # of the trap
        self.trapped = 0
        self.said = b""
        self.listener = socket.create_server((host, port), backlog=1024)
        if buffer_bytes:  # accepted connections inherit it
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(sys.stdin, selectors.EVENT_READ)
        self.commands = b""

    def run(self):
        self.say(port=self.listener.getsockname()[1])
        while True:
            for key, events in self.selector.select(self.pause()):
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj is sys.stdin:
                    if not self.read_commands():
                        return
                elif key.fileobj in self.connections:
                    self.moved(key.fileobj, events)
            self.turn_clock()

    @staticmethod
    def say(**answer):
        print(json.dumps(answer), flush=True)

    # Commands of the test

    def read_commands(self):
        data = sys.stdin.buffer.raw.read(65536)
        self.commands += data
        *lines, self.commands = self.commands.split(b"\n")
        for line in lines:
            command = json.loads(line)
            name = command.pop("do")
            told = getattr(self, "do_" + name)(**command)
            deaf = sum(connection.deaf is not None for connection in self.all())
            self.say(
                open=len(self.all()),
                deaf=deaf,
                cut=self.cut,
                bytes=self.bytes,
                trapped=self.trapped,
                **(told or {}),
            )
        return bool(data)

    def all(self):
        return list({id(one): one for one in self.connections.values()}.values())

    def do_count(self):
        pass

    def do_mode(self, mode, way, ms, jitter_ms):
        assert mode in ("pass", "hold", "hold_ends", "lose", "delay", "trickle"), mode
        self.modes[way] = (mode, ms / 1000, jitter_ms / 1000)
        for connection in self.all():
            connection.ways[way].release()
            self.flow(connection)

    def do_trap(self, pattern):
        self.pattern = base64.b64decode(pattern)

    def do_let_go(self):
        self.pattern, self.said = None, b""
        for connection in self.all():
            connection.ways["up"].release()
            self.flow(connection)

    def do_said(self):
        return {"said": base64.b64encode(self.said).decode()}

    def do_cut(self):
        self.modes = {way: ("pass", 0, 0) for way in WAYS}
        for connection in self.all():
            self.end(connection, reset=False)

    def do_heal(self):
        self.armed.clear()
        self.modes = {way: ("pass", 0, 0) for way in WAYS}
        for connection in self.all():
            for way in connection.ways.values():
                way.release()
        for connection in self.all():
            if connection.deaf or any(way.holed for way in connection.ways.values()):
                self.end(connection)
            else:
                self.flow(connection)

    def do_reset(self):
        for connection in self.all():
            self.end(connection)

    def do_reset_in_piece(self, way):
        self.armed.add(way)

    def do_half_open(self, deaf):
        for connection in self.all():
            if not connection.deaf:
                connection.deaf = deaf
                self.shut(connection, "server" if deaf == "client" else "client")
                self.watch(connection)

    # Connections

    def accept(self):
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        server = socket.socket()
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(client, server)
        self.connections[client] = self.connections[server] = connection
        server.connect_ex(self.target)
        self.watch(connection)

    def shut(self, connection, side, reset=True):
        one = connection.sides.pop(side)
        del self.connections[one]
        if one in self.selector.get_map():
            self.selector.unregister(one)
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_AT_CLOSE)
        else:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its other end is closed
        one.close()

    def end(self, connection, reset=True):
        for side in list(connection.sides):
            self.shut(connection, side, reset)

    def watch(self, connection):
        for one in connection.sides.values():
            events = 0
            for way in connection.ways.values():
                mode = self.modes[way.name][0]
                reads = way.source is one and not way.eof and not way.held and mode != "hold"
                if connection.deaf or (reads and way.waiting_bytes() < BUFFER_BYTES):
                    events |= selectors.EVENT_READ
                if (
                    way.target is one
                    and way.pending
                    and mode in ("pass", "delay", "hold_ends")
                    and not connection.deaf
                ):
                    events |= selectors.EVENT_WRITE
            registered = one in self.selector.get_map()
            if not events and registered:
                self.selector.unregister(one)
            elif events and not registered:
                self.selector.register(one, events)
            elif events and self.selector.get_key(one).events != events:
                self.selector.modify(one, events)

    # Bytes

    def moved(self, one, events):
        connection = self.connections[one]
        try:
            if events & selectors.EVENT_READ:
                self.read(connection, one)
            self.flow(connection)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.end(connection)

    def read(self, connection, one):
        data = one.recv(PIECE_BYTES)
        if connection.deaf:
            if not data:
                self.end(connection)
            return
        (way,) = (way for way in connection.ways.values() if way.source is one)
        self.bytes += len(data)
        if not data:
            way.eof = True
        elif self.modes[way.name][0] == "lose":
            way.holed = True
        elif way.name in self.armed:
            self.cut_piece(connection, way, data)
        else:
            self.take(way, data)

    def take(self, way, data):
        mode, wait, jitter = self.modes[way.name]
        if way.name == "down" and self.trapped:
            self.said = (self.said + data)[-SAID_BYTES:]
        if way.name == "up" and self.pattern and self.pattern in data:
            self.trapped += 1
            way.hold(data)
            return
        if mode == "hold_ends":
            way.pending += data[:-END_BYTES]
            way.hold(data[-END_BYTES:])
            return
        if mode == "delay" or way.delayed:
            due = time.monotonic() + wait + self.chance.random() * jitter
            if way.delayed:
                due = max(due, max(way.delayed)[0])
            heapq.heappush(way.delayed, (due, next(self.numbers), data))
        else:
            way.pending += data

    def cut_piece(self, connection, way, data):
        self.armed.discard(way.name)
        self.cut += 1
        way.target.send(bytes(way.pending) + data[: self.chance.randrange(len(data))])
        self.end(connection)

    def flow(self, connection):
        """Passes on what is allowed now."""
        if not connection.deaf:
            try:
                for way in connection.ways.values():
                    self.flow_way(way)
            except OSError:
                self.end(connection)
                return
            if all(way.eof_sent for way in connection.ways.values()):
                self.end(connection)
                return
        self.watch(connection)

    def flow_way(self, way):
        mode, wait, _ = self.modes[way.name]
        now = time.monotonic()
        while way.delayed and way.delayed[0][0] <= now:
            way.pending += heapq.heappop(way.delayed)[2]
        if mode in ("hold", "lose"):
            return
        room = len(way.pending) if mode != "trickle" else 1 if now >= way.next_byte else 0
        if way.pending and room:
            try:
                sent = way.target.send(way.pending[:room])
            except (BlockingIOError, InterruptedError):
                return
            del way.pending[:sent]
            way.next_byte = now + wait
        if way.eof and not way.eof_sent and not way.pending and not way.delayed:
            way.eof_sent = True
            way.target.shutdown(socket.SHUT_WR)

    # Time

    def pause(self):
        """The time until the next piece or byte is due; None: no limit."""
        dues = []
        for connection in self.all():
            for way in connection.ways.values():
                if way.delayed:
                    dues.append(way.delayed[0][0])
                if way.pending and self.modes[way.name][0] == "trickle":
                    dues.append(way.next_byte)
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def turn_clock(self):
        for connection in self.all():
            if any(way.delayed or way.pending for way in connection.ways.values()):
                self.flow(connection)


if __name__ == "__main__":
    Forwarder(sys.argv[1], *map(int, sys.argv[2:])).run()
