"""Signs, not proof, of clients that avoid a quota; `pipeline.rollup.content.escape_limits` has the numbers and says why."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.rollup.content.columns import CLIENT
from pipeline.rollup.content.escape_limits import (
    ANONYMOUS,
    BEFORE_MAX,
    OPENED_MIN,
    OVERLAP_MAX_MS,
    RECONNECT_MAX_MS,
    SUCCESSOR_GAP_MAX_MS,
    TIMES_MORE,
)
from pipeline.spark.schemas import ESCAPES

_USER: Final = ("date", "principal")
_CLIENT: Final = [name for name, _ in CLIENT]


def escapes_of(seconds: DataFrame) -> DataFrame:
    """Return ESCAPES by day; takes the result of `usage_by_second`. Throttles that were not applied do not count.

    Successors are searched within the whole day, since within one hour every client-id would look new.
    """
    clients = seconds.groupBy("date", "hour", *_CLIENT, "second_ms").agg(
        F.sum("waited_requests").alias("throttled"), F.sum("connections_opened").alias("opened")
    )
    return reconnects_of(clients).unionByName(rotations_of(clients))


def reconnects_of(clients: DataFrame) -> DataFrame:
    """Return clients that open connections soon after waits several times as often as at other times, by hour.

    The time without waits counts as at least RECONNECT_MAX_MS. Otherwise the first connections of a client that waits nearly always
    would be a sign.
    """
    before = Window.partitionBy("date", "hour", *_CLIENT).orderBy("second_ms").rowsBetween(Window.unboundedPreceding, -1)
    last_wait_ms = F.last(F.when(F.col("throttled") > 0, F.col("second_ms")), ignorenulls=True).over(before)
    is_soon = F.coalesce(F.col("second_ms") - last_wait_ms <= RECONNECT_MAX_MS, F.lit(False))
    counted = (
        clients.withColumn("soon", is_soon)
        .groupBy("date", "hour", *_CLIENT)
        .agg(
            _sum_if("soon", "opened").alias("n"),
            _sum_if("soon", F.lit(1)).alias("soon_s"),
            F.sum("opened").alias("opened"),
            F.count("*").alias("seconds"),
            F.min(F.when(F.col("soon") & (F.col("opened") > 0), F.col("second_ms"))).alias("at_ms"),
        )
    )
    others = (F.col("opened") - F.col("n")) / F.greatest(F.col("seconds") - F.col("soon_s"), F.lit(RECONNECT_MAX_MS // 1_000))
    suspect = (F.col("n") >= OPENED_MIN) & (F.col("n") / F.col("soon_s") >= TIMES_MORE * others)
    kinds = counted.where(suspect).withColumns({"kind": F.lit("reconnects"), "to_client_id": F.lit(None).cast("string")})
    return kinds.to(ESCAPES)


def rotations_of(clients: DataFrame) -> DataFrame:
    """Return throttled client-ids that fall silent when a new one of the same user begins. Anonymous users need similar client-ids."""
    lives = clients.groupBy("date", *_CLIENT).agg(
        F.min("second_ms").alias("first_ms"),
        F.max("second_ms").alias("last_ms"),
        F.max(F.when(F.col("throttled") > 0, F.col("second_ms"))).alias("wait_ms"),
    )
    pairs = succession_of(lives)
    alike = F.levenshtein("client_id", "to_client_id") * 3 <= F.length("client_id") + 3
    named = (F.col("principal") != ANONYMOUS) | alike
    in_time = F.col("at_ms") <= F.col("wait_ms") + SUCCESSOR_GAP_MAX_MS
    differs = F.col("client_id") != F.col("to_client_id")
    return pairs.where(in_time & differs & named).withColumns({"kind": F.lit("rotates"), "n": F.lit(1).cast("long")}).to(ESCAPES)


def succession_of(lives: DataFrame) -> DataFrame:
    """Pair each new client-id with the last `BEFORE_MAX` throttled client-ids of its principal that fell silent before it began.

    Pairs are found by rank in the order of time. A comparison of all pairs would be quadratic for a principal with thousands of client-ids.

    Args:
        lives: one row per day and client: first_ms, last_ms, and wait_ms, the last second with a throttle, or null.
    """
    silent_ms = F.greatest("wait_ms", F.col("last_ms") - OVERLAP_MAX_MS)
    throttled = lives.where(F.col("last_ms") - OVERLAP_MAX_MS <= F.col("wait_ms") + SUCCESSOR_GAP_MAX_MS).withColumn("silent_ms", silent_ms)
    in_order = Window.partitionBy(*_USER).orderBy("silent_ms", "wait_ms", "client_id", "tenant")
    old = throttled.withColumn("place", F.row_number().over(in_order)).drop("first_ms", "last_ms", "silent_ms")
    falls_silent = throttled.select(*_USER, F.col("silent_ms").alias("ms"), F.lit(1).alias("old"), F.lit(None).cast("string").alias("to"))
    begins = lives.select(*_USER, F.col("first_ms").alias("ms"), F.lit(0).alias("old"), F.col("client_id").alias("to"))
    in_time = Window.partitionBy(*_USER).orderBy("ms", F.desc("old")).rowsBetween(Window.unboundedPreceding, 0)
    last = F.sum("old").over(in_time)
    new = falls_silent.unionByName(begins).withColumn("last", last).where((F.col("old") == 0) & (F.col("last") > 0))
    places = F.explode(F.sequence(F.greatest(F.col("last") - BEFORE_MAX + 1, F.lit(1)), F.col("last")))
    wanted = new.select(*_USER, F.col("to").alias("to_client_id"), F.col("ms").alias("at_ms"), places.alias("place"))
    return old.join(wanted, [*_USER, "place"])


def _sum_if(flag: str, value: str | Column) -> Column:
    return F.sum(F.when(F.col(flag), F.col(value) if isinstance(value, str) else value).otherwise(0))
