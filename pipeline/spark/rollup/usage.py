"""Silver to gold: usage by client. No session, no path, no action, no UDF."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.spark.schemas import CLIENT, USAGE, USAGE_COUNTS

LEVELS: Final = ("minute", "hour", "day")
CLIENT_KEY: Final = [*(name for name, _ in CLIENT), "api_class"]


def usage_by_second(silver: DataFrame) -> DataFrame:
    """Add up, over proxies, nodes and listeners, what each client did in each second; takes rows of USAGE_SILVER without a problem."""
    bytes_ = F.sum(F.col("produce_bytes") + F.col("fetch_bytes"))
    return silver.groupBy("date", "hour", *CLIENT_KEY, "second_ms").agg(
        *(F.sum(name).alias(name) for name in USAGE_COUNTS),
        F.sum("connections_open").alias("connections_open"),
        bytes_.alias("bytes"),
    )


def usage_per(level: str, seconds: DataFrame, coverage: DataFrame) -> DataFrame:
    """Add up seconds to minutes, hours or days; returns USAGE, one row per start, tenant, principal, client-id and API class.

    Args:
        seconds: what `usage_by_second` returns.
        coverage: (date, hour, coverage_percent); of a whole day where `hour` is null.
    """
    percentiles = F.percentile("bytes", F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99))))
    rows = (
        seconds.withColumn("start", start_of(level, F.col("second_ms")))
        .groupBy("date", hour_of(level).alias("hour"), "start", *CLIENT_KEY)
        .agg(
            *(F.sum(name).alias(name) for name in USAGE_COUNTS),
            F.max("connections_open").alias("connections_open_max"),
            F.count("*").alias("seconds_active"),
            F.max("bytes").alias("bytes_per_second_max"),
            percentiles.alias("percentiles"),
        )
        .select("*", *(F.col("percentiles")[at].alias(f"bytes_per_second_p{share}") for at, share in enumerate((50, 95, 99))))
    )
    return with_coverage(rows, coverage).to(USAGE)


def start_of(level: str, milliseconds: Column) -> Column:
    """Return the beginning of the minute, hour or day that a time is in."""
    return F.date_trunc(level, F.timestamp_millis(milliseconds))


def hour_of(level: str) -> Column:
    """Return the hour that a row is filed under; days are filed under none."""
    return F.lit(None).cast("string") if level == "day" else F.col("hour")


def with_coverage(rows: DataFrame, coverage: DataFrame) -> DataFrame:
    """Say on every row how much of what happened in its hour or day is in the data."""
    of = F.broadcast(coverage.select(F.col("date").alias("of_date"), F.col("hour").alias("of_hour"), "coverage_percent"))
    return rows.join(of, (F.col("date") == F.col("of_date")) & F.col("hour").eqNullSafe(F.col("of_hour")), "left").drop(
        "of_date", "of_hour"
    )
