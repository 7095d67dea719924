"""Figures about workers that share usage."""

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

    def merge(self, other: "SharedUsage") -> None:
        """Add the figures of other groups, or of other workers; those of lags come from `Lags`."""
        self.workers += other.workers
        self.groups += other.groups
        self.remote_records += other.remote_records
        self.remote_units += other.remote_units
        self.skipped_units += other.skipped_units
        ratios = [one for one in (self.highest_ratio, other.highest_ratio) if one is not None]
        self.highest_ratio = max(ratios, default=None)
        self.missing += other.missing

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain data for JSON, without `missing`, which is reported elsewhere."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "missing"}


@dataclass(slots=True)
class Lags:
    """Histogram of lags in ms: the number of occurrences of each value. There are many values and few distinct ones."""

    found: dict[int, int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of values."""
        return sum(self.found.values())

    def add(self, lags_ms: Ints) -> None:
        """Add values in ms."""
        values, counts = np.unique(lags_ms, return_counts=True)
        self.merge(Lags(dict(zip(values.tolist(), counts.tolist(), strict=True))))

    def merge(self, other: "Lags") -> None:
        """Add the values of another histogram."""
        for lag_ms, count in other.found.items():
            self.found[lag_ms] = self.found.get(lag_ms, 0) + count

    def within(self, percent: int) -> int:
        """Return a percentile in ms: the smallest value that `percent` of the values do not exceed; 0 when there are no values."""
        left = -(-self.number * percent // 100)
        for lag_ms in sorted(self.found):
            left -= self.found[lag_ms]
            if left <= 0:
                return lag_ms
        return 0
