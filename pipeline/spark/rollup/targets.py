"""Where the rows of a roll-up go: the tasks of the last step write them there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame

from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.rollup.shares import File, spread
from pipeline.spark.rollup.writing import WRITTEN, writing
from pipeline.spark.written import check_table


class Target(Protocol):
    """A place for rows."""

    def spread(self, files: Sequence[File]) -> dict[File, int]:
        """Return the task that writes the rows of each table and partition."""

    def put(self, files: Sequence[File], pieces: DataFrame) -> dict[str, int]:
        """Write rows, and return their number by table; no row is published yet.

        Args:
            files: table and partition of all rows that there can be.
            pieces: the rows as PIECES, each in its task.

        Raises:
            BadInputError, IncompleteError: a row cannot be made or written.
        """


class Files:
    """The staging directory of an output directory that this machine and all workers have at the same path."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def spread(self, files: Sequence[File]) -> dict[File, int]:
        """One job writes all tables."""
        return spread(files)

    def put(self, files: Sequence[File], pieces: DataFrame) -> dict[str, int]:
        """Write one sorted file for each table and partition. The same input gives the same rows in the same order."""
        with reported_in_one_line():
            written = pieces.sortWithinPartitions("name", "place").mapInArrow(writing(self._out.resolve()), WRITTEN).collect()
        rows = dict.fromkeys((table for table, _ in files), 0)
        for row in written:
            rows[row["name"]] += row["rows"]
        for table, number in rows.items():
            check_table(self._out, table, number)
        return rows
