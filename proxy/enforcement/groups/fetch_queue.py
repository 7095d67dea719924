"""The waiting fetches of one group: their order, and the maximum number of bytes that each may return."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from proxy.enforcement.mode import AGE_MAX_MS

WINDOWS_PER_THROTTLE_ROUND = 2  # a window that was filled at once is empty after 11 s, so 25 s have two
ALLOCATED_SHARE = 0.9  # share of the bytes to use; the rest is for responses larger than requested

Place = tuple[int, int, Callable[[], None]]
"""Time of the read in ms, a unique number, and the callback that notifies the fetch."""


class FetchQueue:
    """A queue in the order of the times of the reads. Only the first fetch is checked; when it leaves the queue, the next one is notified.

    The number of connections bounds the length: each connection has at most one place, and leaves it when it closes.
    """

    __slots__ = ("_max_depth", "_max_depth_before", "_max_depth_since_ms", "_numbers", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Place] = []
        self._numbers = 0
        self._max_depth = 0  # the longest queue of this throttle round, and of the previous one
        self._max_depth_before = 0
        self._max_depth_since_ms = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, read_ms: int, notify: Callable[[], None], now_ms: int) -> Place:
        """Add a fetch that was read at `read_ms`; `notify` is called when the fetch should be checked again."""
        self._numbers += 1
        place = (read_ms, self._numbers, notify)
        insort(self._waiting, place)
        self._roll_max_depth(now_ms)
        self._max_depth = max(self._max_depth, len(self))
        return place

    def leave(self, place: Place) -> None:
        """Remove a place; when it was the first one, the next one is notified."""
        at = bisect_left(self._waiting, place)
        del self._waiting[at]
        if at == 0:
            self.notify_first()

    def is_first(self, place: Place, now_ms: int) -> bool:
        """Whether a place is the first one."""
        return self._waiting[0] is place

    def ahead(self, place: Place, now_ms: int) -> int:
        """Return the number of fetches that wait at other members of the fleet and are older than this one."""
        return 0

    def notify_first(self) -> None:
        """Notify the first one, because there may be room."""
        if self._waiting:
            self._waiting[0][2]()

    def share_bytes(self, window_bytes: float, now_ms: int) -> float:
        """Return the maximum number of bytes of one fetch with which all waiting fetches can be forwarded before they have waited 25 s.

        Fetches that left the queue recently are included, since their clients will fetch again.
        """
        self._roll_max_depth(now_ms)
        return window_bytes * WINDOWS_PER_THROTTLE_ROUND * ALLOCATED_SHARE / max(self._max_depth, self._max_depth_before, 1)

    def _roll_max_depth(self, now_ms: int) -> None:
        if now_ms - self._max_depth_since_ms >= AGE_MAX_MS:
            self._max_depth_before = self._max_depth
            self._max_depth = len(self)
            self._max_depth_since_ms = now_ms
