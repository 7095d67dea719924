"""The running total of one client over time, and the rates derived from it."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

SPAN_MS = 10_000
"""Kafka's quota window without its newest sample, which has just begun."""


class Series:
    """A running total over time, in the unit of the quota; times are in ms. One thread appends, other threads may read."""

    def __init__(self, start_ms: int = 0) -> None:
        self.start_ms = start_ms
        self._points: list[tuple[int, float]] = []

    @classmethod
    def sum_of(cls, parts: Sequence[Self]) -> Self:
        """Return the sum of series with one start."""
        if len(parts) == 1:
            return parts[0]
        total = cls(min((part.start_ms for part in parts), default=0))
        amount = 0.0
        for time_ms, increase in sorted(step for part in parts for step in part._steps()):
            amount += increase
            total.append(time_ms, amount)
        return total

    def _steps(self) -> list[tuple[int, float]]:
        return [(time_ms, after - before) for (_, before), (time_ms, after) in pairwise([(0, 0.0), *self._points])]

    def append(self, time_ms: int, total: float) -> None:
        """Append the total at `time_ms`."""
        self._points.append((time_ms, total))

    @property
    def total(self) -> float:
        """The newest total."""
        return self._points[-1][1] if self._points else 0

    @property
    def last_ms(self) -> int:
        """Time of the newest entry, in ms."""
        return self._points[-1][0] if self._points else self.start_ms

    @property
    def count(self) -> int:
        """Number of entries; a client appends one for each record."""
        return len(self._points)

    def total_at(self, time_ms: int) -> float:
        """Return the total before `time_ms`."""
        at = bisect_right(self._points, (time_ms, -1))
        return self._points[at - 1][1] if at else 0

    def between(self, from_ms: int, to_ms: int) -> float:
        """Return the amount from `from_ms` (included) to `to_ms` (excluded)."""
        return self.total_at(to_ms) - self.total_at(from_ms)

    def per_second(self, seconds: int) -> list[float]:
        """Return the amount in each second since the start."""
        return [self.between(self.start_ms + at * 1_000, self.start_ms + (at + 1) * 1_000) for at in range(seconds)]

    def span_mean(self, time_ms: int) -> float:
        """Return the mean amount per second over the ten seconds before `time_ms`; time before the start counts as 0."""
        return self.between(time_ms - SPAN_MS, time_ms) * 1_000 / SPAN_MS
