"""Throttles that connections of one group left behind when they ended. Times are monotonic milliseconds."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final

DEBTS_MAX: Final = 1_024
"""Of one group. When more are left the longest one holds for every new connection until it is over."""


class DepartedDebts:
    """The debts that connections of one group left, each as the time at which it is over."""

    __slots__ = ("_for_all_until_ms", "_until_ms")

    def __init__(self) -> None:
        self._until_ms: list[int] = []  # ascending
        self._for_all_until_ms = 0

    def __len__(self) -> int:
        return len(self._until_ms)

    def leave(self, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
        """Add a debt.

        Args:
            until_ms: when it is over.
            now_ms: monotonic milliseconds; what is over by then is dropped.
            instead_of_ms: what the same connection left before; taken back if no other connection has taken it.
        """
        debts = self._until_ms
        at = bisect_right(debts, instead_of_ms) - 1
        if instead_of_ms and at >= 0 and debts[at] == instead_of_ms:
            del debts[at]
        del debts[: bisect_right(debts, now_ms)]
        if now_ms < self._for_all_until_ms:
            self._for_all_until_ms = max(self._for_all_until_ms, until_ms)
        elif len(debts) >= DEBTS_MAX:
            self._for_all_until_ms = max(debts[-1], until_ms)
            debts.clear()
        else:
            insort(debts, until_ms)

    def longest_until_ms(self, now_ms: int) -> int:
        """Return when the longest debt is over; 0: none is left."""
        longest_ms = max(self._for_all_until_ms, self._until_ms[-1] if self._until_ms else 0)
        return longest_ms if longest_ms > now_ms else 0

    def take(self, now_ms: int) -> int:
        """Take the longest debt for a new connection; return when it is over, 0: none is left."""
        if now_ms < self._for_all_until_ms:
            return self._for_all_until_ms
        until_ms = self.longest_until_ms(now_ms)
        if until_ms:
            self._until_ms.pop()
        else:
            self._until_ms.clear()
        return until_ms
