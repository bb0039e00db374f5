"""User tokens: what a shop's server gives to a user, whose browser then asks the gateway."""

from __future__ import annotations

import base64
import hmac
import json
import time
from datetime import timedelta
from typing import Any, Callable, Sequence

from couponmq.values import text


class TokenSigner:
    """Signs by ES256 or EdDSA with a private key in PEM (needs python3-cryptography), or by HS256
    with a secret of 32 bytes or more. kid: the name of the key in COUPON_TOKEN_KEYS."""

    def __init__(
        self,
        key: bytes,
        kid: str,
        *,
        issuer: str,
        audience: str = "couponmq",
        life: timedelta = timedelta(minutes=10),
    ) -> None:
        alg, self._sign = _signer(key)
        self._head = _part({"alg": alg, "kid": kid})
        self._claims = {"iss": issuer, "aud": audience}
        self._life_s = life.total_seconds()

    def token(
        self, user: str | int, *, coupons: Sequence[str | int] | None = None, key: str | None = None
    ) -> str:
        """coupons: only these, up to 64; without them all. key: the idempotency key that each of
        its requests must have, so that a stolen token gives no further coupon."""
        claims: dict[str, Any] = {**self._claims, "sub": text("user", user)}
        claims["exp"] = int(time.time() + self._life_s)
        if coupons is not None:
            if isinstance(coupons, str) or not isinstance(coupons, Sequence):
                raise TypeError(f"coupons is {coupons!r}: must be a list")
            if not 1 <= len(coupons) <= 64:
                raise ValueError(f"coupons has {len(coupons)} ids: must have 1 to 64")
            claims["coupons"] = [text("coupons", one) for one in coupons]
        if key is not None:
            claims["key"] = text("key", key)
        signed = f"{self._head}.{_part(claims)}"
        return f"{signed}.{_base64(self._sign(signed.encode()))}"


def _signer(key: bytes) -> tuple[str, Callable[[bytes], bytes]]:
    if not key.lstrip().startswith(b"-----BEGIN"):
        if len(key) < 32:
            raise ValueError("a secret for HS256 has 32 bytes or more")
        return "HS256", lambda text: hmac.digest(key, text, "sha256")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils

    private = serialization.load_pem_private_key(key, None)
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return "EdDSA", private.sign
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.curve.name != "secp256r1":
        raise ValueError("the private key is neither of P-256 nor of Ed25519")
    by_curve = private.sign

    def sign(text: bytes) -> bytes:
        r, s = utils.decode_dss_signature(by_curve(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    return "ES256", sign


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
