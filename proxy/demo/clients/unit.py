"""The units of the demo's clients."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Unit:
    """Names and sizes of a rate and its amount.

    Attributes:
        rate, amount: their names.
        rate_size, amount_size: how much one of them is, in what quotas count: bytes, percent-seconds, connections.
        rate_digits, amount_digits: digits behind the point.
    """

    rate: str
    rate_size: float
    rate_digits: int
    amount: str
    amount_size: float
    amount_digits: int

    def rate_of(self, value: float) -> str:
        """Write a rate without its name."""
        return f"{value / self.rate_size:.{self.rate_digits}f}"

    def amount_of(self, value: float) -> str:
        """Write an amount without its name."""
        return f"{value / self.amount_size:.{self.amount_digits}f}"


BYTES: Final = Unit("MB/s", 1_000_000, 2, "MB", 1_000_000, 1)
THREAD: Final = Unit("%", 1, 2, "ms", 0.1, 0)
"""Percent of one thread of a broker; a percent-second is ten milliseconds of it."""
CONNECTIONS: Final = Unit("conn/s", 1, 1, "connections", 1, 0)
