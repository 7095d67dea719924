"""Sends rows and works to tasks by their number. Spark 4.1 and later have a method for rows."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

W = TypeVar("W")

Batches = Iterator[pa.RecordBatch]

TOGETHER_MAX: Final = 64
"""Highest number of tasks that all get the work of all."""
_WORK: Final = "task int, work binary"
TRIED_MAX: Final = 64
"""Keys that are tried for each task at a time. Of so many, all but one of 10^27 tasks have one."""


def in_tasks(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Return the rows, those with number N of an integer column, from 0 to `count` - 1, in task N."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(count, column)
    keys = F.array(*(F.lit(key) for key in _keys(frame, count)))
    return frame.repartition(count, F.element_at(keys, F.col(column) + 1))


def work_in_tasks(spark: SparkSession, works: Sequence[bytes], do: Callable[[Iterable[bytes]], Batches], schema: str) -> DataFrame:
    """Return what `do` makes of each work, in a task for each.

    The works of few tasks are a part of their function, which saves a shuffle. Of many tasks each gets its own work only: what all get
    would grow by the square of their number.

    Args:
        spark: the session.
        works: the work of each task.
        do: gets the works of a task, and returns rows.
        schema: of these rows.
    """
    count = max(1, len(works))
    if count <= TOGETHER_MAX:
        return spark.range(0, len(works), 1, count).mapInArrow(lambda batches: do(works[task] for task in _values(batches)), schema)
    rows = in_tasks(spark.createDataFrame(list(enumerate(works)), _WORK), count, "task").select("work")
    return rows.mapInArrow(lambda batches: do(_values(batches)), schema)


def packed(work: object) -> bytes:
    """Return a work as bytes. Manifests of a run differ in little, so that they are compressed."""
    return zlib.compress(msgspec.json.encode(work), 1)


def unpacked(data: bytes, of: type[W]) -> W:
    """Return the work again, of its type."""
    return msgspec.json.decode(zlib.decompress(data), type=of)


def _values(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    return (value for batch in batches for value in batch.column(0).to_pylist())


def _keys(frame: DataFrame, count: int) -> list[int]:
    """Return, for each of `count` tasks, an integer that Spark sends to it."""
    tried = frame.sparkSession.range(0, count * TRIED_MAX, 1, 1)
    task = F.pmod(F.hash(F.col("id").cast("int")), F.lit(count))
    found = tried.groupBy(task.alias("task")).agg(F.min("id").cast("int").alias("key")).coalesce(1).orderBy("task").collect()
    assert len(found) == count
    return [row["key"] for row in found]
