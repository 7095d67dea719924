"""Throttle times of brokers that enforce the quotas, beside Sluice's own: one row of table `comparisons` per response."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from proxy.meter.batch import Fact

WAITING_MAX: Final = 10_000
"""Maximum per flush; only throttled responses are compared, so these are far more than any load causes in a quarter of a second."""
COLUMNS: Final = ("ts_ms", "quota_type", "group_ref", "client_ref", "broker_ms", "sluice_ms")
"""Order of the columns in a segment."""

Row = tuple[int, str, int | None, int | None, int, int]


class Comparisons:
    """The comparisons since the last flush."""

    __slots__ = ("_lost", "_rows")

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._lost = 0

    def add(self, row: Row) -> None:
        """Record one response; those beyond `WAITING_MAX` are only counted."""
        if len(self._rows) < WAITING_MAX:
            self._rows.append(row)
        else:
            self._lost += 1

    def take(self) -> list[Fact]:
        """Return the fact with all rows, or none, and begin again."""
        if not self._rows and not self._lost:
            return []
        fact = {"compared": {"rows": self._rows, "lost": self._lost}}
        self._rows, self._lost = [], 0
        return [fact]

    def lose(self, facts: Iterable[Fact]) -> None:
        """Count rows that could not be handed over."""
        self._lost += sum(len(fact["compared"]["rows"]) + fact["compared"]["lost"] for fact in facts)
