"""Connections at other processes that share the limits: how many an address has there, and what is counted here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

AddressKey = tuple[int, str]
"""The table (a broker's, or one for all), and the address or IPv6 network that the client counts as."""
RateKey = AddressKey | str | None
"""What a rate belongs to: an address, a listener by its name, or None, the process."""


class Elsewhere(Protocol):
    """The other processes that share the limits on connections."""

    def rate_counted(self, of: RateKey, change: int) -> None:
        """`change` connections were counted here in a rate with a bound; negative: taken back."""

    def open_changed(self, key: AddressKey) -> None:
        """The number of open connections of an address has changed here."""

    def open_of(self, key: AddressKey, now_ms: int) -> int:
        """Return how many open connections an address has at the other processes."""

    def begin_rate(self, key: AddressKey) -> Iterable[tuple[int, int]]:
        """An address has a rate here now; return what was counted elsewhere lately, oldest first, as (time in ms, connections)."""
