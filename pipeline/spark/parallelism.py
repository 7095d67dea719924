"""How many tasks a session runs side by side, with classic Spark and with Spark Connect, and how Spark divides small files among tasks."""

from typing import Any, Final

TASKS_PER_CORE: Final = 2
FOR_MANY_FILES: Final = {
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",  # Spark's default is a task for each of up to 10,000 folders
    "spark.sql.sources.ignoreDataLocality": "true",  # a file's content passes a shuffle, and some file systems are asked for each file
    "spark.sql.files.openCostInBytes": str(128 * 2**10),  # by default 32 files are a task, which takes longer than to read them
}
"""Settings for readers of many small files."""
_ROWS: Final = 65_536
"""More rows than a cluster has cores, so that no part is empty."""


def parallelism_of(spark: Any) -> int:
    """Return the number of parts that Spark makes where nothing else is said: the number of cores of the executors.

    A client of Spark Connect cannot ask for it, so it counts the parts of such a frame in a small job.
    """
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    from pyspark.sql import functions as F

    parts = spark.range(_ROWS).select(F.spark_partition_id().alias("part"))
    return int(parts.agg(F.max("part")).collect()[0][0]) + 1
