"""Latency of brokers by broker and API: one increment for each response, in buckets of powers of two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

SHIFT: Final = 18
"""The first bucket ends at 2^18 ns, about a quarter of a millisecond; each other one at twice the edge before."""
_BUCKETS: Final = 64 - SHIFT
EDGES: Final = tuple(range(0, 18, 2))
"""The buckets whose upper edges are shown: up to 17 s, each four times the one before."""
APIS_MAX: Final = 40
"""APIs beyond this number are counted together, so that no client can create many series."""

BROKERS_MAX: Final = 64
"""Brokers beyond this number are counted together."""
OTHER_API: Final = -1


class ApiLatencies:
    """A row of counts for each broker and API. Bucket n counts times below 2^(SHIFT + n) ns that are not in a lower bucket.

    The first 40 APIs and the first 64 brokers have rows of their own; `OTHER_API` and "" stand for all others.

    Attributes:
        cells: the rows, by broker and API key.
    """

    __slots__ = ("_apis", "_brokers", "cells")

    def __init__(self) -> None:
        self.cells: dict[tuple[str, int], list[int]] = {}
        self._apis: set[int] = set()
        self._brokers: set[str] = set()

    def of(self, key: int, *, known: bool, broker: str = "") -> list[int]:
        """Return the row of an API at a broker; a response after `t` ns adds one to `row[(t >> SHIFT).bit_length()]`."""
        api = key if known and _has_row(self._apis, key, APIS_MAX) else OTHER_API
        place = (broker if _has_row(self._brokers, broker, BROKERS_MAX) else "", api)
        row = self.cells.get(place)
        if row is None:
            row = self.cells[place] = [0] * _BUCKETS
        return row

    def add(self, broker: str, api: int, row: Iterable[int]) -> None:
        """Add the counts of another process."""
        place = broker, api
        self.cells[place] = sum_of_rows([self.cells.get(place, [0] * _BUCKETS), row])

    @property
    def rows(self) -> dict[int, list[int]]:
        """The rows of APIs over all brokers, in the order of first use, without `other`."""
        rows = self._grouped(1)
        rows.pop(OTHER_API, None)
        return rows

    @property
    def other(self) -> list[int]:
        """The row of unknown APIs, and of those beyond the first 40."""
        return self._grouped(1).get(OTHER_API, [0] * _BUCKETS)

    def by_broker(self) -> dict[str, list[int]]:
        """Return the rows of brokers over all APIs."""
        return self._grouped(0)

    def _grouped(self, at: Literal[0, 1]) -> dict[Any, list[int]]:
        groups: dict[Any, list[list[int]]] = {}
        for place, row in list(self.cells.items()):
            groups.setdefault(place[at], []).append(row)
        return {key: sum_of_rows(rows) for key, rows in groups.items()}


def _has_row(met: set[Any], key: object, rows_max: int) -> bool:
    if key not in met and len(met) < rows_max:
        met.add(key)
    return key in met


def sum_of_rows(rows: Iterable[Iterable[int]]) -> list[int]:
    """Return the sum of rows, bucket by bucket."""
    return [*map(sum, zip(*rows, strict=True))]


def cumulated(row: list[int]) -> list[tuple[float, int]]:
    """Return (upper edge in seconds, number of faster responses) for each shown edge; the last edge is infinite."""
    counts = list(row)
    shown = [((1 << SHIFT + at) / 1e9, sum(counts[: at + 1])) for at in EDGES]
    return [*shown, (float("inf"), sum(counts))]
