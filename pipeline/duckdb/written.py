"""Writes rows to the files of a table, in the form in which Spark writes them: one file for each hour or day, sorted by all columns."""

from __future__ import annotations

import itertools
import operator
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.duckdb.database import Database
from pipeline.rollup.publish import STAGING

_FILE: Final = "part-0.zstd.parquet"
_PLACES: Final = ("date", "hour", "batch")
"""Columns that are names of directories, and not in the files."""


def write_partition(database: Database, out: Path, table: str, query: str, schema: pa.Schema, partition: Mapping[str, str]) -> int:
    """Write the rows of a query to one file in the staging directory, and return their number.

    Args:
        database: where the query runs.
        out: output directory of the command.
        table: name of the table.
        query: returns the columns of `schema`, in any order, for this partition only.
        schema: columns of the table.
        partition: values of the columns that become directories.
    """
    columns = _columns(schema)
    names = [f'"{name}"' for name in columns.names]
    order = ", ".join(f"{name} NULLS FIRST" for name in names)
    rows = database.batches(f"SELECT {', '.join(names)} FROM ({query}) ORDER BY {order}")
    return write_file(_place(out, table, partition), rows, columns)


def write_hours(database: Database, out: Path, table: str, query: str, schema: pa.Schema) -> int:
    """Write the rows of a query to one file for each hour in the staging directory, and return their number.

    Args:
        database, out, table, schema: as for `write_partition`.
        query: returns the columns of `schema`, in any order, for some hours.
    """
    columns = _columns(schema)
    names = [f'"{name}"' for name in columns.names]
    order = ", ".join(f"{name} NULLS FIRST" for name in names)
    rows = database.batches(f"SELECT {', '.join(names)}, date, hour FROM ({query}) ORDER BY date, hour, {order}")
    pieces = (piece for batch in rows for piece in _by_hour(batch))
    return sum(
        write_file(_place(out, table, {"date": date, "hour": hour}), (its for _, its in hours), columns)
        for (date, hour), hours in itertools.groupby(pieces, key=operator.itemgetter(0))
    )


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """Yield the rows of each hour, with its date and hour. The rows are in order, and the last two columns are date and hour."""
    hours = pc.run_end_encode(pc.binary_join_element_wise(batch.column("date"), batch.column("hour"), " "))
    begin = 0
    for end, text in zip(hours.run_ends.to_pylist(), hours.values.to_pylist(), strict=True):
        date, hour = text.split(" ")
        yield (date, hour), batch.slice(begin, end - begin).drop_columns(["date", "hour"])
        begin = end


def write_rows(out: Path, table: str, rows: Iterable[Mapping[str, Any]], schema: pa.Schema, keys: Iterable[str]) -> int:
    """Write rows that this process has to the staging directory, and return their number."""
    by_partition: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    names = list(keys)
    for row in rows:
        by_partition.setdefault(tuple(row[name] for name in names), []).append(row)
    columns = _columns(schema)
    written = 0
    for values, its in sorted(by_partition.items()):
        made = pa.Table.from_pylist(its, schema=columns)
        ordered = made.sort_by([(name, "ascending") for name in columns.names])
        written += write_file(_place(out, table, dict(zip(names, values, strict=True))), ordered.to_batches(), columns)
    return written


def write_file(folder: Path, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Write one file unless there is no row; return their number. Times have Spark's physical type, so that files of both fit together.

    The file appears when it is complete, since Spark may run a task twice.
    """
    written = 0
    unfinished = folder / f".{_FILE}.{uuid.uuid4().hex}"
    writer: pq.ParquetWriter | None = None
    try:
        for batch in rows:
            if batch.num_rows == 0:
                continue
            if writer is None:
                folder.mkdir(parents=True, exist_ok=True)
                options: dict[str, Any] = {"use_deprecated_int96_timestamps": True, "write_page_checksum": True}
                writer = pq.ParquetWriter(unfinished, schema, compression="zstd", **options)
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            written += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        unfinished.rename(folder / _FILE)
    return written


def _columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in _PLACES])


def _place(out: Path, table: str, partition: Mapping[str, str]) -> Path:
    return Path(out, STAGING, table, *(f"{name}={value}" for name, value in partition.items()))
