"""What this member knows of the connections of the others: the last entries of each, and how many it has not recorded yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from proxy.fleet.connections.entries import CONNECTION, Connections

SILENT_MS: Final = 3_000
"""Time without a message after which the open connections of a member no longer count."""
STALE_MS: Final = 30_000
"""Time after which a number of open connections that is not sent again no longer counts: its sender has lost it."""
FORGET_MS: Final = 60_000
"""Shortest time after which a member that is not heard, and the total of an entry that is not sent, are forgotten."""
ENTRIES_MAX: Final = 65_536
"""Maximum number of entries of a member; beyond it the one that was heard first is forgotten."""


class _Member:
    """One member.

    Attributes:
        heard_ms: time of its last message.
        totals: total and time of each entry, in the order of their time.
        open: number of open connections and time of each entry that has some, in the order of their time.
        open_sum: the sum of these numbers.
    """

    __slots__ = ("heard_ms", "open", "open_sum", "totals")

    def __init__(self) -> None:
        self.heard_ms = self.open_sum = 0
        self.totals: dict[bytes, tuple[int, int]] = {}
        self.open: dict[bytes, tuple[int, int]] = {}

    def take(self, digest: bytes, total: int, recent: int, at_ms: int) -> int:
        """Note the total of an entry; return how much of it is new, at most `recent`."""
        known = self.totals.pop(digest, None)
        if known is None:
            if len(self.totals) >= ENTRIES_MAX:
                del self.totals[next(iter(self.totals))]
            self.totals[digest] = (total, at_ms)
            return recent
        self.totals[digest] = (max(total, known[0]), at_ms)
        return min(max(0, total - known[0]), recent)

    def set_open(self, digest: bytes, count: int, at_ms: int) -> None:
        """Note the number of open connections of an entry."""
        self.open_sum += count - self.open.pop(digest, (0, 0))[0]
        if not count:
            return
        if len(self.open) >= ENTRIES_MAX:
            self._drop_first()
        self.open[digest] = (count, at_ms)

    def _drop_first(self) -> None:
        digest = next(iter(self.open))
        self.open_sum -= self.open.pop(digest)[0]

    def expire(self, now_ms: int, forget_ms: int) -> None:
        """Forget entries that were not sent again for a time."""
        while self.open and now_ms - next(iter(self.open.values()))[1] > STALE_MS:
            self._drop_first()
        while self.totals and now_ms - next(iter(self.totals.values()))[1] > forget_ms:
            del self.totals[next(iter(self.totals))]


class OtherMembers:
    """The connections of all other members, by incarnation and digest.

    Args:
        window_ms: span of the rates.
    """

    def __init__(self, window_ms: int) -> None:
        self._members: dict[int, _Member] = {}
        self._forget_ms = max(FORGET_MS, 2 * window_ms)

    def take(self, incarnation: int, entries: Connections, at_ms: int) -> list[tuple[bytes, int]]:
        """Note entries of a member's message that came at `at_ms`; return what it counted and nobody recorded here.

        What is new is never more than what it counted in the last window: after a longer silence the rest is over.
        """
        member = self._members.setdefault(incarnation, _Member())
        member.heard_ms = max(member.heard_ms, at_ms)
        new: list[tuple[bytes, int]] = []
        for digest, total, recent, count in zip(*(entries[name].tolist() for name in CONNECTION.names or ()), strict=True):
            amount = member.take(digest, total, recent, at_ms)
            member.set_open(digest, count, at_ms)
            if amount:
                new.append((digest, amount))
        return new

    def heard(self, silent_ms: Mapping[int, int], now_ms: int) -> None:
        """Note how long ago the last message of each member came."""
        for incarnation, its_ms in silent_ms.items():
            member = self._members.get(incarnation)
            if member is not None:
                member.heard_ms = max(member.heard_ms, now_ms - its_ms)

    def open_of(self, digest: bytes, now_ms: int) -> int:
        """Return how many connections the members that are not silent have."""
        return sum(
            member.open[digest][0]
            for member in self._members.values()
            if now_ms - member.heard_ms <= SILENT_MS and digest in member.open and now_ms - member.open[digest][1] <= STALE_MS
        )

    def open_sum(self, now_ms: int) -> int:
        """Return the sum of all open connections of the members that are not silent."""
        return sum(member.open_sum for member in self._members.values() if now_ms - member.heard_ms <= SILENT_MS)

    def expire(self, now_ms: int) -> None:
        """Forget members and entries that were not heard for a time."""
        for incarnation, member in list(self._members.items()):
            if now_ms - member.heard_ms > self._forget_ms:
                del self._members[incarnation]
            else:
                member.expire(now_ms, self._forget_ms)


def entries_in(data: bytes) -> Connections:
    """Return the entries in bytes that a process of this program wrote."""
    return np.frombuffer(data, CONNECTION)
