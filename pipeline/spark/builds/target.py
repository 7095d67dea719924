"""The rows of a roll-up in tables of Iceberg or Delta, and back in a folder of this machine for the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.builds.publishing import schema_of
from pipeline.rollup.published.ddl import TABLES
from pipeline.rollup.published.report_files import LEVELS, NEWEST, ROWS_MAX, SUMMED, WHOLE
from pipeline.spark.builds.store import SparkStore
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.rollup.shares import File, spread_by_table
from pipeline.spark.rollup.writing import reading_build

_ROWS: Final = "rows"


class Builds:
    """A `Target`: tables whose rows have a build."""

    def __init__(self, store: SparkStore, build_id: str) -> None:
        self._store, self._build_id = store, build_id

    def spread(self, files: Sequence[File]) -> dict[File, int]:
        """Each table has a job of its own, which is one commit."""
        return spread_by_table(files)

    def put(self, files: Sequence[File], pieces: DataFrame) -> dict[str, int]:
        """Append the rows of each table."""
        self._store.prepare()
        held = pieces.persist(StorageLevel.DISK_ONLY)
        with reported_in_one_line():
            present = {row["name"] for row in held.select("name").distinct().collect()}
            rows = {table: self._append(table, held) if table in present else 0 for table in dict(files)}
        held.unpersist()
        return rows

    def _append(self, table: str, pieces: DataFrame) -> int:
        schema = schema_of(TABLES[table])
        own = pieces.where(F.col("name") == table).sortWithinPartitions("place")
        rows = own.mapInArrow(reading_build(table, schema, self._build_id), from_arrow_schema(schema))
        observed = Observation()
        self._store.append(table, rows.observe(observed, F.count(F.lit(1)).alias(_ROWS)))
        return int(observed.get[_ROWS])

    def copy_rows(self, folder: Path, rows: Mapping[str, int]) -> None:
        """Write the rows that a summary and a report of the build show to a folder, as the local engine leaves them there.

        Args:
            folder: the output directory of the roll-up.
            rows: number of rows that the build has, by table.
        """
        has = [table for table, number in rows.items() if number]
        sums = [table for kind in SUMMED for table in [f"{kind}_{level}" for level in LEVELS if f"{kind}_{level}" in has][:1]]
        for table in {*sums, *WHOLE, *NEWEST}.intersection(has):
            partitions = TABLES[table].partitions
            frame = self._store.rows_of(table, self._build_id)
            if table in NEWEST:
                frame = frame.orderBy(*(F.desc(column) for column in partitions)).limit(ROWS_MAX)
            with reported_in_one_line():
                _write(folder / table, frame, partitions)


def _write(folder: Path, rows: DataFrame, partitions: Sequence[str]) -> None:
    ds.write_dataset(rows.toArrow(), folder, format="parquet", partitioning=list(partitions), partitioning_flavor="hive")
