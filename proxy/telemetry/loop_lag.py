"""Statistics of the event loop's lag."""

from typing import Final

PERIOD_MS: Final = 60_000


class LoopLag:
    """Written by the watchdog's thread, read by a scrape."""

    __slots__ = ("_before_ms", "_period", "_period_max_ms", "last_ms", "stalls")

    def __init__(self) -> None:
        self.last_ms = 0.0
        self.stalls = 0
        self._period = 0
        self._period_max_ms = 0.0
        self._before_ms = 0.0

    def record(self, lag_ms: float, now_ms: int) -> None:
        """Record that a callback ran `lag_ms` after its time."""
        self._turn(now_ms)
        self.last_ms = lag_ms
        self._period_max_ms = max(self._period_max_ms, lag_ms)

    def max_ms(self) -> float:
        """Return the longest lag of the last one to two minutes."""
        return max(self._before_ms, self._period_max_ms)

    def _turn(self, now_ms: int) -> None:
        period = now_ms // PERIOD_MS
        if period == self._period:
            return
        self._before_ms = self._period_max_ms if period == self._period + 1 else 0.0
        self._period, self._period_max_ms = period, 0.0
