"""Amounts of money: integers in the smallest unit of a currency, never floats."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

MINOR_MAX = 2**53 - 1

# The currencies that do not have two digits, by the column "Minor unit" of list one of ISO 4217.
# ctl/money.c has the same table.
_OTHERS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DIGITS = {name: digits for digits, names in _OTHERS.items() for name in names.split()}


@dataclass(frozen=True)
class Money:
    """Money(1250, "EUR") is 12.50 EUR, and Money(1250, "JPY") is 1250 JPY."""

    minor: int
    currency: str

    def __post_init__(self) -> None:
        if type(self.minor) is not int:  # True is an integer, too
            raise TypeError(f"minor is {self.minor!r}: must be an integer in the smallest unit")
        if not re.fullmatch("[A-Z]{3}", self.currency):
            raise ValueError(f"currency is {self.currency!r}: must be three letters of ISO 4217")

    @classmethod
    def parse(cls, text: str, currency: str) -> Money:
        """Takes what people write: all digits of the currency after a point, or a whole amount
        without a point. ValueError: anything else, such as "12,50" or "12.5", which people read in
        more than one way."""
        digits = cls(0, currency).digits
        point = rf"(?:\.([0-9]{{{digits}}}))?" if digits else ""
        found = re.fullmatch(rf"([0-9]{{1,{20 - digits}}}){point}", text)
        minor = int("".join(found.groups("0" * digits))) if found else -1
        if not 0 <= minor <= MINOR_MAX:
            form = f"with {digits} digits after a point, or without a point" if digits else "whole"
            raise ValueError(f"{text!r} is no amount of {currency}: it is written {form}")
        return cls(minor, currency)

    @property
    def digits(self) -> int:
        """How many digits the currency has after the point."""
        return _DIGITS.get(self.currency, 2)

    @property
    def text(self) -> str:
        """The amount with all digits of the currency, as parse() takes it."""
        return f"{Decimal(self.minor).scaleb(-self.digits):f}"

    def __str__(self) -> str:
        return f"{self.text} {self.currency}"

    def __add__(self, other: Money) -> Money:
        return Money(self.minor + self._same(other), self.currency)

    def __sub__(self, other: Money) -> Money:
        return Money(self.minor - self._same(other), self.currency)

    def _same(self, other: Money) -> int:
        if self.currency != other.currency:
            raise ValueError(f"{self} and {other} have different currencies")
        return other.minor
