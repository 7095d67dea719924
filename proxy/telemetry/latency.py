"""Latency of brokers by API: one increment for each response, in buckets of powers of two."""

from __future__ import annotations

from typing import Final

SHIFT: Final = 18
"""The first bucket ends at 2^18 ns, about a quarter of a millisecond; each other one at twice the edge before."""
_BUCKETS: Final = 64 - SHIFT
EDGES: Final = tuple(range(0, 18, 2))
"""The buckets whose upper edges are shown: up to 17 s, each four times the one before."""
APIS_MAX: Final = 40
"""APIs beyond this number are counted together, so that no client can create many series."""


class ApiLatencies:
    """A row of counts for each API. Bucket n counts times below 2^(SHIFT + n) ns that are not in a lower bucket.

    Attributes:
        rows: by API key, in the order of first use.
        other: of unknown APIs, and of those beyond the first 40.
    """

    __slots__ = ("other", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, list[int]] = {}
        self.other = [0] * _BUCKETS

    def of(self, key: int, *, known: bool) -> list[int]:
        """Return the row of an API; a response after `t` ns adds one to `row[(t >> SHIFT).bit_length()]`."""
        row = self.rows.get(key)
        if row is None:
            if not known or len(self.rows) >= APIS_MAX:
                return self.other
            row = self.rows[key] = [0] * _BUCKETS
        return row


def cumulated(row: list[int]) -> list[tuple[float, int]]:
    """Return (upper edge in seconds, number of faster responses) for each shown edge; the last edge is infinite."""
    counts = list(row)
    shown = [((1 << SHIFT + at) / 1e9, sum(counts[: at + 1])) for at in EDGES]
    return [*shown, (float("inf"), sum(counts))]
