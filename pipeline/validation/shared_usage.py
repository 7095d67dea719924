"""What was found of workers that share usage, in figures."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.replay.rows import Ints


@dataclass(slots=True)
class SharedUsage:
    """What was found of workers that share usage.

    Attributes:
        workers: how many wrote the runs; `groups` that they have, by name, over all of them.
        remote_records, remote_units: usage that was recorded of another worker; `skipped_units`: was too old for that.
        compared: decisions of which it was looked at how much they knew of each other worker; `lag_ms_p99`, `lag_ms_max`: how long before
            them the oldest of what they did not know was recorded.
        highest_ratio: the highest rate of a group over its bound, in 10 s, over all workers.
        missing: workers that no file set is of.
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
        """Return it as plain data for JSON; what is missing is told of elsewhere."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "missing"}


class Lags:
    """How long usage of another worker was not known, in ms: how often each time was found. They are many, and few of them differ."""

    def __init__(self) -> None:
        self._found: Counter[int] = Counter()

    @property
    def number(self) -> int:
        """How many there are."""
        return self._found.total()

    def add(self, lags_ms: Ints) -> None:
        """Add some."""
        values, counts = np.unique(lags_ms, return_counts=True)
        for lag_ms, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._found[lag_ms] += count

    def within(self, percent: int) -> int:
        """Return the lowest time that so many percent of them do not exceed; 0 where there are none."""
        left = -(-self.number * percent // 100)
        for lag_ms in sorted(self._found):
            left -= self._found[lag_ms]
            if left <= 0:
                return lag_ms
        return 0
