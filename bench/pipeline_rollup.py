"""The same roll-up of packed samples in Spark and in DuckDB: minute and group; decisions, units, waits, highest utilisation."""

from pathlib import Path
from typing import Any

QUERY = """
SELECT group_ref, sample_start_ms - sample_start_ms % 60000 AS minute_ms, sum(n) AS decisions, sum(sum) AS units,
       sum(throttled_n) AS throttled, sum(throttle_ms_sum) AS throttle_ms, max(max_observed / bound) AS utilisation
FROM samples GROUP BY 1, 2
"""
TOTALS = f"SELECT count(*), sum(decisions), sum(units), sum(throttled), sum(throttle_ms), max(utilisation) FROM ({QUERY})"  # noqa: S608 - constants


def with_spark(spark: Any, directory: Path) -> list[Any]:
    """Return the totals of the rolled-up rows."""
    spark.read.parquet(str(directory / "samples")).createOrReplaceTempView("samples")
    return list(spark.sql(TOTALS).collect()[0])


def with_duckdb(_spark: Any, directory: Path) -> list[Any]:
    """Return the totals of the rolled-up rows; as many threads as this process has cores."""
    import os

    import duckdb

    connection = duckdb.connect(config={"threads": len(os.sched_getaffinity(0))})
    files = str(directory / "samples" / "**" / "*.parquet")
    connection.execute(f"CREATE VIEW samples AS SELECT * FROM read_parquet('{files}')")  # noqa: S608 - a path of ours
    row = connection.execute(TOTALS).fetchone()
    assert row is not None
    return list(row)
