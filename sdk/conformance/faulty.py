"""A gateway that misbehaves on purpose: it stands before a real one, and does to each request what
a scenario says.

What it can do to a request:

  pass            it is passed on, and so is the reply
  cut_before      the connection ends; the request is not passed on
  cut_after       it is passed on; the connection ends without a reply
  cut_in_reply    … after half of the reply
  reset_in_reply  … by RST
  hold            it is passed on; no reply ever comes, as on a half-open connection
  trickle         it is passed on; a head without an end comes, byte by byte
  twice           the reply comes twice
  late            … the second time once the client is idle
  other           it is passed on; the reply of another request comes, which was refused;
                  `without_id`: by its headers alone
  chunked         it is passed on; the reply comes in chunks
  last            it is passed on; the reply is the last one of its connection
  close_idle      it is passed on, and so is the reply; then the connection ends, and what arrives
                  on it is counted
  answer          a reply that the scenario gives; the request is not passed on. `without_id`: as
                  the gateway replies to what it has not parsed, through a proxy that has ids of its
                  own
  instead         it is passed on; the reply that the scenario gives comes
"""

import asyncio
import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass

RST_AT_CLOSE = struct.pack("ii", 1, 0)
TCP_FIN_WAIT2 = 5  # the other side's kernel has the end
STATE_AT = 0  # of struct tcp_info


@dataclass
class Request:
    op: str
    members: dict
    headers: dict
    connection: int
    at: float

    @property
    def key(self):
        return self.members.get("key") or self.headers.get("idempotency-key")


class Message:
    """A request or a reply as it arrived."""

    def __init__(self, head, body):
        self.bytes, self.body = head + body, body
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.first = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}


async def message_read(reader):
    """None: the connection has ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(Message(head, b"").headers.get("content-length", 0))
        return Message(head, await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def reply_bytes(status, headers, body):
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} Said\r\n{head}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Faulty:
    def __init__(self, stack):
        self.stack = stack
        self.faults = []  # of the next requests, in their order; then everything passes
        self.requests = []
        self.held = self.late = 0
        self.connections = 0
        self.idle_ended = []  # sockets whose end must arrive at the client
        self.idle_over = []  # sockets on which something has come that no request has asked for
        self.tasks = set()

    async def start(self):
        tls = None
        if self.stack.ca:  # with the certificate of the real gateway, which is on the same host
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(self.stack.env["COUPON_TLS_CERT"], self.stack.env["COUPON_TLS_KEY"])
        self.server = await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=tls)
        self.port = self.server.sockets[0].getsockname()[1]

    @property
    def url(self):
        return f"{'https' if self.stack.ca else 'http'}://127.0.0.1:{self.port}"

    def clear(self):
        self.faults, self.requests = [], []
        self.idle_ended, self.idle_over = [], []
        self.held = self.late = 0

    def ends_arrived(self):
        """Whether the kernel of the client has the end of each connection that was ended."""
        return all(
            one.fileno() < 0
            or one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[STATE_AT] == TCP_FIN_WAIT2
            for one in self.idle_ended
        )

    def are_over(self):
        """Whether the client has ended each connection on which something came unasked."""
        return all(one.fileno() < 0 for one in self.idle_over)

    async def _client(self, reader, writer):
        self.connections += 1
        number = self.connections
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            while request := await message_read(reader):
                op = request.first[1].rpartition("/v1/")[2].partition("?")[0]
                members = json.loads(request.body or b"{}")
                now = time.monotonic()
                self.requests.append(Request(op, members, request.headers, number, now))
                fault = self.faults.pop(0) if self.faults else "pass"
                fault = {"do": fault} if isinstance(fault, str) else fault
                if not await self._do(fault, request, reader, writer):
                    break
        except ConnectionError:
            pass
        finally:
            self.tasks.discard(task)
            writer.close()

    async def _do(self, fault, request, reader, writer):
        """Whether the connection goes on."""
        kind = fault["do"]
        if kind == "cut_before":
            return False
        if kind in ("answer", "instead"):
            if kind == "instead":
                await self._pass_on(request)
            writer.write(self._given(fault, request))
            await writer.drain()
            return True
        reply = await self._pass_on(request)
        if kind in ("hold", "trickle"):
            self.held += 1
            writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: " if kind == "trickle" else b"")
            while not reader.at_eof() and not await self._ended(reader, kind):
                writer.write(b"x" if kind == "trickle" else b"")
                await writer.drain()
            return False
        if kind in ("cut_in_reply", "reset_in_reply"):
            writer.write(reply.bytes[: len(reply.bytes) // 2])
            await writer.drain()
            if kind == "reset_in_reply":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_AT_CLOSE)
            return False
        if kind == "cut_after":
            return False
        if kind == "other":
            body = {"id": "of-another", "code": 2, "status": "out_of_stock", "message": "sold out"}
            if fault.get("without_id"):
                del body["id"]
            head = {"X-Request-Id": "of-another", "Content-Type": "application/json"}
            writer.write(reply_bytes(409, head, json.dumps(body).encode()))
            await writer.drain()
            return True
        if kind in ("chunked", "last"):
            head = {"Content-Type": "application/json"}
            if kind == "last":
                writer.write(reply_bytes(200, {**head, "Connection": "close"}, reply.body))
                await writer.drain()
                return False
            halves = reply.body[:7], reply.body[7:], b""
            parts = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in halves)
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            for byte in head + parts:  # as slowly as a network can
                writer.write(bytes([byte]))
                await writer.drain()
            return True
        assert kind in ("pass", "twice", "late", "close_idle"), kind
        writer.write(reply.bytes * (2 if kind == "twice" else 1))
        await writer.drain()
        if kind == "twice":
            self.idle_over.append(writer.get_extra_info("socket"))
        if kind == "late":
            self.late_copy = (writer, reply.bytes)
        if kind == "close_idle":
            sock = writer.get_extra_info("socket")
            sock.shutdown(socket.SHUT_WR)  # write_eof(), which there is not over TLS
            self.idle_ended.append(sock)
            self.idle_over.append(sock)
            if await reader.read(1):
                self.late += 1
            return False
        return True

    async def say_late(self):
        """The reply to a request with the fault `late`, again; the client's kernel has it after
        this."""
        writer, copy = self.late_copy
        writer.write(copy)
        await writer.drain()
        self.idle_over.append(writer.get_extra_info("socket"))

    @staticmethod
    async def _ended(reader, kind):
        try:
            await asyncio.wait_for(reader.read(1), 0.02 if kind == "trickle" else None)
        except asyncio.TimeoutError:
            return False
        return True

    async def _pass_on(self, request):
        reader, writer = await asyncio.open_connection(
            self.stack.host, self.stack.port, ssl=tls_of(self.stack.ca)
        )
        try:
            writer.write(request.bytes)
            reply = await message_read(reader)
            assert reply, "the real gateway gave no reply"
            return reply
        finally:
            writer.close()

    @staticmethod
    def _given(fault, request):
        body = fault.get("body", {})
        headers = {"X-Request-Id": "a-proxys", **fault.get("headers", {})}
        if isinstance(body, dict):
            if not fault.get("without_id"):
                body = {"id": json.loads(request.body).get("id"), **body}
            body = json.dumps(body)
        return reply_bytes(fault["status"], headers, body.encode())


def tls_of(ca):
    return ssl.create_default_context(cafile=ca) if ca else None
