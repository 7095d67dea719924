"""Throttles left by departed connections of one group. Times are monotonic milliseconds."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final

THROTTLES_MAX: Final = 1_024
"""Throttles that one group keeps. When more are left, the longest applies to every new connection until it is over."""


class DepartedThrottles:
    """The throttles that connections of one group left, each as the time when it is over."""

    __slots__ = ("_for_all_until_ms", "_until_ms")

    def __init__(self) -> None:
        self._until_ms: list[int] = []  # ascending
        self._for_all_until_ms = 0

    def __len__(self) -> int:
        return len(self._until_ms)

    def leave(self, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
        """Add a throttle.

        Args:
            until_ms: when it is over.
            now_ms: monotonic milliseconds; what is over by then is dropped.
            instead_of_ms: what the same connection left before; taken back if no other connection has taken it.
        """
        throttles = self._until_ms
        at = bisect_right(throttles, instead_of_ms) - 1
        if instead_of_ms and at >= 0 and throttles[at] == instead_of_ms:
            del throttles[at]
        del throttles[: bisect_right(throttles, now_ms)]
        if now_ms < self._for_all_until_ms:
            self._for_all_until_ms = max(self._for_all_until_ms, until_ms)
        elif len(throttles) >= THROTTLES_MAX:
            self._for_all_until_ms = max(throttles[-1], until_ms)
            throttles.clear()
        else:
            insort(throttles, until_ms)

    def longest_until_ms(self, now_ms: int) -> int:
        """Return when the longest throttle is over; 0: none is left."""
        longest_ms = max(self._for_all_until_ms, self._until_ms[-1] if self._until_ms else 0)
        return longest_ms if longest_ms > now_ms else 0

    def take(self, now_ms: int) -> int:
        """Take the longest throttle for a new connection; return when it is over, 0: none is left."""
        if now_ms < self._for_all_until_ms:
            return self._for_all_until_ms
        until_ms = self.longest_until_ms(now_ms)
        if until_ms:
            self._until_ms.pop()
        else:
            self._until_ms.clear()
        return until_ms
