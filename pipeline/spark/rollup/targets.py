"""Where the rows of a roll-up go: the tasks of the last step write them there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from pipeline.rollup.publish import STAGING
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.rollup.shares import File, spread
from pipeline.spark.rollup.writing import RETURNED, WRITTEN, returning, writing
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


class ReturnedFiles:
    """The staging directory of an output directory that only this machine has: tasks return whole files, and they are written here.

    Args:
        folder: the output directory of the roll-up on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def spread(self, files: Sequence[File]) -> dict[File, int]:
        """One job makes all tables."""
        return spread(files)

    def put(self, files: Sequence[File], pieces: DataFrame) -> dict[str, int]:
        """Write the files of one task at a time, after all tasks have ended. The rows are those of `Files`."""
        rows = dict.fromkeys((table for table, _ in files), 0)
        made = pieces.sortWithinPartitions("name", "place").mapInArrow(returning, RETURNED).persist(StorageLevel.DISK_ONLY)
        with reported_in_one_line():
            made.count()
            for row in made.toLocalIterator():
                path = self._folder / STAGING / row["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(row["content"])
                rows[row["name"]] += row["rows"]
        made.unpersist()
        return rows

    def copy_rows(self, folder: Path, rows: Mapping[str, int]) -> None:
        """Do nothing: the folder has the rows."""
