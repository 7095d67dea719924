"""Reads published tables without Spark, for reports and summaries. The number of rows is bounded."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipeline.rollup.published.report_files import newest

_PARTITIONS: Final = pa.schema([("date", pa.string()), ("hour", pa.string())])


def read_table(directory: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of the newest files of a table, up to the file that reaches `ROWS_MAX`; no rows when the table is absent."""
    place = directory / table
    files = [str(path) for path in newest_files(directory, table)]
    if not files:
        return []
    # the newest file may have new columns, and the oldest file replaced ones: the union of both schemas has all columns
    schema = pa.unify_schemas([pq.read_schema(files[0]), pq.read_schema(files[-1]), _PARTITIONS])
    partitioning = ds.partitioning(_PARTITIONS, flavor="hive")
    found = ds.dataset(files, schema=schema, format="parquet", partitioning=partitioning, partition_base_dir=str(place))
    rows: list[dict[str, Any]] = found.to_table().to_pylist()
    return rows


def newest_files(directory: Path, table: str) -> list[Path]:
    """Return the newest files of a table, up to the file that reaches `ROWS_MAX` rows, oldest first."""
    chosen = newest(names_below(directory, table), table, lambda name: int(pq.read_metadata(directory / name).num_rows))
    return [directory / name for name in chosen]


def names_below(directory: Path, *tables: str) -> list[str]:
    """Return the files of some tables of a local directory, by their path below it."""
    return [path.relative_to(directory).as_posix() for table in tables for path in (directory / table).rglob("*.parquet")]
