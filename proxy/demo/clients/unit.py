"""The units of the demo's clients."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Unit:
    """Names and sizes of the units of a rate and of its amount.

    Attributes:
        rate, amount: names of the units.
        rate_size, amount_size: size of one unit in the unit of the quota: bytes, percent-seconds, connections.
        rate_digits, amount_digits: number of decimal places.
    """

    rate: str
    rate_size: float
    rate_digits: int
    amount: str
    amount_size: float
    amount_digits: int

    def rate_of(self, value: float) -> str:
        """Return the text of a rate, without the unit."""
        return f"{value / self.rate_size:.{self.rate_digits}f}"

    def amount_of(self, value: float) -> str:
        """Return the text of an amount, without the unit."""
        return f"{value / self.amount_size:.{self.amount_digits}f}"


BYTES: Final = Unit("MB/s", 1_000_000, 2, "MB", 1_000_000, 1)
THREAD: Final = Unit("%", 1, 2, "ms", 0.1, 0)
"""Percent of one broker thread; a percent-second is 10 ms of a thread."""
CONNECTIONS: Final = Unit("conn/s", 1, 1, "connections", 1, 0)
