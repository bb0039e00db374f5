"""The calls, without I/O: what is sent, what a reply means, how long to wait, when to give up."""

from __future__ import annotations

import itertools
import os
import random
import secrets
import ssl
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, Generic, Sequence, TypedDict, TypeVar, Unpack

from couponmq import errors, values
from couponmq.money import Money
from couponmq.values import text
from couponmq.wire import BUSY, RATE_LIMITED, UNKNOWN, Gateway, Reply, reply_read

T = TypeVar("T", bound=values.Answer)
Id = str | int  # names a coupon, or a user
Receives = str | Sequence[str] | None
Members = dict[str, Any]  # what docs/reference/protocol.md says of a request; deadline_s, too

_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 2.0


# What can be called: each function makes the members of a request, and is a method of both clients.


class Limited(TypedDict, total=False):
    """What each call takes, too: a deadline instead of the client's."""

    deadline_s: float | None


class Attempt(Limited, total=False):
    """What each call that changes something takes, too.

    key: the idempotency key of the customer's attempt, stored before the call, so that the call can
    be repeated after a crash. Without it the call makes one. trace: a traceparent.
    """

    key: str | None
    trace: str | None


class Named(Attempt, total=False):
    """What each call of an order takes, too. coupon and user name any receive of the user, instead
    of a receive. by: the name of the caller for the history."""

    coupon: Id | None
    user: Id | None
    by: str | None


def issue(coupon: Id, user: Id, *, ack: str = "accepted", **attempt: Unpack[Attempt]) -> Members:
    """Asks for a coupon. ack: what the answer waits for: `accepted`, `queued` or `issued`."""
    needed = {"coupon": text("coupon", coupon), "user": text("user", user)}
    return _members(Attempt, attempt, **needed, ack=ack)


def claim(code: str, user: Id, *, ack: str = "accepted", **attempt: Unpack[Attempt]) -> Members:
    """Asks for the coupon of an exchange code, as the user typed it."""
    needed = {"code": text("code", code), "user": text("user", user)}
    return _members(Attempt, attempt, **needed, ack=ack)


def hold(
    order: str,
    receive: Receives = None,
    *,
    amount: Money | None = None,
    ttl: timedelta | None = None,
    **named: Unpack[Named],
) -> Members:
    """Keeps a receive for an order, or several. amount: that of the order, before the discount."""
    ttl_s = None if ttl is None else round(ttl.total_seconds())
    return _of_order(named, order, receive, **_amount(amount), ttl_s=ttl_s)


def use(
    order: str, receive: Receives = None, *, amount: Money | None = None, **named: Unpack[Named]
) -> Members:
    """Uses what the order holds, or what is free. amount: that of the order, before the
    discount; another one, with a new key, changes what was used."""
    return _of_order(named, order, receive, **_amount(amount))


def release(order: str, receive: Receives = None, **named: Unpack[Named]) -> Members:
    """Gives up a hold: the order is cancelled before it has used the receive."""
    return _of_order(named, order, receive)


def rollback(
    order: str,
    receive: Receives = None,
    *,
    amount: Money | None = None,
    reason: str | None = None,
    **named: Unpack[Named],
) -> Members:
    """Takes a use back: the order is cancelled after it has used the receive. amount: only this
    part of the discount, of one receive, which stays used."""
    return _of_order(named, order, receive, **_amount(amount), reason=reason)


def status(
    receive: str | None = None,
    *,
    coupon: Id | None = None,
    user: Id | None = None,
    **limited: Unpack[Limited],
) -> Members:
    """What became of a receive, or, with coupon and user, of all receives of the user."""
    return _members(Limited, limited, receive=receive, coupon=coupon, user=user)


def coupon(coupon: Id, **limited: Unpack[Limited]) -> Members:
    """The terms of a coupon, and what is left."""
    return _members(Limited, limited, coupon=text("coupon", coupon))


def code(code: str, user: Id, **limited: Unpack[Limited]) -> Members:
    """What an exchange code would give to the user, who does not claim it."""
    return _members(Limited, limited, code=text("code", code), user=text("user", user))


def coupons(
    user: Id, *, usable: bool | None = None, cursor: str | None = None, **limited: Unpack[Limited]
) -> Members:
    """A page of the coupons of a user, newest first. usable: only those that an order could use."""
    return _members(Limited, limited, user=text("user", user), usable=usable, cursor=cursor)


def offers(
    user: Id | None = None,
    *,
    within: timedelta | None = None,
    tag: str | None = None,
    cursor: str | None = None,
    **limited: Unpack[Limited],
) -> Members:
    """A page of the campaigns that are open, or begin within this time, else 7 days; of a user,
    with what the user may have of each. tag: only those that have it."""
    return _members(
        Limited,
        limited,
        user=None if user is None else text("user", user),
        within=None if within is None else int(within.total_seconds()),
        tag=tag,
        cursor=cursor,
    )


def quote(
    coupon: Id | None, amount: Money, *, user: Id | None = None, **limited: Unpack[Limited]
) -> Members:
    """What the terms of a coupon take off an amount; or, with user and None as the coupon, what the
    receives of the user do that an order could use, the best first. It holds nothing."""
    named = {"coupon": text("coupon", coupon)} if coupon is not None else {}
    named |= {"user": text("user", user)} if user is not None else {}
    return _members(Limited, limited, **named, **_amount(amount))


def ping(**limited: Unpack[Limited]) -> Members:
    """Whether a gateway answers."""
    return _members(Limited, limited)


def key_new() -> str:
    """An idempotency key for one attempt of a customer."""
    return secrets.token_hex(16)


def _amount(amount: Money | None) -> Members:
    return {"amount": amount.minor, "currency": amount.currency} if amount else {}


def _of_order(named: Named, order: str, receive: Receives, **more: Any) -> Members:
    name = "receive" if receive is None or isinstance(receive, str) else "receives"
    return _members(Named, named, order=order, **{name: receive}, **more)


def _members(takes: type, given: Any, **more: Any) -> Members:
    """given: what was given by name, of what `takes` has."""
    if unknown := given.keys() - takes.__annotations__.keys():
        raise TypeError(f"the call takes no {', '.join(unknown)}")
    if takes is not Limited and given.get("key") is None:
        given["key"] = key_new()
    members = {name: one for name, one in {**more, **given}.items() if one is not None}
    for name in {"coupon", "user", "key"} & members.keys():
        members[name] = text(name, members[name])
    return members


class Call(Generic[T]):
    """A call on its way: attempts, each from prepare() to judge(). A call with a key changes
    something. One attempt of which nobody knows what became of it makes it unknown, until an answer
    to its key is known."""

    answer: T  # once judge() has returned None
    begun = False  # set by the client before the first byte: the gateway may have the request

    def __init__(self, core: Core, op: str, answers: type[T], members: Members) -> None:
        self._core, self._op, self._answers, self._members = core, op, answers, members
        self._give_up: float = core.clock() + members.pop("deadline_s", core.deadline_s)
        self._key: str | None = members.get("key")
        self._may_be_done, self._failures, self._why = False, 0, ""
        self._receive: str | None = None  # accepted, without the level of ack

    def left_s(self) -> float:
        return self._give_up - self._core.clock()

    def prepare(self) -> None:
        """The next attempt."""
        self._place = self._core.place
        self.gateway: Gateway = self._core.gateways[self._place]
        # Each attempt has an id of its own: a late reply to an earlier one is not taken for it.
        self._id = f"{self._core.name}-{next(self._core.numbers)}"
        self.request: bytes = self.gateway.request(self._op, {"id": self._id, **self._members})
        self.within_s: float = min(self._core.attempt_s, self.left_s())
        self.begun, self._arrived = False, b""

    def feed(self, data: bytes) -> Reply | None:
        """The reply, once all its bytes have arrived. No bytes: the connection has ended."""
        if not data:
            raise ConnectionError("the gateway has closed the connection")
        self._arrived += data
        return reply_read(self._arrived, self._id)

    def judge(self, came: Reply | OSError) -> float | None:
        """After how long the call is to be sent again; None: it has an answer. Raises, if the call
        ends without one. An OSError is why no reply came."""
        code, told_s = None, 0.0
        if isinstance(came, OSError):
            self._may_be_done |= self.begun
            why = f"no reply: {str(came) or 'timed out'}"
            # The deadline has shortened this attempt: what ended the one before says more.
            if isinstance(came, TimeoutError) and self.within_s < self._core.attempt_s:
                why = self._why or why
        elif came.code in range(BUSY):
            self.answer = values.build(self._answers, came.body, key=self._key)
            return None
        else:
            self.begun, code, told_s = False, came.code, came.told_s
            why = str(came.body.get("message") or f"HTTP {came.http_status}")
            is_busy = code in range(BUSY, RATE_LIMITED + 1)
            # A proxy's, or that of a gateway to which the request did not arrive in time.
            is_trouble = came.http_status in (408, 429, *range(500, 600))
            if code == UNKNOWN:
                self._receive = came.body.get("receive", self._receive)
            if code == UNKNOWN or not is_busy and (is_trouble or came.http_status < 400):
                self._may_be_done = True
            if not is_busy and not is_trouble:
                kind = errors.BY_CODE.get(code, errors.HttpError)
                if kind is errors.BadRequest and came.http_status != 400:
                    kind = errors.HttpError
                error = kind(why, came.http_status)
                # An earlier attempt may have been executed, unless this repeats the answer to that
                # attempt, or the key was never this call's.
                is_known = came.body.get("replayed") is True or kind is errors.KeyReused
                if self._key and self._may_be_done and not is_known:
                    raise self.end(why) from error
                raise error

        if code != RATE_LIMITED and self._core.place == self._place:
            self._core.place = (self._place + 1) % len(self._core.gateways)
        # At least what was told, and never beyond the deadline.
        self._failures, self._why = self._failures + 1, why
        backoff_s = min(_BACKOFF_S * 2.0 ** (self._failures - 1), _BACKOFF_MAX_S)
        chance = self._core.chance()
        pause_s = max(backoff_s * (1 + chance) / 2, told_s * (1 + chance / 4))
        if pause_s >= self.left_s():
            raise self.end(f"{why}; {self._failures} attempts until the deadline")
        return pause_s

    def end(self, why: str) -> errors.CouponError:
        """The truth about the call, if it ends now without an answer."""
        if self._key and (self._may_be_done or self.begun):
            return errors.Unknown(f"{self._op} is unknown: {why}", self._key, self._receive)
        return errors.Unavailable(f"{self._op} was not done by this call: {why}")


class Core:
    """What both clients have."""

    def __init__(
        self,
        gateways: str | Sequence[str],
        token: str | None = None,
        *,
        deadline_s: float = 30.0,
        attempt_s: float = 10.0,
        ca: str | None = None,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        """A client of one or several gateways.

        token: an API key or a user token. deadline_s: for a call with all its attempts; attempt_s:
        for one attempt, longer than the gateway waits (5 s). ca: a file with the certificates that
        are trusted, instead of those of the system; certificate: files of the client's own and of
        its key.
        """
        urls = [gateways] if isinstance(gateways, str) else gateways
        self.gateways = [Gateway.of(url, token) for url in urls]
        has_tls = any(gateway.tls for gateway in self.gateways)
        self.tls = ssl.create_default_context(cafile=ca) if has_tls else None
        if self.tls and certificate:
            self.tls.load_cert_chain(*certificate)
        self.deadline_s, self.attempt_s = deadline_s, attempt_s
        self.place = random.randrange(len(self.gateways))  # the one that is asked
        self.clock: Callable[[], float] = time.monotonic
        self.chance: Callable[[], float] = random.random
        self.is_closed = False
        self._open()
        _CLIENTS.add(self)

    def _open(self) -> None:
        """Makes all that two processes must not share: also in a child after fork()."""
        self.name, self.numbers = key_new()[:12], itertools.count(1)  # make ids of requests


_CLIENTS: weakref.WeakSet[Core] = weakref.WeakSet()


def _forked() -> None:
    for one in _CLIENTS:
        one._open()


os.register_at_fork(after_in_child=_forked)
