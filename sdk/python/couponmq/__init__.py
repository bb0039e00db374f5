"""A client of couponmq: README.md beside this package shows how to use it."""

from couponmq.calls import key_new
from couponmq.client import AsyncClient, Client
from couponmq.errors import CouponError, Unavailable, Unknown
from couponmq.events import Webhook, events_read
from couponmq.money import Money
from couponmq.tokens import TokenSigner

__all__ = ["AsyncClient", "Client", "CouponError", "Money", "TokenSigner", "Unavailable"]
__all__ += ["Unknown", "Webhook", "events_read", "key_new"]
