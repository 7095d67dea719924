"""Connections at other members of addresses that have no rate here yet. The address itself is not known, only its digest."""

from __future__ import annotations

from typing import Final

ADDRESSES_MAX: Final = 65_536
"""Maximum number of addresses, as of rates; beyond it the one that was counted first is forgotten."""
GRAIN_MS: Final = 100
"""Connections within this time are kept as one number, at the time of the first."""


class Unclaimed:
    """What was counted within the window, by digest.

    Args:
        span_ms: length of the window.
    """

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        self._counts: dict[bytes, list[tuple[int, int]]] = {}  # times and numbers, in the order of the last time

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, digest: bytes, connections: int, at_ms: int) -> None:
        """Count connections."""
        counts = self._within(self._counts.pop(digest, []), at_ms)
        if counts and at_ms - counts[-1][0] < GRAIN_MS:
            connections += counts[-1][1]
            at_ms = counts.pop()[0]
        counts.append((at_ms, connections))
        if len(self._counts) >= ADDRESSES_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[digest] = counts

    def pop(self, digest: bytes, now_ms: int) -> list[tuple[int, int]]:
        """Remove and return what was counted within the window, oldest first: times in ms and numbers."""
        return self._within(self._counts.pop(digest, []), now_ms)

    def _within(self, counts: list[tuple[int, int]], now_ms: int) -> list[tuple[int, int]]:
        return [one for one in counts if now_ms - one[0] < self._span_ms]

    def expire(self, now_ms: int) -> None:
        """Forget addresses without a connection within the window."""
        while self._counts:
            digest, counts = next(iter(self._counts.items()))
            if now_ms - counts[-1][0] < self._span_ms:
                return
            del self._counts[digest]
