"""Checks tables that workers write to a path of this machine: rows are counted on both sides.

A worker writes `file:` to its own disk. Where that is another one than this machine's, the job ends well and the files are not here.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.errors import BadInputError
from pipeline.spark.remote import is_remote

_ROWS: Final = "rows"


def url_of(path: Path | str) -> str:
    """Return a path as Spark takes it: without a scheme it would be one of the cluster's default file system."""
    return str(path) if is_remote(str(path)) else f"file://{path}"


def write_rows(frame: DataFrame, out: Path, table: Path, *partitions: str, **options: Any) -> int:
    """Write a frame to `out / table` and return how many rows are there.

    Args:
        out: where the command writes to.
        partitions: columns that become directories.
        options: of Spark's Parquet writer.

    Raises:
        BadInputError: the workers wrote more rows than are here.
    """
    place = (out / table).resolve()
    observed = Observation()
    writer = frame.observe(observed, F.count(F.lit(1)).alias(_ROWS)).write
    writer.partitionBy(*partitions).parquet(url_of(place), **options)
    check_rows(out, table, observed.get[_ROWS], place.rglob("*.parquet"))
    return int(observed.get[_ROWS])


def check_rows(out: Path, table: Path, written: int, files: Iterable[Path]) -> None:
    """Compare the rows that workers wrote with those of the files that are here.

    Raises:
        BadInputError: there are others.
    """
    here = sum(pq.read_metadata(file).num_rows for file in files)
    if here != written:
        name = next(part for part in table.parts if not part.startswith("."))
        counted = f"the workers wrote {written:,} rows of {name}, and {here:,} are on this machine, so none is published"
        remedy = "name a folder that every worker mounts at this path, or run it here (--master local[*])"
        raise BadInputError(f"--out {out}: {counted}; {remedy}")
