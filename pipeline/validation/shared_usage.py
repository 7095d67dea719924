"""Figures about workers that share usage."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.replay.rows import Ints


@dataclass(slots=True)
class SharedUsage:
    """Figures about workers that share usage.

    Attributes:
        workers: number of workers that wrote the runs.
        groups: number of groups over all workers, by name.
        remote_records: number of records of another worker's usage.
        remote_units: units in these records.
        skipped_units: units of other workers that were too old to be recorded.
        compared: number of pairs of a decision and another worker that were compared.
        lag_ms_p99, lag_ms_max: age in ms, at the decision, of the oldest usage of the other worker that was not yet known.
        highest_ratio: the highest rate of a group in 10 s over all workers, divided by its bound.
        missing: workers without any file set.
    """

    workers: int = 0
    groups: int = 0
    remote_records: int = 0
    remote_units: int = 0
    skipped_units: int = 0
    compared: int = 0
    lag_ms_p99: int = 0
    lag_ms_max: int = 0
    highest_ratio: float | None = None
    missing: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain data for JSON, without `missing`, which is reported elsewhere."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "missing"}


class Lags:
    """Histogram of lags in ms: the number of occurrences of each value. There are many values and few distinct ones."""

    def __init__(self) -> None:
        self._found: Counter[int] = Counter()

    @property
    def number(self) -> int:
        """The number of values."""
        return self._found.total()

    def add(self, lags_ms: Ints) -> None:
        """Add values in ms."""
        values, counts = np.unique(lags_ms, return_counts=True)
        for lag_ms, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._found[lag_ms] += count

    def within(self, percent: int) -> int:
        """Return a percentile in ms: the smallest value that `percent` of the values do not exceed; 0 when there are no values."""
        left = -(-self.number * percent // 100)
        for lag_ms in sorted(self._found):
            left -= self._found[lag_ms]
            if left <= 0:
                return lag_ms
        return 0
