"""What couponmq tells: CloudEvents, from RabbitMQ or by webhooks, whose signatures are verified."""

from __future__ import annotations

import base64
import hmac
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Mapping, Sequence

from couponmq import values
from couponmq.errors import BadSignature
from couponmq.money import Money

_TOLERANCE_S = 300  # how far away the time of a request to a webhook may be


@dataclass(frozen=True)
class _OfReceive:
    coupon: str
    user: str
    receive: str


@dataclass(frozen=True)
class Issued(_OfReceive):
    slot: int
    received_at: datetime
    valid_from: datetime
    valid_to: datetime | None = None
    key: str | None = None


@dataclass(frozen=True)
class Rejected(_OfReceive):
    slot: int
    reason: str
    received_at: datetime


@dataclass(frozen=True)
class Voided(_OfReceive):
    slot: int
    returned: bool
    by: str
    why: str | None = None


@dataclass(frozen=True)
class Used(_OfReceive):
    order: str
    amount: Money | None = None
    amount_off: Money | None = None


@dataclass(frozen=True, kw_only=True)
class Held(Used):
    until: datetime


@dataclass(frozen=True)
class Released(_OfReceive):
    """reason: `hold_ended` if the hold has expired."""

    order: str
    reason: str | None = None


@dataclass(frozen=True)
class RolledBack(Released):
    """reason: that of the request. amount: the part of the discount that was given back, of a use
    that takes `amount_off` off from now on; None: all of it, and the receive is free."""

    amount: Money | None = None
    amount_off: Money | None = None


@dataclass(frozen=True)
class Changed:
    """The terms or the state of a campaign. changes: each term that changed, before and after."""

    coupon: str
    version: int
    action: str
    to: str
    by: str
    changes: dict[str, list[Any]]
    was: str | None = None  # `from` in JSON; None: the coupon is new


_DATA: dict[str, type] = {"campaign.changed": Changed, "coupon.issued": Issued}
_DATA |= {"coupon.rejected": Rejected, "coupon.voided": Voided, "coupon.held": Held}
_DATA |= {"coupon.used": Used, "coupon.released": Released, "coupon.rolled_back": RolledBack}
_DATA["coupon.expiring"] = Issued  # its end is near


@dataclass(frozen=True)
class Event:
    """data: one of the classes above by `type`; a dict, if the type is not known here. `source`
    and `id` together are the same in each copy."""

    id: str
    source: str
    type: str
    time: datetime
    data: Any
    subject: str | None = None
    traceparent: str | None = None
    requestid: str | None = None


def events_read(body: bytes) -> list[Event]:
    """The events of a message of RabbitMQ, or of a request that was verified."""
    read = values.loads(body)
    return [_event(one) for one in (read if isinstance(read, list) else [read])]


def _event(one: dict[str, Any]) -> Event:
    data, cls = one["data"], _DATA.get(one["type"])
    if cls:
        data = values.build(cls, {**data, "was": data.get("from")})
    return values.build(Event, one, data=data)


class Webhook:
    """Verifies what arrives at a webhook. secrets: `whsec_…`, one or several while they change."""

    def __init__(self, secrets: str | Sequence[str]) -> None:
        given = [secrets] if isinstance(secrets, str) else secrets
        self._keys = [base64.b64decode(one.removeprefix("whsec_"), validate=True) for one in given]
        if not self._keys or not all(24 <= len(key) <= 64 for key in self._keys):
            raise ValueError("a secret of a webhook is whsec_ and 24 to 64 bytes in base64")

    def read(self, headers: Mapping[str, str], body: bytes) -> list[Event]:
        """The events of the request, whose body is as it arrived. Raises BadSignature."""
        found = {name.lower(): one for name, one in headers.items()}
        try:
            name, at, given = (found[f"webhook-{one}"] for one in ("id", "timestamp", "signature"))
            signed, signatures = f"{name}.{at}.".encode() + body, given.encode().split()
        except (KeyError, UnicodeError):
            raise BadSignature("a header of the webhook is missing or malformed") from None
        is_time = re.fullmatch("[0-9]{1,15}", at)
        if not is_time or abs(time.time() - int(at)) > _TOLERANCE_S:
            raise BadSignature("the time of the request is too far away")
        digests = [hmac.digest(key, signed, "sha256") for key in self._keys]
        ours = [b"v1," + base64.b64encode(digest) for digest in digests]
        if not any([hmac.compare_digest(one, own) for one in signatures for own in ours]):
            raise BadSignature("no signature of the request is right")
        return events_read(body)
