"""Checks tables that workers write to a local path: rows are counted by the workers and on this machine.

A worker writes `file:` URLs to its own disk. When that is the disk of another machine, the job succeeds and the files are missing here.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.errors import BadInputError, IncompleteError
from pipeline.rollup.publish import STAGING
from pipeline.spark.hadoop_files import hadoop_url
from sluice.object_store import is_url

ON_A_CLUSTER: Final = "name a folder that every worker mounts at this path, or run it here (--master local[*])"
"""Remedy for files that are on the disks of workers only."""
_ROWS: Final = "rows"


def url_of(path: Path | str) -> str:
    """Return a local path as a URL for Spark. Without a scheme, Spark would use the cluster's default file system."""
    return str(path) if is_url(str(path)) else f"file://{path}"


def write_new(option: str, place: Path | str, frame: DataFrame, number: int) -> None:
    """Write a frame to a new directory.

    Args:
        option: the option that names it.
        place: local path, or URL of a file system that Hadoop supports.
        frame: the rows.
        number: their number.

    Raises:
        BadInputError: another number of rows is there.
    """
    where = hadoop_url(place) if isinstance(place, str) else url_of(place.resolve())
    frame.write.parquet(where)
    if isinstance(place, str):
        there, remedy = frame.sparkSession.read.parquet(where).count(), "remove the directory, and run this again"
    else:
        there, remedy = _rows_here(place.rglob("*.parquet")), ON_A_CLUSTER
    if there != number:
        raise BadInputError(f"{option} {place}: the workers wrote {number:,} rows, and {there:,} are there; {remedy}")


def write_rows(frame: DataFrame, out: Path, table: Path, *partitions: str, **options: Any) -> int:
    """Write a frame to `out / table` and return the number of rows there.

    Args:
        frame: the rows.
        out: output directory of the command.
        table: path of the table below `out`.
        partitions: columns that become directories.
        options: options of Spark's Parquet writer.

    Raises:
        BadInputError: the workers wrote more rows than are present on this machine.
    """
    place = (out / table).resolve()
    observed = Observation()
    writer = frame.observe(observed, F.count(F.lit(1)).alias(_ROWS)).write
    writer.partitionBy(*partitions).parquet(url_of(place), **options)
    check_rows(out, table, observed.get[_ROWS], place.rglob("*.parquet"))
    return int(observed.get[_ROWS])


def write_rows_to_url(frame: DataFrame, url: str) -> int:
    """Write a frame to a directory on a file system that Hadoop knows, in place of what is there; return the number of rows there.

    Raises:
        IncompleteError: fewer rows are there than were written.
    """
    observed = Observation()
    frame.observe(observed, F.count(F.lit(1)).alias(_ROWS)).write.parquet(url, mode="overwrite")
    written, there = int(observed.get[_ROWS]), frame.sparkSession.read.parquet(url).count()
    if written != there:
        raise IncompleteError(f"{url}: {written:,} rows were written, and {there:,} are there; let one stream at a time write")
    return there


def check_table(out: Path, table: str, written: int) -> None:
    """Compare the number of rows of a table that workers wrote to the staging directory with the rows in the files on this machine.

    Raises:
        BadInputError: the numbers differ.
    """
    check_rows(out, Path(STAGING, table), written, (out / STAGING / table).rglob("*.parquet"))


def check_rows(out: Path, table: Path, written: int, files: Iterable[Path]) -> None:
    """Compare the number of rows that workers wrote with the rows in the files on this machine.

    Raises:
        BadInputError: the numbers differ.
    """
    here = _rows_here(files)
    if here != written:
        name = next(part for part in table.parts if not part.startswith("."))
        counted = f"the workers wrote {written:,} rows of {name}, and {here:,} are on this machine, so none is published"
        raise BadInputError(f"--out {out}: {counted}; {ON_A_CLUSTER}")


def _rows_here(files: Iterable[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)
