"""Clients that have closed their side: how long each is served, and how many per address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, NamedTuple

from quota.connections.client_address import client_network

UNTAKEN_MS: Final = 4_900
"""Longest time in which such a client may read nothing of its responses."""
CONNECTIONS_PER_ADDRESS_MAX: Final = 64


class DepartureStep(NamedTuple):
    """What to do with a connection whose client has closed its side.

    Attributes:
        wake_at_ms: when to check again.
        aborts_client: close the client's socket and drop the responses that it does not read; its requests are still forwarded.
        drops: end the connection, and drop requests that were not forwarded.
    """

    wake_at_ms: int
    aborts_client: bool = False
    drops: bool = False


class Departure:
    """One client that has closed its side.

    The requests it sent before are forwarded one at a time, at the rate of its quota. TCP does not show whether the client still reads.

    Attributes:
        since_ms: when it closed its side.
    """

    __slots__ = ("_untaken_bytes", "_untaken_since_ms", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self._untaken_bytes = 0
        self._untaken_since_ms = 0

    def next_step(self, untaken_bytes: int, now_ms: int, end_ms: int, *, keeps_requests: bool) -> DepartureStep:
        """Decide what to do with the connection.

        Args:
            untaken_bytes: bytes written to the client that are still unsent.
            now_ms: monotonic milliseconds.
            end_ms: when the connection ends at the latest.
            keeps_requests: whether requests of the client wait to be forwarded.
        """
        if now_ms >= end_ms:
            return DepartureStep(0, drops=True)
        drop_ms = self._drops_answers_at_ms(untaken_bytes, now_ms)
        if not drop_ms:
            return DepartureStep(end_ms)
        if now_ms < drop_ms:
            return DepartureStep(min(end_ms, drop_ms))
        return DepartureStep(end_ms, aborts_client=True) if keeps_requests else DepartureStep(0, drops=True)

    def _drops_answers_at_ms(self, untaken_bytes: int, now_ms: int) -> int:
        """Return when responses are dropped if the client reads nothing until then; 0: no bytes are unsent."""
        if not untaken_bytes:
            self._untaken_since_ms = 0
        elif not self._untaken_since_ms or untaken_bytes < self._untaken_bytes:
            self._untaken_since_ms = now_ms
        self._untaken_bytes = untaken_bytes
        return self._untaken_since_ms + UNTAKEN_MS if self._untaken_since_ms else 0


class DepartedClients:
    """The connections that are served after their client has closed its side; a limited number per address."""

    def __init__(self) -> None:
        self._address_of: dict[Hashable, str] = {}
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._address_of)

    def enter(self, connection: Hashable, host: str) -> bool:
        """Add a connection; False: its address has reached the limit."""
        address = client_network(host)
        if self._count[address] >= CONNECTIONS_PER_ADDRESS_MAX:
            return False
        self._address_of[connection] = address
        self._count[address] += 1
        return True

    def leave(self, connection: Hashable) -> None:
        """Remove a connection that has ended."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            self._count[address] -= 1
            if not self._count[address]:
                del self._count[address]
