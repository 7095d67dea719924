"""Sums published rows over hours and days without Spark. Columns are read one at a time, which bounds memory for years of rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def added_up(
    files: Sequence[Path], key: Sequence[str], sums: Sequence[str], maxima: Sequence[str] = (), before: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return one row for each key, with sums and maxima under their own names.

    The mean bound is weighted by active seconds.

    Args:
        files: paths of published Parquet files.
        key: columns to group by.
        sums: columns to add.
        maxima: columns to take the maximum of.
        before: the substitute for each column that files of an earlier version lack.
    """
    names = [*key, *sums, *maxima]
    tables = [_columns(path, names, before or {}) for path in files]
    if not tables:
        return []
    rows = pa.concat_tables(tables, promote_options="permissive")
    wanted = [(name, "sum") for name in sums] + [(name, "max") for name in maxima]
    made = rows.group_by(list(key), use_threads=False).aggregate(wanted)
    return list(made.rename_columns([*key, *sums, *maxima]).to_pylist())


def _columns(path: Path, names: Sequence[str], before: Mapping[str, str]) -> pa.Table:
    table = pq.read_table(path, partitioning=None)
    return pa.table({name: _column(table, name, before) for name in names})


def _column(table: pa.Table, name: str, before: Mapping[str, str]) -> Any:
    if name in _WEIGHTED:
        bound, seconds = table.column("bound_mean").cast(pa.float64()), table.column("seconds_active")
        limited = pc.if_else(pc.is_valid(bound), seconds, 0)
        return limited if name == "limited_seconds" else pc.multiply(pc.fill_null(bound, 0.0), limited)
    for there in (name, before.get(name, "")):
        if there in table.column_names:
            return table.column(there)
    return pa.nulls(len(table))


_WEIGHTED: Final = ("bound_seconds", "limited_seconds")
"""Two derived columns, which weight the mean bound of several rows."""
