"""Sends rows to the task of their number. Spark 4.1 and later have a method for this."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

TRIED_MAX: Final = 64
"""Keys that are tried for each task at a time. Of so many, all but one of 10^27 tasks have one."""


def in_tasks(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Return the rows, those with number N of an integer column, from 0 to `count` - 1, in task N."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(count, column)
    keys = F.array(*(F.lit(key) for key in _keys(frame, count)))
    return frame.repartition(count, F.element_at(keys, F.col(column) + 1))


def _keys(frame: DataFrame, count: int) -> list[int]:
    """Return, for each of `count` tasks, an integer that Spark sends to it."""
    tried = frame.sparkSession.range(0, count * TRIED_MAX, 1, 1)
    task = F.pmod(F.hash(F.col("id").cast("int")), F.lit(count))
    found = tried.groupBy(task.alias("task")).agg(F.min("id").cast("int").alias("key")).coalesce(1).orderBy("task").collect()
    assert len(found) == count
    return [row["key"] for row in found]
