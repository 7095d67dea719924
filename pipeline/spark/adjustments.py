"""Late data of closed days: what stands is never changed; rows to be added stand beside it."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.rollup.inputs import Input
from pipeline.rollup.publish import publish_batch, staging
from pipeline.rollup.settings import RollupResult, RollupSettings
from pipeline.spark.charges import chargeback_of, charges_of, focus_of
from pipeline.spark.days import day_frame, price_frame
from pipeline.spark.frames import Silver
from pipeline.spark.schemas import ADJUSTMENTS, USAGE_COUNTS
from pipeline.spark.usage import CLIENT_KEY, start_of


def batch_of(late: Sequence[Input]) -> str:
    """Return a name for some file sets that is the same whenever they come together."""
    return hashlib.sha256("".join(sorted(item.sha256 for item in late)).encode()).hexdigest()[:16]


def adjustments_of(usage: DataFrame, batch: str) -> DataFrame:
    """Add up late usage by day, client and API class; takes rows of USAGE_SILVER without a problem, returns ADJUSTMENTS."""
    start = start_of("day", F.col("second_ms")).alias("start")
    rows = usage.groupBy("date", start, *CLIENT_KEY).agg(*(F.sum(name).alias(name) for name in USAGE_COUNTS))
    return rows.withColumn("batch", F.lit(batch)).to(ADJUSTMENTS)


def add_adjustments(
    spark: SparkSession, settings: RollupSettings, source: str, late: Sequence[Input], result: RollupResult, tell: Callable[[str], None]
) -> None:
    """Publish what late file sets add to closed days.

    Raises:
        BadInputError, IncompleteError: as for any other file set.
    """
    tell(f"reading {len(late)} late file sets of closed days")
    silver = Silver(spark, source, late, settings.tenants)
    silver.check()
    result.usage_quarantined += sum(silver.usage_problems.values())
    result.decisions_quarantined += silver.decision_problems
    batch = batch_of(late)
    rows = adjustments_of(silver.usage.where("problem is null"), batch).persist()
    frames = {"usage_adjustment": rows}
    if settings.prices is not None:
        charges = charges_of(rows, price_frame(spark, settings.prices), settings.prices.currency, F.lit(batch))
        frames["chargeback_adjustment"] = chargeback_of(charges, day_frame(spark, late, {})).withColumn("batch", F.lit(batch))
        frames["focus_adjustment"] = focus_of(charges).withColumn("batch", F.lit(batch))
    with staging(settings.out) as place:
        for table, frame in frames.items():
            frame.coalesce(1).sortWithinPartitions("date").write.partitionBy("date", "batch").parquet(
                str(place / table), compression="zstd"
            )
            result.tables[table] = _rows_in(place / table)
        for table in frames:
            publish_batch(settings.out, table, sorted({item.hour[0] for item in late}), batch)
    rows.unpersist()
    silver.release()


def _rows_in(place: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in place.rglob("*.parquet"))
