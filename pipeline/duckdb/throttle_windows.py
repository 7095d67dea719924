"""Throttle windows: overlapping or adjacent waits of a group as one. NumPy needs a fifth of the time of window functions for them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.duckdb.database import Database
from pipeline.rollup.content.columns import BOOLEAN, LONG

WAITS_AT_ONCE: Final = 4_000_000
"""Approximate number of waits that are in memory at a time."""
_KEY: Final = ("hour_number", "gold_group_number", "applied")
_WINDOWS: Final = pa.schema(
    [
        ("hour_number", LONG),
        ("gold_group_number", LONG),
        ("applied", BOOLEAN),
        *((name, LONG) for name in ("begin_ms", "end_ms", "throttled", "throttle_ms", "waiting_max")),
    ]
)
_Numbers = NDArray[np.int64]


def throttle_windows() -> str:
    """Return a query for throttle windows, in the hour in which they begin, of the table that `put_throttle_windows` makes.

    Throttles that were decided and not applied form separate windows. A wait that extends into the next hour forms another window there,
    since an hour is built from its own files only.
    """
    return """
        SELECT * EXCLUDE (hour_number, gold_group_number)
        FROM windows_here JOIN gold_groups USING (gold_group_number) JOIN hours USING (hour_number)"""


def put_throttle_windows(database: Database) -> None:
    """Make the table `windows_here` of the waits at which the database looks."""
    database.put("windows_here", _WINDOWS.empty_table())
    [(count,)] = database.rows("SELECT count(*) FROM waits_here")
    slices = -(-count // WAITS_AT_ONCE)
    for number in range(slices):
        own = f"WHERE gold_group_number % {slices} = {number}" if slices > 1 else ""
        query = f"SELECT {', '.join(_KEY)}, hour_ms, at_ms, wait_ms FROM waits_here JOIN hours USING (hour_number) {own}"
        database.insert("windows_here", windows_of(database.table(query)))


def windows_of(waits: pa.Table) -> pa.Table:
    """Return the throttle windows of waits above 0 ms, by hour, group and whether they were applied.

    Times count from the beginning of the hour, so that key and time fit into one number.
    """
    if not len(waits):
        return _WINDOWS.empty_table()
    numbers = (waits.column(name).to_numpy().astype(np.int64) for name in (*_KEY, "hour_ms", "at_ms", "wait_ms"))
    hour, group, applied, hour_ms, at_ms, wait_ms = numbers
    at_ms = at_ms - hour_ms
    groups, first_ms = int(group.max()) + 1, int(at_ms.min())
    span_ms = int((at_ms + wait_ms).max()) - first_ms + 1
    at = ((hour * groups + group) * 2 + applied) * span_ms + at_ms - first_ms  # orders by key and time
    order = np.argsort(at, kind="stable")
    at, wait = at[order], wait_ms[order]
    end = at + wait
    begins = np.ones(len(at), np.bool_)
    begins[1:] = at[1:] > np.maximum.accumulate(end)[:-1]
    first = np.flatnonzero(begins)
    key, begin = np.divmod(at[first], span_ms)
    zero_ms = hour_ms[order][first] + first_ms
    columns = [
        key // 2 // groups,
        key // 2 % groups,
        key % 2 > 0,
        begin + zero_ms,
        np.maximum.reduceat(end, first) - key * span_ms + zero_ms,
        np.diff(first, append=len(at)),
        np.add.reduceat(wait, first),
        np.maximum.reduceat(_waiting(at, end), 2 * first),
    ]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, _WINDOWS, strict=True)], schema=_WINDOWS)


def _waiting(at: _Numbers, end: _Numbers) -> _Numbers:
    """Return the number of waits at a time after each beginning and end, in order of time; an end comes before a beginning."""
    edges = np.sort(np.concatenate((2 * at + 1, 2 * end)))
    return np.cumsum(2 * (edges % 2) - 1)
