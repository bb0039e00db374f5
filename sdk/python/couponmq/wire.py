"""HTTP/1.1 without I/O: a request as bytes, and the reply from the bytes that have arrived."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from couponmq import values

_REPLY_MAX = 1 << 22

# The answers that say nothing about a coupon or a receive. The gateway may give those of _UNPARSED
# before it has read the id of the request.
_NAMES = {20: "busy", 21: "unavailable", 22: "unknown", 23: "rate_limited", 40: "bad_request"}
_NAMES |= {41: "unauthorized", 42: "forbidden", 43: "too_large", 44: "key_reused"}
BUSY, UNKNOWN, RATE_LIMITED, _KEY_REUSED = 20, 22, 23, 44
_UNPARSED = _NAMES.keys() - {UNKNOWN, _KEY_REUSED}


class Broken(OSError):
    """The bytes are no reply, or that of another request."""


@dataclass(frozen=True)
class Gateway:
    """Where requests go."""

    host: str
    port: int
    tls: bool
    path: str  # before /v1/
    headers: str  # that each request has

    @classmethod
    def of(cls, url: str, token: str | None) -> Gateway:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError(f"{url!r} is no URL of a gateway, such as http://127.0.0.1:7480")
        headers = f"Host: {parts.netloc.rpartition('@')[2]}\r\nContent-Type: application/json\r\n"
        if token is not None:
            if not (token.isascii() and token.isprintable() and token.strip()):
                raise ValueError("the token is not printable ASCII")
            headers += f"Authorization: Bearer {token}\r\n"
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname, port, tls, parts.path.rstrip("/"), headers)

    def request(self, op: str, members: dict[str, Any]) -> bytes:
        body = json.dumps(members).encode()
        head = f"POST {self.path}/v1/{op} HTTP/1.1\r\n{self.headers}Content-Length: {len(body)}\r\n"
        return f"{head}X-Request-Id: {members['id']}\r\n\r\n".encode("ascii") + body


@dataclass(frozen=True)
class Reply:
    http_status: int
    headers: dict[str, str]
    body: dict[str, Any]  # empty: no JSON object
    is_last: bool  # of its connection

    @property
    def code(self) -> int | None:
        """Which answer of the gateway it is. None: a proxy's reply, whatever its JSON says."""
        code, status = self.body.get("code"), self.body.get("status")
        if type(code) is not int or not isinstance(status, str):
            return None
        return code if code in range(BUSY) or _NAMES.get(code) == status else None

    @property
    def told_s(self) -> float:
        """How long the gateway wants to be left alone."""
        told_ms = self.body.get("retry_after_ms")
        if isinstance(told_ms, int):
            return told_ms / 1000
        told = self.headers.get("retry-after", "")
        return float(told) if told.isascii() and told.isdigit() else 0.0


def reply_read(data: bytes, request_id: str) -> Reply | None:
    """The reply to the request with this id. None: more bytes are needed."""
    if len(data) > _REPLY_MAX:
        raise Broken("the reply is too long")
    status = "1"
    while status.startswith("1"):  # such a reply only announces another one
        head, end, data = data.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        found = re.fullmatch(r"HTTP/1\.([01]) ([0-9]{3})(?: .*)?", first)
        if not found:
            raise Broken("the reply is not HTTP/1.1")
        minor, status = found.groups()
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    read = _body_read(data, headers)
    if not read:
        return None
    text, behind = read
    try:
        body = values.loads(text)
    except (ValueError, RecursionError):
        body = None
    body = body if isinstance(body, dict) else {}
    name = body.get("id")
    is_kept = minor == "1" and "close" not in headers.get("connection", "").lower()
    # Bytes behind the reply belong to no request.
    reply = Reply(int(status), headers, body, not is_kept or name != request_id or bool(behind))
    needs_id = name is not None or reply.code not in _UNPARSED
    if reply.code is not None and needs_id and name != request_id:
        raise Broken("the reply is that of another request")
    return reply


def _body_read(data: bytes, headers: dict[str, str]) -> tuple[bytes, bytes] | None:
    """The body, once it is whole, and what is behind it."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunks_read(data)
    length = headers.get("content-length", "")
    if not re.fullmatch("[0-9]{1,18}", length) or (size := int(length)) > _REPLY_MAX:
        raise Broken(f"the length of the reply is {length[:32]!r}")
    return (data[:size], data[size:]) if size <= len(data) else None


def _chunks_read(data: bytes) -> tuple[bytes, bytes] | None:
    body = b""
    while True:
        line, end, data = data.partition(b"\r\n")
        if not end:
            return None
        found = re.fullmatch(rb"([0-9A-Fa-f]{1,8})[ \t]*(;.*)?", line)
        if not found:
            raise Broken("the reply has a malformed chunk")
        size = int(found[1], 16)
        if size == 0:  # trailers say nothing
            _, end, data = (b"\r\n" + data).partition(b"\r\n\r\n")
            return (body, data) if end else None
        body, data = body + data[:size], data[size:]
        if len(data) < 2:
            return None
        if not data.startswith(b"\r\n"):
            raise Broken("a chunk of the reply does not end where it says")
        data = data[2:]
