"""Clients that have closed their side: how long each is served, and how many of one address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, NamedTuple

from quota.connections.client_address import client_network

UNTAKEN_MS: Final = 4_900
"""So long such a client may take nothing of the answers that are ready for it."""
CONNECTIONS_PER_ADDRESS_MAX: Final = 64


class DepartureStep(NamedTuple):
    """What happens to a connection whose client has closed its side.

    Attributes:
        wake_at_ms: when to ask again.
        aborts_client: the client's socket is dropped with the responses that it does not read; its requests still go on.
        drops: the connection ends, and requests that have not gone on are dropped.
    """

    wake_at_ms: int
    aborts_client: bool = False
    drops: bool = False


class Departure:
    """One client that has closed its side.

    What it sent before goes on one request at a time, at the rate of its quota. TCP does not show whether the client still reads.

    Attributes:
        since_ms: when it closed its side.
    """

    __slots__ = ("_untaken_bytes", "_untaken_since_ms", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self._untaken_bytes = 0
        self._untaken_since_ms = 0

    def next_step(self, untaken_bytes: int, now_ms: int, end_ms: int, *, keeps_requests: bool) -> DepartureStep:
        """Decide what happens to a connection whose client has closed its side.

        Args:
            untaken_bytes: answers that were written to the client and have not left yet.
            now_ms: monotonic milliseconds.
            end_ms: when the connection ends at the latest.
            keeps_requests: whether requests of the client wait to go on.
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
        """Return when answers are dropped if the client takes nothing until then; 0: it has taken all."""
        if not untaken_bytes:
            self._untaken_since_ms = 0
        elif not self._untaken_since_ms or untaken_bytes < self._untaken_bytes:
            self._untaken_since_ms = now_ms
        self._untaken_bytes = untaken_bytes
        return self._untaken_since_ms + UNTAKEN_MS if self._untaken_since_ms else 0


class DepartedClients:
    """The connections that are served although their client has closed its side; a bounded number for each address."""

    def __init__(self) -> None:
        self._address_of: dict[Hashable, str] = {}
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._address_of)

    def enter(self, connection: Hashable, host: str) -> bool:
        """Count a connection; False: its address has as many as it may."""
        address = client_network(host)
        if self._count[address] >= CONNECTIONS_PER_ADDRESS_MAX:
            return False
        self._address_of[connection] = address
        self._count[address] += 1
        return True

    def leave(self, connection: Hashable) -> None:
        """The connection has ended."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            self._count[address] -= 1
            if not self._count[address]:
                del self._count[address]
