"""Silver to gold: usage by client. No session, path, action or UDF."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.rollup.content.columns import CLIENT, DAY_MS, HOUR_MS, MINUTE_MS, USAGE_COUNTS
from pipeline.spark.schemas import USAGE

LEVELS: Final = ("minute", "hour", "day")
CLIENT_KEY: Final = [*(name for name, _ in CLIENT), "api_class"]


def usage_by_second(silver: DataFrame) -> DataFrame:
    """Return the sums of each client's usage by second, over proxies, nodes and listeners; takes USAGE_SILVER without problems."""
    bytes_ = F.sum(F.col("produce_bytes") + F.col("fetch_bytes"))
    return silver.groupBy("date", "hour", *CLIENT_KEY, "second_ms").agg(
        *(F.sum(name).alias(name) for name in USAGE_COUNTS),
        F.sum("connections_open").alias("connections_open"),
        bytes_.alias("bytes"),
    )


def usage_per(level: str, seconds: DataFrame, coverage: DataFrame) -> DataFrame:
    """Return USAGE: sums of seconds by minute, hour or day, one row per start, tenant, principal, client-id and API class.

    Args:
        level: minute, hour or day.
        seconds: the result of `usage_by_second`.
        coverage: (date, hour, coverage_percent); `hour` is null for a whole day.
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
    """Return the start of the minute, hour or day in UTC of a time in ms, whatever the time zone of the session is."""
    unit_ms = {"minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}[level]
    return F.timestamp_millis(milliseconds - F.pmod(milliseconds, F.lit(unit_ms)))


def hour_of(level: str) -> Column:
    """Return the hour that a row is stored under; null for days."""
    return F.lit(None).cast("string") if level == "day" else F.col("hour")


def with_coverage(rows: DataFrame, coverage: DataFrame) -> DataFrame:
    """Add the coverage of its hour or day to every row."""
    of = F.broadcast(coverage.select(F.col("date").alias("of_date"), F.col("hour").alias("of_hour"), "coverage_percent"))
    return rows.join(of, (F.col("date") == F.col("of_date")) & F.col("hour").eqNullSafe(F.col("of_hour")), "left").drop(
        "of_date", "of_hour"
    )
