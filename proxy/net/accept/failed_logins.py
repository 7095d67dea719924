"""Failed logins by address: a client that guesses passwords is refused before its login costs the brokers anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ADDRESSES_MAX: Final = 10_000
"""Clients choose their addresses, so their number has a bound; beyond it the address whose failure is oldest is forgotten."""
MINUTE_MS: Final = 60_000


class FailedLogins:
    """A token bucket of failed logins for each address.

    Each failure of an address adds one, and a minute takes `max_per_minute` away. While there is no room for one more failure, new
    connections of the address are refused; open ones stay.

    Attributes:
        max_per_minute: None when only the brokers limit failures.
        forgotten: number of addresses dropped because there were too many.
    """

    def __init__(self, addresses_max: int = ADDRESSES_MAX) -> None:
        self._addresses_max = addresses_max
        self._measures: dict[str, tuple[float, int]] = {}  # level and its time, in the order of the last failure
        self.max_per_minute: int | None = None
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._measures)

    def note(self, address: str, now_ms: int) -> None:
        """A login from `address` failed."""
        if self.max_per_minute is None:
            return
        fill = self._fill(address, now_ms)
        self._measures.pop(address, None)
        self._measures[address] = (min(fill + 1.0, float(self.max_per_minute)), now_ms)
        if len(self._measures) > self._addresses_max:
            del self._measures[next(iter(self._measures))]
            self.forgotten += 1

    def refuses(self, address: str, now_ms: int) -> bool:
        """Return whether a new connection from `address` is refused."""
        if not self._measures or self.max_per_minute is None:
            return False
        return self._fill(address, now_ms) > self.max_per_minute - 1.0

    def states(self) -> list[tuple[str, float, int]]:
        """Return address, level and time of each bucket, the one with the oldest failure first, for another process to continue them."""
        return [(address, level, failed_ms) for address, (level, failed_ms) in self._measures.items()]

    def continue_from(self, states: Iterable[tuple[str, float, int]]) -> None:
        """Continue the buckets of another process; all processes of a host have the same clock."""
        self._measures.update({address: (level, failed_ms) for address, level, failed_ms in states})

    def expire(self, now_ms: int) -> None:
        """Forget addresses whose bucket is empty again, and all addresses when there is no limit any more."""
        for address, (_, failed_ms) in list(self._measures.items()):
            if self.max_per_minute is not None and now_ms - failed_ms < MINUTE_MS:
                return
            del self._measures[address]

    def _fill(self, address: str, now_ms: int) -> float:
        fill, failed_ms = self._measures.get(address, (0.0, now_ms))
        return max(0.0, fill - (now_ms - failed_ms) * (self.max_per_minute or 0) / MINUTE_MS)
