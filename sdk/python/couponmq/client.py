"""The clients, for threads and for asyncio. Both keep their connections."""

from __future__ import annotations

import asyncio
import functools
import math
import select
import socket
import ssl
import threading
import time
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from datetime import timedelta
from typing import Any, AsyncIterator, Awaitable, Callable, Generic, Iterator, ParamSpec, TypeVar
from typing import overload

from couponmq import calls, values
from couponmq.calls import Call, Core, Members, T
from couponmq.wire import Gateway, Reply

IDLE_S = 20.0  # a connection that was idle for longer may be dead, and nobody told
CONNECT_S = 2.0  # a thread waits so long for an address of a host that has further ones
CONNECTIONS_MAX = 64  # further tasks wait for one of these
ARRIVED_MAX = 64  # pieces that a connection of asyncio has for nobody

P = ParamSpec("P")


class Method(Generic[P, T]):
    """A function of couponmq.calls as a method of both clients."""

    def __init__(self, make: Callable[P, Members], answer: type[T]) -> None:
        self.make, self.answer = make, answer

    @overload
    def __get__(self, client: Client, _: type) -> Callable[P, T]:
        """A call of Client returns the answer."""

    @overload
    def __get__(self, client: AsyncClient, _: type) -> Callable[P, Awaitable[T]]:
        """A call of AsyncClient is awaited."""

    def __get__(self, client: Any, _: type) -> Any:
        @functools.wraps(self.make)
        def method(*args: P.args, **named: P.kwargs) -> Any:
            members = self.make(*args, **named)
            return client._run(Call(client, self.make.__name__, self.answer, members))

        return method


class Methods(Core):
    """The calls, by the functions that make their members."""

    issue = Method(calls.issue, values.IssueAnswer)
    claim = Method(calls.claim, values.IssueAnswer)
    hold = Method(calls.hold, values.OrderAnswer)
    use = Method(calls.use, values.OrderAnswer)
    release = Method(calls.release, values.OrderAnswer)
    rollback = Method(calls.rollback, values.OrderAnswer)
    status = Method(calls.status, values.StatusAnswer)
    coupon = Method(calls.coupon, values.CouponAnswer)
    code = Method(calls.code, values.CodeAnswer)
    coupons_page = Method(calls.coupons, values.CouponsAnswer)
    offers_page = Method(calls.offers, values.OffersAnswer)
    quote = Method(calls.quote, values.QuoteAnswer)
    ping = Method(calls.ping, values.Answer)


C = TypeVar("C", socket.socket, "_Connection")


class Pool(Generic[C]):
    """Connections that wait for the next request."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, Gateway, C]] = []  # the youngest last

    def keep(self, gateway: Gateway, one: C) -> None:
        self._kept.append((time.monotonic(), gateway, one))

    def take(self, gateway: Gateway) -> C | None:
        """The one that was used last and still lives. Those that are too old are closed."""
        self.close(time.monotonic() - IDLE_S)
        for kept in [one for one in reversed(self._kept) if one[1] == gateway]:
            self._kept.remove(kept)
            if is_quiet(kept[2]):
                return kept[2]
            kept[2].close()
        return None

    def close(self, before: float = math.inf) -> None:
        while self._kept and self._kept[0][0] < before:
            self._kept.pop(0)[2].close()


def is_quiet(one: socket.socket | _Connection) -> bool:
    """Whether nothing arrived while the connection was idle: neither its end nor a late reply."""
    if isinstance(one, _Connection) and (one.transport.is_closing() or one.arrived.qsize()):
        return False
    poll = select.poll()
    poll.register(one, select.POLLIN)
    return not poll.poll(0)


class Client(Methods, AbstractContextManager["Client"]):
    """For any number of threads."""

    def coupons(self, user: calls.Id, usable: bool | None = None) -> Iterator[values.UserCoupon]:
        """The coupons of a user, newest first, page by page."""
        page = self.coupons_page(user, usable=usable)
        yield from page.coupons
        while page.cursor:
            page = self.coupons_page(user, usable=usable, cursor=page.cursor)
            yield from page.coupons

    def offers(
        self,
        user: calls.Id | None = None,
        within: timedelta | None = None,
        tag: str | None = None,
    ) -> Iterator[values.Offer]:
        """The campaigns that are open or begin soon, page by page: see offers_page()."""
        page = self.offers_page(user, within=within, tag=tag)
        yield from page.offers
        while page.cursor:
            page = self.offers_page(user, within=within, tag=tag, cursor=page.cursor)
            yield from page.offers

    def close(self) -> None:
        """Calls that wait for a reply end with Unknown, if they change something."""
        with self._changed:
            self.is_closed = True
            for one in self._busy.values():
                with suppress(OSError):  # it has ended by itself
                    socket.socket.shutdown(one, socket.SHUT_RDWR)  # also where TLS is half-made
            self._idle.close()
            self._changed.notify_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        super()._open()
        self._changed = threading.Condition()
        self._idle: Pool[socket.socket] = Pool()
        self._busy: dict[Call[Any], socket.socket] = {}

    def _run(self, call: Call[T]) -> T:
        while (pause_s := call.judge(self._exchange(call))) is not None:
            with self._changed:
                if self._changed.wait_for(lambda: self.is_closed, pause_s):
                    raise call.end("the client is closed")
        return call.answer

    def _exchange(self, call: Call[Any]) -> Reply | OSError:
        call.prepare()
        until, reply = time.monotonic() + call.within_s, None
        try:
            with self._changed:
                if one := self._idle.take(call.gateway):
                    self._busy[call] = one
            one = one or self._connect(call, until)
            one.settimeout(_left(until))
            call.begun = True
            one.sendall(call.request)
            while not reply:
                one.settimeout(_left(until))
                reply = call.feed(one.recv(1 << 16))
            return reply
        except OSError as error:
            return error
        finally:
            with self._changed:
                used = self._busy.pop(call, None)
                if used and reply and not reply.is_last and not self.is_closed:
                    self._idle.keep(call.gateway, used)
                elif used:
                    used.close()

    def _connect(self, call: Call[Any], until: float) -> socket.socket:
        """To the gateway's first address that answers."""
        host, port = call.gateway.host, call.gateway.port
        *others, last = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for found in [*others, last]:
            one = socket.socket(*found[:3])
            if self.tls and call.gateway.tls:
                one = self.tls.wrap_socket(one, server_hostname=host, do_handshake_on_connect=False)
            with self._changed:
                self._busy[call] = one
            if self.is_closed:
                raise ConnectionError("the client is closed")
            try:
                one.settimeout(_left(until) if found is last else min(_left(until), CONNECT_S))
                one.connect(found[4])
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                break
            except OSError:
                one.close()
                if found is last:
                    raise
        if isinstance(one, ssl.SSLSocket):
            one.settimeout(_left(until))
            one.do_handshake()
        return one


def _left(until: float) -> float:
    """The seconds that are left, as a time-out of a socket."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _Connection(asyncio.Protocol):
    """A connection of asyncio. What arrives waits in a queue, whose end is an empty piece."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue(ARRIVED_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.arrived.put_nowait(data)  # if it is full, asyncio ends the connection

    def connection_lost(self, _: Exception | None) -> None:
        self.arrived.put_nowait(b"")

    def close(self) -> None:
        self.transport.abort()

    def fileno(self) -> int:
        return int(self.transport.get_extra_info("socket").fileno())


class AsyncClient(Methods, AbstractAsyncContextManager["AsyncClient"]):
    """For the tasks of one event loop. The CancelledError of a call that is cancelled has Unknown
    as its cause if the request was sent, and else Unavailable."""

    async def coupons(
        self, user: calls.Id, usable: bool | None = None
    ) -> AsyncIterator[values.UserCoupon]:
        """The coupons of a user, newest first, page by page."""
        page = await self.coupons_page(user, usable=usable)
        for one in page.coupons:
            yield one
        while page.cursor:
            page = await self.coupons_page(user, usable=usable, cursor=page.cursor)
            for one in page.coupons:
                yield one

    async def offers(
        self,
        user: calls.Id | None = None,
        within: timedelta | None = None,
        tag: str | None = None,
    ) -> AsyncIterator[values.Offer]:
        """The campaigns that are open or begin soon, page by page: see offers_page()."""
        page = await self.offers_page(user, within=within, tag=tag)
        for one in page.offers:
            yield one
        while page.cursor:
            page = await self.offers_page(user, within=within, tag=tag, cursor=page.cursor)
            for one in page.offers:
                yield one

    async def close(self) -> None:
        """Calls that wait for a reply end with Unknown, if they change something."""
        self.is_closed = True
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(0)
        self._idle.close()
        await asyncio.sleep(0)  # for connection_lost()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _open(self) -> None:
        super()._open()
        self._idle: Pool[_Connection] = Pool()
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        self._limits: set[asyncio.Timeout] = set()  # one of each call

    async def _run(self, call: Call[T]) -> T:
        limit = asyncio.timeout(0 if self.is_closed else call.left_s())
        self._limits.add(limit)
        try:
            async with limit:
                while True:
                    why = "all connections were in use"
                    async with self._turns:
                        why = "no reply until the deadline"
                        pause_s = call.judge(await self._exchange(call))
                    if pause_s is None:
                        return call.answer
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            raise call.end("the client is closed" if self.is_closed else why) from None
        except asyncio.CancelledError as cancelled:
            raise cancelled from call.end("the call was cancelled")
        finally:
            self._limits.discard(limit)

    async def _exchange(self, call: Call[Any]) -> Reply | OSError:
        call.prepare()
        one, reply = None, None
        try:
            async with asyncio.timeout(call.within_s):
                one = self._idle.take(call.gateway) or await self._connect(call.gateway)
                call.begun = True
                one.transport.write(call.request)
                while not reply:
                    reply = call.feed(await one.arrived.get())
            return reply
        except OSError as error:
            return error
        finally:
            if one and reply and not reply.is_last and not self.is_closed:
                self._idle.keep(call.gateway, one)
            elif one:
                one.close()

    async def _connect(self, gateway: Gateway) -> _Connection:
        tls = self.tls if gateway.tls else None
        _, one = await asyncio.get_running_loop().create_connection(
            _Connection, gateway.host, gateway.port, ssl=tls, happy_eyeballs_delay=0.25
        )
        return one
