"""The values in answers and events, and how they are read from JSON. Members that are not known
here are left out."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from decimal import Decimal
from types import UnionType
from typing import Any, Callable, TypeVar, get_args, get_origin, get_type_hints

from couponmq.money import Money

T = TypeVar("T")


def loads(text: bytes) -> Any:
    """JSON, in which a number with a point is exact."""
    return json.loads(text, parse_float=Decimal)


def text(name: str, value: str | int) -> str:
    """The value of this argument as the gateway reads it. Refuses what str() would make a text
    of by mistake, such as None."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: must be a str or an int")
    if value == "":
        raise ValueError(f"{name} is empty")
    return str(value)


def build(cls: Callable[..., T], body: dict[str, Any], **more: Any) -> T:
    """Fills the fields from the members of the same names, read by the types of the fields."""
    for name, kind in _types(cls).items():
        if body.get(name) is not None and name not in more:
            more[name] = _read(kind, body[name], body)
    return cls(**more)


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _read(kind: Any, value: Any, body: dict[str, Any]) -> Any:
    if isinstance(kind, UnionType):
        kind = get_args(kind)[0]  # `Money | None` is read as Money
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], one, {}) for one in value)
    if kind is datetime:
        return datetime.fromisoformat(value)
    if kind is Money:  # in the currency beside it; without one it is not known
        return Money(value, body["currency"]) if "currency" in body else None
    return build(kind, value) if is_dataclass(kind) else value


@dataclass(frozen=True)
class Discount:
    amount_off: Money | None = None
    percent_off: Decimal | None = None
    cap: Money | None = None
    threshold: Money | None = None


@dataclass(frozen=True)
class Use:
    """Which order has a receive: `held` until a time, or `used`."""

    state: str
    order: str
    until: datetime | None = None


@dataclass(frozen=True)
class Now:
    """What became of a receive: `free`, `held`, `used`, `voided` or `not_found`. order: if the
    order of the request has it."""

    state: str
    order: str | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Receive:
    """One receive of a user: its state is `accepted`, `issued` or `rejected`."""

    receive: str
    slot: int
    state: str
    reason: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    use: Use | None = None


@dataclass(frozen=True)
class OrderReceive:
    """One of the receives that an order has named."""

    receive: str
    until: datetime | None = None
    amount_off: Money | None = None
    now: Now | None = None


@dataclass(frozen=True)
class UserCoupon:
    """An issued coupon of a user. Without valid_to its validity has no end."""

    coupon: str
    receive: str
    slot: int
    received_at: datetime
    valid_from: datetime
    valid_to: datetime | None = None
    name: str | None = None
    discount: Discount | None = None
    metadata: dict[str, Any] | None = None
    use: Use | None = None
    voided: bool = False


@dataclass(frozen=True)
class Answer:
    """Done (`ok`), or refused, with a status that says why."""

    code: int
    status: str
    message: str | None = None  # for people, of a refusal
    replayed: bool = False  # the key was known: by an earlier call, or an attempt of this one
    key: str | None = None  # the idempotency key that the call had

    @property
    def ok(self) -> bool:
        return self.code == 0


@dataclass(frozen=True)
class IssueAnswer(Answer):
    """What issue() and claim() return: `accepted`, `queued`, `issued`; `rejected`, which has a
    reason; `out_of_stock`, `limit_reached`, `not_started`, `ended`, `paused`, `not_found`,
    `code_invalid`, `code_used`, `code_expired`."""

    receive: str | None = None
    slot: int | None = None
    coupon: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class StatusAnswer(Answer):
    """What status() returns. One receive is `accepted`, `issued`, `rejected` or `not_found`; for a
    user it is `ok` with `receives`."""

    receive: str | None = None
    slot: int | None = None
    reason: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    use: Use | None = None
    receives: tuple[Receive, ...] = ()
    final: bool | None = None  # of not_found: whether no receive can still appear


@dataclass(frozen=True)
class CouponAnswer(Answer):
    """`ok` with the terms, or `not_found`."""

    coupon: str | None = None
    state: str | None = None
    total: int | None = None
    stock: int | None = None
    limit: int | None = None
    begin: datetime | None = None
    end: datetime | None = None
    discount: Discount | None = None
    metadata: dict[str, Any] | None = None
    partial: bool = False  # discount and metadata could not be read


@dataclass(frozen=True)
class CodeAnswer(CouponAnswer):
    """`ok` with what the code would give, or `code_invalid`. `receive` and `slot`: the user has
    claimed it."""

    code_end: datetime | None = None  # if the code ends by itself
    taken: int | None = None
    left: int | None = None
    claimable: bool | None = None
    why: str | None = None  # what `claim` would answer, if it is not claimable
    receive: str | None = None
    slot: int | None = None


@dataclass(frozen=True)
class CouponsAnswer(Answer):
    """A page of the coupons of a user."""

    coupons: tuple[UserCoupon, ...] = ()
    cursor: str | None = None


@dataclass(frozen=True)
class Offer:
    """A campaign on offer: it is `open`, `not_started` or `unavailable`. Of a user it has, unless
    it is unavailable, how many are taken and left, and, if it is not claimable, why."""

    coupon: str
    name: str
    state: str
    tags: tuple[str, ...] = ()
    total: int | None = None
    stock: int | None = None
    limit: int | None = None
    begin: datetime | None = None
    end: datetime | None = None
    discount: Discount | None = None
    metadata: dict[str, Any] | None = None
    taken: int | None = None
    left: int | None = None
    claimable: bool | None = None
    why: str | None = None


@dataclass(frozen=True)
class OffersAnswer(Answer):
    """A page of what is on offer."""

    offers: tuple[Offer, ...] = ()
    cursor: str | None = None


@dataclass(frozen=True)
class OrderAnswer(Answer):
    """`held`, `used`, `released`, `rolled_back`; or `held_by_other`, `already_used`, `expired`,
    `not_valid_yet`, `voided`, `budget_spent`, `below_threshold`, `amount_exceeded`, `not_found`."""

    receive: str | None = None
    until: datetime | None = None
    amount_off: Money | None = None
    now: Now | None = None
    receives: tuple[OrderReceive, ...] = ()

    @property
    def stands(self) -> bool:
        """Whether the order has now what hold() or use() has answered. An answer that is
        `replayed` describes the past: what it did may have been given back since."""
        states = {"held": ("held", "used"), "used": ("used",)}.get(self.status, ())
        all_now = [one.now for one in self.receives] or [self.now]
        is_now = all(now and now.order and now.state in states for now in all_now)
        return is_now if self.replayed else bool(states)


@dataclass(frozen=True)
class QuotedReceive:
    """A receive of a user that an order could use, and what it takes off."""

    receive: str
    slot: int
    coupon: str
    name: str
    amount_off: Money | None = None
    valid_to: datetime | None = None


@dataclass(frozen=True)
class QuoteAnswer(Answer):
    """`ok` with what the terms take off the amount, or `not_found`. Not usable: a use of this
    amount is refused. Of a user it has receives, the best first."""

    amount: Money | None = None
    amount_off: Money | None = None
    usable: bool | None = None
    receives: tuple[QuotedReceive, ...] = ()
