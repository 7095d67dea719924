"""Throttles of brokers that keep the quotas beside Sluice's own: noted answer by answer, as rows of the table `comparisons`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from proxy.meter.batch import Fact

WAITING_MAX: Final = 10_000
"""Of one flush; only throttled responses come here, so these are far more than any load makes in a quarter of a second."""
COLUMNS: Final = ("ts_ms", "quota_type", "group_ref", "client_ref", "broker_ms", "sluice_ms")
"""Order of a row in a segment."""

Row = tuple[int, str, int | None, int | None, int, int]


class Comparisons:
    """What was compared since the last flush."""

    __slots__ = ("_lost", "_rows")

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._lost = 0

    def add(self, row: Row) -> None:
        """Note one answer; what is beyond `WAITING_MAX` is only counted."""
        if len(self._rows) < WAITING_MAX:
            self._rows.append(row)
        else:
            self._lost += 1

    def take(self) -> list[Fact]:
        """Return the fact that says it all, or none, and begin anew."""
        if not self._rows and not self._lost:
            return []
        fact = {"compared": {"rows": self._rows, "lost": self._lost}}
        self._rows, self._lost = [], 0
        return [fact]

    def lose(self, facts: Iterable[Fact]) -> None:
        """Count what was taken and could not be handed over."""
        self._lost += sum(len(fact["compared"]["rows"]) + fact["compared"]["lost"] for fact in facts)
