"""Latency of brokers by API: one increment for each response, in buckets that are powers of two."""

from __future__ import annotations

from typing import Final

SHIFT: Final = 18
"""The first bucket ends at 2^18 ns, about a quarter of a millisecond; each of the others at twice the one before."""
_BUCKETS: Final = 64 - SHIFT
EDGES: Final = tuple(range(0, 18, 2))
"""The buckets whose upper edges are shown: up to 17 s, each four times the one before."""
APIS_MAX: Final = 40
"""More kinds of request than any client has are counted together, so that no client can fill a page with them."""


class ApiLatencies:
    """A row of counts for each API that was asked for. Bucket n counts times below 2^(SHIFT + n) ns that the one before did not.

    Attributes:
        rows: by API key, in the order in which they were first asked for.
        other: of unknown APIs, and of those beyond the first 40.
    """

    __slots__ = ("other", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, list[int]] = {}
        self.other = [0] * _BUCKETS

    def of(self, key: int, *, known: bool) -> list[int]:
        """Return the row of an API: who has an answer after `t` ns raises `row[(t >> SHIFT).bit_length()]` by one."""
        row = self.rows.get(key)
        if row is None:
            if not known or len(self.rows) >= APIS_MAX:
                return self.other
            row = self.rows[key] = [0] * _BUCKETS
        return row


def cumulated(row: list[int]) -> list[tuple[float, int]]:
    """Return (upper edge in seconds, answers that took less) for each edge that is shown; the last edge is infinite."""
    counts = list(row)
    shown = [((1 << SHIFT + at) / 1e9, sum(counts[: at + 1])) for at in EDGES]
    return [*shown, (float("inf"), sum(counts))]
