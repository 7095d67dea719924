"""Silver to gold: decisions by group. No session, path, action or UDF."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.rollup.content.columns import GROUP, GROUPS_IN_SERIES
from pipeline.spark.rollup.silver import hour_ms, in_hour
from pipeline.spark.rollup.usage import hour_of, start_of, with_coverage
from pipeline.spark.schemas import DECISIONS, HISTOGRAM, SERIES, THROTTLE_WINDOWS
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND
from quota.throttle import INT32_MAX

GROUP_KEY: Final = [name for name, _ in GROUP]
_SECOND_MS: Final = 1_000
_COUNTS: Final = ("n", "throttled_n", "violated_n", "throttle_ms_sum", "applied_ms_sum", "waited_n", "waited_ms_sum")


def decisions_by_second(silver: DataFrame) -> DataFrame:
    """Return sums of samples by second and group, over runs; takes rows of DECISIONS_SILVER without a problem.

    Lists of events are not read. A sample that extends over several seconds distributes its units by time. Its decisions and throttles
    count in the second in which it begins. `waited_n` is the number of throttles that delayed a client.
    """
    limited = (F.col("bound") < UNLIMITED) & ~((F.col("quota_type") == "Connection") & (F.col("bound") >= INT32_MAX))
    return (
        silver.select("*", *_waited(), F.explode(_parts()).alias("part"))
        .groupBy("date", "hour", *GROUP_KEY, F.col("part.second_ms").alias("second_ms"))
        .agg(
            F.sum("part.units").alias("units"),
            *(F.sum(_in_first(name)).alias(name) for name in _COUNTS),
            F.max(_in_first("throttle_ms_max")).alias("throttle_ms_max"),
            F.max("max_observed").alias("observed_max"),
            F.min(F.when(limited, F.col("bound"))).alias("bound"),
            F.max(F.when(limited & (F.col("bound") > 0), F.col("max_observed") / F.col("bound"))).alias("utilisation"),
        )
    )


def _parts() -> Column:
    """Return the seconds of a sample with the units of each: whole numbers with the sample's sum. Windows of 1 s give two seconds."""
    begin, end = F.col("begin_ms"), F.greatest("begin_ms", "end_ms")
    first = F.floor(begin / _SECOND_MS) * _SECOND_MS
    one = F.struct(first.alias("second_ms"), F.col("sum").alias("units"), F.lit(True).alias("is_first"))

    def until(at_ms: Column) -> Column:
        return F.floor(F.col("sum") * ((F.least(at_ms, end + 1) - begin) / (end + 1 - begin))).cast("long")

    def part(second_ms: Column) -> Column:
        units = until(second_ms + _SECOND_MS) - F.when(second_ms > begin, until(second_ms)).otherwise(0)
        return F.struct(second_ms.alias("second_ms"), units.alias("units"), (second_ms == first).alias("is_first"))

    return F.when(end < first + _SECOND_MS, F.array(one)).otherwise(F.transform(F.sequence(first, end, F.lit(_SECOND_MS)), part))


def _waited() -> tuple[Column, Column]:
    """Return the number of throttles of a sample that delayed a client, and their sum in ms.

    Nothing is applied in `observe`, and to excused connections. At level `sample`, which has no lists, either all throttles count or none.
    """
    pairs = F.filter(F.arrays_zip("thr_ms", "applied_ms"), lambda wait: (wait.thr_ms > 0) & (wait.applied_ms > 0))
    total = F.aggregate(pairs, F.lit(0).cast("long"), lambda sum_ms, wait: sum_ms + wait.thr_ms)
    is_none = (F.col("throttled_n") == 0) | (F.col("applied_ms_sum") == 0)

    def of(listed: Column, unlisted: str) -> Column:
        return F.when(is_none, 0).when(F.col("applied_ms").isNull(), F.col(unlisted)).otherwise(listed).cast("long")

    return of(F.size(pairs), "throttled_n").alias("waited_n"), of(total, "throttle_ms_sum").alias("waited_ms_sum")


def _in_first(name: str) -> Column:
    return F.when(F.col("part.is_first"), F.col(name)).otherwise(0)


def decisions_per(level: str, seconds: DataFrame, waits: DataFrame, coverage: DataFrame) -> DataFrame:
    """Return DECISIONS: sums of seconds by minute, hour or day, one row per start and group.

    Args:
        level: minute, hour or day.
        seconds: the result of `decisions_by_second`.
        waits: the result of `waits_of`.
        coverage: (date, hour, coverage_percent); `hour` is null for a whole day.
    """
    key: list[str | Column] = ["date", hour_of(level).alias("hour"), "start", *GROUP_KEY]
    rate = rate_of(F.col("units"))
    limited = F.col("bound").isNotNull()
    rows = (
        seconds.withColumn("start", start_of(level, F.col("second_ms")))
        .groupBy(*key)
        .agg(
            F.sum("n").alias("decisions"),
            F.sum("units").alias("units"),
            F.sum("throttled_n").alias("throttled"),
            F.sum("violated_n").alias("violated"),
            F.sum("throttle_ms_sum").alias("throttle_ms"),
            F.sum("waited_n").alias("waited"),
            F.sum("waited_ms_sum").alias("waited_ms"),
            F.max("throttle_ms_max").alias("throttle_ms_max"),
            F.sum("applied_ms_sum").alias("applied_ms"),
            F.count("*").alias("seconds_active"),
            F.avg(rate).alias("rate_mean"),
            _percentiles(rate).alias("rates"),
            F.max(rate).alias("rate_max"),
            F.max("observed_max").alias("observed_max"),
            F.avg("bound").alias("bound_mean"),
            (100 * F.sum(F.when(limited, rate)) / F.nullif(F.sum("bound"), F.lit(0.0))).alias("utilisation_mean_percent"),
            (100 * F.max("utilisation")).alias("utilisation_max_percent"),
        )
    )
    waited = (
        waits.withColumn("start", start_of(level, in_hour(F.col("at_ms"), hour_ms())))
        .groupBy(*key)
        .agg(_percentiles(F.col("wait_ms")).alias("waits"))
    )
    condition = [F.col(f"rows.{name}").eqNullSafe(F.col(f"waited.{name}")) for name in ("date", "hour", "start", *GROUP_KEY)]
    both = rows.alias("rows").join(waited.alias("waited"), condition, "left").select("rows.*", "waited.waits")
    named = both.select(
        "*",
        *(F.col("rates")[at].alias(f"rate_p{share}") for at, share in enumerate((50, 95, 99))),
        *(F.col("waits")[at].alias(f"throttle_ms_p{share}") for at, share in enumerate((50, 95, 99))),
    )
    return with_coverage(named, coverage).to(DECISIONS)


def rate_of(units: Column) -> Column:
    """Return the units of one second as a rate. Request time is metered in nanoseconds and becomes percent."""
    return F.when(F.col("quota_type") == "Request", units * F.lit(PERCENT_PER_NANOSECOND)).otherwise(units.cast("double"))


def _percentiles(value: Column) -> Column:
    return F.percentile(value, F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99))))


def waits_of(silver: DataFrame) -> DataFrame:
    """Return one row per decision with a throttle time above 0: its time, the throttle time, and whether it was applied."""
    listed = silver.where("throttled_n > 0").select(
        "date", "hour", *GROUP_KEY, "sample_start_ms", "dt_ms", F.explode(F.arrays_zip("thr_pos", "thr_ms", "applied_ms")).alias("wait")
    )
    return listed.select(
        "date",
        "hour",
        *GROUP_KEY,
        (F.col("sample_start_ms") + F.element_at("dt_ms", F.col("wait.thr_pos") + 1)).alias("at_ms"),
        F.col("wait.thr_ms").cast("long").alias("wait_ms"),
        (F.col("wait.applied_ms") > 0).alias("applied"),
    ).where("wait_ms > 0")


def histogram_of(waits: DataFrame) -> DataFrame:
    """Return HISTOGRAM: the number of waits by length, and separately of throttles that were not applied."""
    bucket = F.pow(F.lit(2.0), F.ceil(F.log2("wait_ms"))).cast("long")
    return waits.groupBy("date", "hour", *GROUP_KEY, "applied", bucket.alias("bucket_ms")).agg(F.count("*").alias("n")).to(HISTOGRAM)


def throttle_windows_of(waits: DataFrame) -> DataFrame:
    """Return THROTTLE_WINDOWS: overlapping or adjacent waits of a group as one throttle window, in the hour in which it begins.

    Throttles that were decided and not applied form separate windows. A wait that extends into the next hour forms another window there,
    since an hour is built from its own files only.
    """
    key = ["date", "hour", *GROUP_KEY, "applied"]
    in_order = Window.partitionBy(*key).orderBy("at_ms", "wait_ms")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    end_ms = F.col("at_ms") + F.col("wait_ms")
    begins = F.when(F.col("at_ms") <= F.max(end_ms).over(before), 0).otherwise(1)
    numbered = waits.withColumn("begins", begins).withColumn("number", F.sum("begins").over(in_order))
    edges = numbered.select(
        *key,
        "number",
        "wait_ms",
        F.explode(F.array(_edge(F.col("at_ms"), 1), _edge(end_ms, -1))).alias("edge"),
    )
    in_time = Window.partitionBy(*key, "number").orderBy("edge.ms", "edge.step").rowsBetween(Window.unboundedPreceding, 0)
    is_begin = F.col("edge.step") > 0
    return (
        edges.withColumn("waiting", F.sum("edge.step").over(in_time))
        .groupBy(*key, "number")
        .agg(
            F.min("edge.ms").alias("begin_ms"),
            F.max("edge.ms").alias("end_ms"),
            F.sum(F.when(is_begin, 1).otherwise(0)).alias("throttled"),
            F.sum(F.when(is_begin, F.col("wait_ms")).otherwise(0)).alias("throttle_ms"),
            F.max("waiting").alias("waiting_max"),
        )
        .to(THROTTLE_WINDOWS)
    )


def _edge(at_ms: Column, step: int) -> Column:
    return F.struct(at_ms.alias("ms"), F.lit(step).alias("step"))


def series_of(seconds: DataFrame) -> DataFrame:
    """Return SERIES of the groups that waited longest in each hour. Groups without waits follow, by utilisation of their bound."""
    ranked = seconds.groupBy("date", "hour", *GROUP_KEY).agg(F.sum("throttle_ms_sum").alias("waited"), F.max("utilisation").alias("used"))
    place = F.row_number().over(Window.partitionBy("date", "hour").orderBy(F.desc("waited"), F.desc_nulls_last("used"), *GROUP_KEY))
    chosen = ranked.withColumn("place", place).where(F.col("place") <= GROUPS_IN_SERIES)
    condition = [F.col(f"seconds.{name}").eqNullSafe(F.col(f"chosen.{name}")) for name in ("date", "hour", *GROUP_KEY)]
    return (
        seconds.alias("seconds")
        .join(F.broadcast(chosen.alias("chosen")), condition, "left_semi")
        .select("*", F.col("throttled_n").alias("throttled"), F.col("throttle_ms_sum").alias("throttle_ms"))
        .to(SERIES)
    )
