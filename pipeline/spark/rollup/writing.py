"""Last step of a roll-up: a task puts the rows of each of its files together, in order."""

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pipeline.builds.runs import BUILD_ID
from pipeline.duckdb.database import Database, database
from pipeline.duckdb.written import write_partition
from pipeline.rollup.content import columns as columns_of
from pipeline.rollup.content.columns import GROUPS_IN_SERIES
from pipeline.rollup.publish import STAGING
from pipeline.spark.rollup.pieces import pieces_in
from pipeline.spark.rollup.reading import Batches
from pipeline.spark.rollup.shares import tasks_here
from pipeline.spark.worker import settle

WRITTEN: Final = "name string, rows long"
"""Columns that a task returns: the rows of each table that it wrote."""
RETURNED: Final = "name string, path string, rows long, content binary"
"""Columns that a task returns: files of a table with their paths below the staging directory."""
_SCHEMAS: Final = {
    **{
        f"{kind}_{level}": schema
        for level in ("minute", "hour", "day")
        for kind, schema in (("usage", columns_of.USAGE), ("decisions", columns_of.DECISIONS))
    },
    "throttle_histogram": columns_of.HISTOGRAM,
    "throttle_stretches": columns_of.THROTTLE_WINDOWS,
    "rate_series": columns_of.SERIES,
    "escapes": columns_of.ESCAPES,
    "quarantine": columns_of.QUARANTINE,
    "chargeback_day": columns_of.CHARGEBACK,
    "focus_day": columns_of.FOCUS,
    "usage_adjustment": columns_of.ADJUSTMENTS,
    "chargeback_adjustment": pa.schema([*columns_of.CHARGEBACK, ("batch", pa.string())]),
    "focus_adjustment": pa.schema([*columns_of.FOCUS, ("batch", pa.string())]),
}
_SERIES: Final = f"""
    WITH ranked AS (SELECT DISTINCT gold_group_number, rank_waited, rank_used FROM rows),
    chosen AS (
        SELECT gold_group_number FROM ranked
        ORDER BY rank_waited DESC, rank_used DESC NULLS LAST, gold_group_number LIMIT {GROUPS_IN_SERIES})
    SELECT * FROM rows SEMI JOIN chosen USING (gold_group_number)"""
"""Chooses from the groups that the tasks of the step before have chosen."""
_CHARGEBACK: Final = """
    SELECT * EXCLUDE (units, quantity, amount), sum(units)::BIGINT AS units, sum(quantity)::DECIMAL(38, 9) AS quantity,
        sum(amount)::DECIMAL(38, 6) AS amount
    FROM rows GROUP BY ALL"""
"""Adds up the clients of a tenant that several tasks have."""
_QUERIES: Final = {"rate_series": _SERIES, "chargeback_day": _CHARGEBACK, "chargeback_adjustment": _CHARGEBACK}


def schema_of(table: str) -> pa.Schema:
    """Return the columns of a table."""
    return _SCHEMAS[table]


def writing(out: Path) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that write their files to the staging directory of `out`; pieces come in order of their files."""

    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        for table, place, made in _files(batches):
            rows = write_partition(made, out, table, _query(table), schema_of(table), _partition(place))
            yield pa.RecordBatch.from_pydict({"name": pa.array([table]), "rows": pa.array([rows], pa.int64())})
        settle()

    return write


def returning(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Return the files of a task instead of writing them; pieces come in order of their files."""
    for table, place, made in _files(batches):
        with tempfile.TemporaryDirectory(prefix="sluice-rollup-") as folder:
            rows = write_partition(made, Path(folder), table, _query(table), schema_of(table), _partition(place))
            for file in Path(folder, STAGING).rglob("*.parquet"):
                path = str(file.relative_to(Path(folder, STAGING)))
                columns = {"name": [table], "path": [path], "rows": pa.array([rows], pa.int64())}
                yield pa.RecordBatch.from_pydict(columns | {"content": pa.array([file.read_bytes()], pa.binary())})
    settle()


def reading_table(table: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that return the rows of one table."""
    schema = schema_of(table)

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for _, place, made in _files(batches):
            for batch in made.batches(_query(table)):
                yield from _with_places(pa.Table.from_batches([batch]), _partition(place), schema).to_batches()

    return read


def reading_build(table: str, schema: pa.Schema, build_id: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that return the rows of one table, in order, with the columns of `schema` and their build."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for _, place, made in _files(batches):
            for batch in made.batches(f"SELECT * FROM ({_query(table)}) ORDER BY ALL NULLS FIRST"):
                places = {**_partition(place), BUILD_ID: build_id}
                yield from _with_places(pa.Table.from_batches([batch]), places, schema).to_batches()

    return read


def _with_places(rows: pa.Table, place: Mapping[str, str], schema: pa.Schema) -> pa.Table:
    found: dict[str, Any] = {}
    for name in schema.names:
        found[name] = rows.column(name) if name in rows.column_names else pa.repeat(pa.scalar(place.get(name), pa.string()), len(rows))
    return pa.table(found).cast(schema)


def _files(batches: Batches) -> Iterator[tuple[str, str, Database]]:
    """Yield table, partition, and a database with all rows of each file as the table `rows`."""
    for (table, place), pieces in itertools.groupby(pieces_in(batches), key=lambda piece: (piece.name, piece.place)):
        with database(tasks_here()) as made:
            for piece in pieces:
                made.insert("rows", piece.rows)
            yield table, place, made


def _query(table: str) -> str:
    return _QUERIES.get(table, "SELECT * FROM rows")


def _partition(place: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in place.split("/"))
