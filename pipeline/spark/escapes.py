"""Who tries to get round a quota: by connecting anew, or under another client-id. Signs, not proof: somebody has to look.

A wait belongs to a connection and a quota to a name; a client that drops either begins without the wait, or with a fresh budget.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.spark.schemas import CLIENT, ESCAPES

SOON_MS: Final = 15_000
"""So soon after a wait a new connection is counted against the rest of the time."""
OPENED_MIN: Final = 5
TIMES_MORE: Final = 3
GONE_MS: Final = 60_000
"""So long after a throttled client-id falls silent another one of the same user is taken for its successor."""
ANONYMOUS: Final = "User:ANONYMOUS"

_CLIENT: Final = [name for name, _ in CLIENT]


def escapes_of(seconds: DataFrame) -> DataFrame:
    """Return ESCAPES, per hour; takes what `usage_by_second` returns."""
    clients = seconds.groupBy("date", "hour", *_CLIENT, "second_ms").agg(
        F.sum("throttled_requests").alias("throttled"), F.sum("connections_opened").alias("opened")
    )
    return reconnects_of(clients).unionByName(rotations_of(clients))


def reconnects_of(clients: DataFrame) -> DataFrame:
    """Who opens connections right after waits, several times as often as at other times."""
    before = Window.partitionBy("date", "hour", *_CLIENT).orderBy("second_ms").rowsBetween(Window.unboundedPreceding, -1)
    last_wait_ms = F.last(F.when(F.col("throttled") > 0, F.col("second_ms")), ignorenulls=True).over(before)
    is_soon = F.coalesce(F.col("second_ms") - last_wait_ms <= SOON_MS, F.lit(False))
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
    others = (F.col("opened") - F.col("n")) / F.greatest(F.col("seconds") - F.col("soon_s"), F.lit(1))
    suspect = (F.col("n") >= OPENED_MIN) & (F.col("n") / F.col("soon_s") >= TIMES_MORE * others)
    kinds = counted.where(suspect).withColumns({"kind": F.lit("reconnects"), "to_client_id": F.lit(None).cast("string")})
    return kinds.to(ESCAPES)


def rotations_of(clients: DataFrame) -> DataFrame:
    """Whose throttled client-id falls silent while a new one of the same user begins; anonymous users only where names are alike."""
    lives = clients.groupBy("date", "hour", *_CLIENT).agg(
        F.min("second_ms").alias("first_ms"),
        F.max("second_ms").alias("last_ms"),
        F.max(F.when(F.col("throttled") > 0, F.col("second_ms"))).alias("wait_ms"),
    )
    old, new = lives.where("wait_ms is not null").alias("old"), lives.alias("new")
    same = [F.col(f"old.{name}") == F.col(f"new.{name}") for name in ("date", "hour", "principal")]
    goes = F.col("new.first_ms").between(F.col("old.wait_ms"), F.col("old.wait_ms") + GONE_MS)
    silent = F.col("old.last_ms") <= F.col("new.first_ms") + GONE_MS / 6
    alike = F.levenshtein("old.client_id", "new.client_id") * 3 <= F.length("old.client_id") + 3
    named = (F.col("old.principal") != ANONYMOUS) | alike
    differs = F.col("old.client_id") != F.col("new.client_id")
    pairs = old.join(new, [*same, goes, silent, named, differs])
    return pairs.select(
        *(F.col(f"old.{name}").alias(name) for name in ("date", "hour", *_CLIENT)),
        F.lit("rotates").alias("kind"),
        F.col("new.client_id").alias("to_client_id"),
        F.lit(1).cast("long").alias("n"),
        F.col("new.first_ms").alias("at_ms"),
    ).to(ESCAPES)


def _sum_if(flag: str, value: str | Column) -> Column:
    return F.sum(F.when(F.col(flag), F.col(value) if isinstance(value, str) else value).otherwise(0))
