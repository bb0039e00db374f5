"""What a call raises. A refusal, such as out_of_stock, is no error: it is the answer."""

from __future__ import annotations


class CouponError(Exception):
    """The base of all others."""


class RequestError(CouponError):
    """The caller's mistake: the request was refused, and refused again however often it is sent."""

    def __init__(self, message: str, http_status: int = 0) -> None:
        super().__init__(message)
        self.http_status = http_status  # 0: it was not sent


class BadRequest(RequestError):
    """A member of the request is not as it must be; the message names it."""


class Unauthorized(RequestError):
    """The key or the token is missing, wrong, expired or revoked."""


class Forbidden(RequestError):
    """The key or the token does not allow the call."""


class TooLarge(RequestError):
    """The request is larger than allowed."""


class KeyReused(RequestError):
    """The idempotency key was used for another request; a new request needs a new key."""


class HttpError(RequestError):
    """HTTP itself refuses: another path (404), another name of the host (421), a proxy's reason."""


class Unavailable(CouponError):
    """Nothing was done by this call: busy, unavailable, rate_limited, or unreachable until the
    deadline. An earlier call with its key may have done it. A call that changes nothing raises it
    also where no answer came."""


class Unknown(CouponError):
    """The call may have been done, now or later. Repeat it with this key until its answer is
    known, before the order or the user does something else."""

    def __init__(self, message: str, key: str, receive: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.receive = receive  # accepted, and stays so: only the level of ack was not reached


class BadSignature(CouponError):
    """A request to a webhook that couponmq did not sign, or too long ago."""


_BY_CODE = (BadRequest, Unauthorized, Forbidden, TooLarge, KeyReused)
BY_CODE: dict[int | None, type[RequestError]] = dict(enumerate(_BY_CODE, 40))
