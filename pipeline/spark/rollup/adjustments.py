"""Silver to gold: late usage of closed days. No session, path, action or UDF."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.rollup.content.columns import USAGE_COUNTS
from pipeline.spark.rollup.usage import CLIENT_KEY, start_of, with_coverage
from pipeline.spark.schemas import ADJUSTMENTS


def adjustments_of(usage: DataFrame, batch: str, coverage: DataFrame) -> DataFrame:
    """Return ADJUSTMENTS: sums of late usage by day, client and API class.

    Args:
        usage: rows of USAGE_SILVER without a problem.
        batch: name of the batch.
        coverage: (date, hour, coverage_percent) of the days, including the late data; `hour` is null.
    """
    start = start_of("day", F.col("second_ms")).alias("start")
    rows = usage.groupBy("date", start, *CLIENT_KEY).agg(*(F.sum(name).alias(name) for name in USAGE_COUNTS))
    return with_coverage(rows.withColumn("hour", F.lit(None).cast("string")), coverage).withColumn("batch", F.lit(batch)).to(ADJUSTMENTS)
