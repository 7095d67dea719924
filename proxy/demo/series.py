"""The running total of one client over time, and rates from it."""

from bisect import bisect_right

SPAN_MS = 10_000
"""Kafka's quota window without the second that has just begun."""


class Series:
    """Running total over time in ms, of bytes or what else is counted; grows at its end. One thread appends, others read."""

    def __init__(self, start_ms: int = 0) -> None:
        self.start_ms = start_ms
        self._points: list[tuple[int, float]] = []

    def append(self, time_ms: int, total: float) -> None:
        """Note the total at `time_ms`."""
        self._points.append((time_ms, total))

    @property
    def total(self) -> float:
        """All that passed."""
        return self._points[-1][1] if self._points else 0

    @property
    def last_ms(self) -> int:
        """When something passed last."""
        return self._points[-1][0] if self._points else self.start_ms

    @property
    def count(self) -> int:
        """How many records passed."""
        return len(self._points)

    def total_at(self, time_ms: int) -> float:
        """Return what had passed before `time_ms`."""
        at = bisect_right(self._points, (time_ms, -1))
        return self._points[at - 1][1] if at else 0

    def between(self, from_ms: int, to_ms: int) -> float:
        """Return what passed from `from_ms` on and before `to_ms`."""
        return self.total_at(to_ms) - self.total_at(from_ms)

    def per_second(self, seconds: int) -> list[float]:
        """Return what passed in each second since the start."""
        return [self.between(self.start_ms + at * 1_000, self.start_ms + (at + 1) * 1_000) for at in range(seconds)]

    def span_mean(self, time_ms: int) -> float:
        """Return the amount per second over the ten seconds before `time_ms`; what was before the start counts as nothing."""
        return self.between(time_ms - SPAN_MS, time_ms) * 1_000 / SPAN_MS
