"""Compares the tables that two engines have published: files, columns and rows."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TOLERANCE = 1e-9
"""Relative difference of two sums of doubles in different orders."""


def assert_equal_tables(one: Path, other: Path) -> dict[str, int]:
    """Assert that both directories have the same tables, partitions, columns, and rows in the same order; return rows by table."""
    partitions = _partitions(one)
    assert partitions == _partitions(other)
    rows: dict[str, int] = {}
    for place in partitions:
        its, others = (_read(directory / place) for directory in (one, other))
        assert [(field.name, field.type) for field in its.schema] == [(field.name, field.type) for field in others.schema], place
        assert len(its) == len(others), place
        for left, right in zip(_rows(place, its), _rows(place, others), strict=True):
            for name in left:
                assert _are_equal(name, left[name], right[name]), (place, name, left, right)
        rows[place.parts[0]] = rows.get(place.parts[0], 0) + len(its)
    return rows


def _partitions(directory: Path) -> list[Path]:
    return sorted({path.parent.relative_to(directory) for path in directory.rglob("*.parquet")})


def _read(place: Path) -> pa.Table:
    """Return the rows of a partition, which is one file."""
    (path,) = place.glob("*.parquet")
    return pq.read_table(path, partitioning=None)


def _rows(place: Path, table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows; those of adjustments have no order."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=str) if place.parts[0].endswith("_adjustment") else rows


def _are_equal(name: str, one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if name in ("row", "Tags"):
        return bool(json.loads(one) == json.loads(other))
    return bool(one == other)
