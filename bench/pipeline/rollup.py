"""The same roll-up of packed samples in Spark and in DuckDB, by minute and sensor: decisions, units, waits, highest utilisation.

Spark's is the pipeline's own (`pipeline.spark.validation.partial_sums`).
"""

import os
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.metering.trace import PROXY_ID, RUN_ID
from pipeline.spark.validation.partial_sums import Source, sums_of
from proxy.metering.files import write_parquet

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
QUERY = """
SELECT run_id, proxy_id, group_ref, sample_start_ms - sample_start_ms % 60000 AS start_ms, sum(n) AS decisions, sum(sum) AS units,
       sum(throttled_n) AS throttled, sum(throttle_ms_sum) AS throttle_ms, max(max_observed / bound) AS utilisation_max
FROM samples GROUP BY 1, 2, 3, 4
"""
TOTALS = "SELECT count(*), sum(decisions), sum(units), sum(throttled), sum(throttle_ms), max(utilisation_max) FROM"


def with_spark(spark: Any, directory: Path) -> list[Any]:
    """Return the totals of the rolled-up rows."""
    sources = [Source(str(path), RUN_ID, PROXY_ID) for path in sorted((directory / "samples").rglob("*.parquet"))]
    sums_of(spark, sources, MINUTE_MS).createOrReplaceTempView("minutes")
    return list(spark.sql(f"{TOTALS} minutes").collect()[0])


def with_duckdb(_spark: Any, directory: Path) -> list[Any]:
    """Return the totals of the rolled-up rows, with as many threads as this process has cores."""
    import duckdb

    connection = duckdb.connect(config={"threads": len(os.sched_getaffinity(0))})
    files = str(directory / "samples" / "**" / "*.parquet")
    connection.execute(f"CREATE VIEW samples AS SELECT * FROM read_parquet('{files}', hive_partitioning = false)")  # noqa: S608 - ours
    row = connection.execute(f"{TOTALS} ({QUERY})").fetchone()
    assert row is not None
    return list(row)


def lengthen(trace: Path, made: Path, hours: int) -> None:
    """Make a directory with copies of a trace's samples, each an hour later, so that the start of a query takes a small share."""
    for path in sorted((trace / "samples").rglob("*.parquet")):
        rows = pq.read_table(path, partitioning=None)
        for hour in range(hours):
            later = rows
            for name in ("sample_start_ms", "last_event_ms", "oldest_start_ms"):
                moved = pc.add(rows.column(name), hour * HOUR_MS)
                later = later.set_column(later.schema.get_field_index(name), later.schema.field(name), moved)
            place = made / "samples" / f"later={hour}" / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            write_parquet(later, place)
