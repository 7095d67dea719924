"""The tables of a roll-up as data frames, which Spark computes when they are used."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.rollup.coverage import coverage_by_day
from pipeline.spark.rollup.building import Wanted
from pipeline.spark.rollup.checked import CheckedRows
from pipeline.spark.rollup.shares import spread_by_table
from pipeline.spark.rollup.writing import reading_table, schema_of


class Frames:
    """The tables by name. Their rows are cached at their first use, until `release`."""

    def __init__(self, rows: CheckedRows) -> None:
        self._rows = rows
        hours = tuple(sorted(rows.coverage))
        days = coverage_by_day(rows.coverage)
        files, pieces = rows.seconds.pieces_of_tables(Wanted(hours, tuple(days), rows.coverage, days), spread_by_table)
        self._pieces = pieces.persist(StorageLevel.DISK_ONLY)
        self.frames: dict[str, DataFrame] = {table: self._frame(table) for table in dict(files)}

    def _frame(self, table: str) -> DataFrame:
        own = self._pieces.where(f"name = '{table}'").sortWithinPartitions("place")
        return own.mapInArrow(reading_table(table), from_arrow_schema(schema_of(table)))

    def release(self) -> None:
        """Release the cached rows."""
        self._pieces.unpersist()
        self._rows.seconds.release()
