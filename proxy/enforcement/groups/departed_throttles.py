"""Throttles left by departed connections of one group. Times are monotonic milliseconds."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import Final, Protocol

THROTTLES_MAX: Final = 1_024
"""Maximum number of throttles per group. With more, the longest applies to every new connection until it ends."""


class DepartedThrottles:
    """The throttles that closed connections of one group left, each as its end time.

    Attributes:
        until_ms: end times, ascending.
        for_all_until_ms: until this time one throttle applies to every new connection, and no other is kept.

    Args:
        throttles_max: maximum number of throttles.
    """

    __slots__ = ("_throttles_max", "for_all_until_ms", "until_ms")

    def __init__(self, until_ms: Iterable[int] = (), for_all_until_ms: int = 0, throttles_max: int = THROTTLES_MAX) -> None:
        self.until_ms = list(until_ms)
        self.for_all_until_ms = for_all_until_ms
        self._throttles_max = throttles_max

    def leave(self, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
        """Add a throttle.

        Args:
            until_ms: end of the throttle.
            now_ms: monotonic milliseconds; throttles that have ended are dropped.
            instead_of_ms: end of the throttle that the same connection left before; it is removed unless a new connection has taken it.
        """
        throttles = self.until_ms
        at = bisect_right(throttles, instead_of_ms) - 1
        if instead_of_ms and at >= 0 and throttles[at] == instead_of_ms:
            del throttles[at]
        del throttles[: bisect_right(throttles, now_ms)]
        if now_ms < self.for_all_until_ms:
            self.for_all_until_ms = max(self.for_all_until_ms, until_ms)
        elif len(throttles) >= self._throttles_max:
            self.for_all_until_ms = max(throttles[-1], until_ms)
            throttles.clear()
        else:
            insort(throttles, until_ms)

    def leave_to_all(self, until_ms: int, now_ms: int) -> None:
        """Let a throttle, and all others, apply to every new connection: the process of many connections has died."""
        self.for_all_until_ms = max(until_ms, self.longest_until_ms(now_ms))
        self.until_ms.clear()

    def longest_until_ms(self, now_ms: int) -> int:
        """Return the end of the longest throttle; 0: there is none."""
        longest_ms = max(self.for_all_until_ms, self.until_ms[-1] if self.until_ms else 0)
        return longest_ms if longest_ms > now_ms else 0

    def ends_after(self, now_ms: int) -> list[int]:
        """Return the ends of all throttles that have not ended."""
        return [until_ms for until_ms in (*self.until_ms, self.for_all_until_ms) if until_ms > now_ms]

    def take(self, now_ms: int) -> int:
        """Take the longest throttle for a new connection; return when it is over, 0: none is left."""
        if now_ms < self.for_all_until_ms:
            return self.for_all_until_ms
        until_ms = self.longest_until_ms(now_ms)
        if until_ms:
            self.until_ms.pop()
        else:
            self.until_ms.clear()
        return until_ms


class ThrottleHolder(Protocol):
    """The state of departed connections that a group keeps.

    Attributes:
        departed_throttles: their throttles; None: no connection has left one yet.
        departed_until_ms: end of the longest of these throttles; 0: there is none.
    """

    departed_throttles: DepartedThrottles | None
    departed_until_ms: int


class HoldsThrottles:
    """Methods for the throttles of departed connections. A mixin of groups, which have the attributes of `ThrottleHolder`."""

    __slots__ = ()

    def departed_until(self: ThrottleHolder, now_ms: int) -> int:
        """Return the end of the longest throttle that departed connections left; 0, or a time up to `now_ms`: there is none."""
        return self.departed_until_ms

    def throttles_known_ms(self, now_ms: int) -> int:
        """Return when this process knows the throttles that connections have just left elsewhere; 0, or a time up to `now_ms`: it does."""
        return 0

    def leave_throttle(self: ThrottleHolder, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
        """Add a throttle; the arguments are those of `DepartedThrottles.leave`."""
        throttles = DepartedThrottles() if self.departed_throttles is None else self.departed_throttles
        throttles.leave(until_ms, now_ms, instead_of_ms=instead_of_ms)
        _keep(self, throttles, now_ms)

    def note_throttled(self: ThrottleHolder, until_ms: int, now_ms: int) -> None:
        """An open connection is throttled: a hook for groups that other processes continue when this one dies."""

    def take_throttle(self: ThrottleHolder, now_ms: int) -> int:
        """Take the longest throttle for a new connection; return when it is over, 0: none is left."""
        if self.departed_throttles is None:
            return 0
        until_ms = self.departed_throttles.take(now_ms)
        _keep(self, self.departed_throttles, now_ms)
        return until_ms


def _keep(holder: ThrottleHolder, throttles: DepartedThrottles, now_ms: int) -> None:
    holder.departed_throttles = throttles
    holder.departed_until_ms = throttles.longest_until_ms(now_ms)
