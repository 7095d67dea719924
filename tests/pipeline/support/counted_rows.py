"""The rows of a roll-up that readers count, as text and in order: in tables whose rows have a build, and in a directory of files."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from pipeline.rollup.published.ddl import TABLES
from tests.pipeline.support.build_places import Place
from tests.pipeline.support.build_views import attach

Rows = dict[str, list[str]]
"""By table."""


def counted(place: Place, names: Iterable[str] = TABLES) -> Rows:
    """Return what readers count: DuckDB executes the printed views on the tables."""
    with duckdb.connect() as engine:
        attach(engine, place.tables("runs", *names))
        found = {}
        for name in names:
            rows = engine.sql(f"SELECT * EXCLUDE (build_id) FROM sluice_views.{name}").to_arrow_table()
            found[name] = in_order(rows.to_pylist())
        return found


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps({name: text_of(value) for name, value in sorted(row.items())}) for row in rows)


def text_of(value: Any) -> str:
    """Return a cell as text. In files times have no time zone, and are in UTC; engines add up floating-point numbers in their own order."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value)


def of_directory(out: Path) -> Rows:
    """Return the rows of the files of each table, with the columns that are folders."""
    found: Rows = {}
    for name in TABLES:
        rows = []
        for path in (out / name).rglob("*.parquet"):
            folders = dict(part.split("=") for part in path.relative_to(out / name).parts[:-1])
            rows += [row | folders for row in pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us").to_pylist()]
        found[name] = in_order(rows)
    return found
