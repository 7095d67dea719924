"""Raw to silver: names in place of numbers, and the problem of each row that cannot be counted. No session, path, action or UDF."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from metering_format.event_kinds import ASKED, OF_BUCKETS, REFUSED
from pipeline.rollup.content.columns import DAY_MS, HOUR_MS, USAGE_COUNTS
from pipeline.rollup.content.problems import (
    ENDS_EARLY,
    LATE_MS,
    MISSING_VALUE,
    NEGATIVE_COUNT,
    OTHER_SAMPLE,
    OTHER_SECOND,
    TOO_MANY_THROTTLED,
    UNKNOWN_CLIENT,
    UNKNOWN_GROUP,
)
from pipeline.rollup.tenants import UNASSIGNED
from pipeline.spark.schemas import DECISIONS_SILVER, USAGE_SILVER


def usage_silver(usage: DataFrame, clients: DataFrame, tenants: DataFrame) -> DataFrame:
    """Return USAGE_SILVER: rows of `usage` with the names of their clients.

    Args:
        usage: rows of the table `usage`.
        clients: rows of dim_client.
        tenants: lines of the tenants file (position, user, client_id, tenant).
    """
    named = _named_clients(clients, tenants)
    begin = hour_ms()
    # files of an earlier version do not separate observed clients: every throttle counts as applied
    waited = {"waited_requests": F.coalesce("waited_requests", "throttled_requests"), "waited_ms": F.coalesce("waited_ms", "throttle_ms")}
    joined = (
        usage.withColumns(waited)
        .join(F.broadcast(named), ["run_id", "client_ref"], "left")
        .withColumn(
            "problem",
            _first_problem(
                (F.col("principal").isNull(), UNKNOWN_CLIENT),
                (_any_null("second_ms", "node", "listener", "api_class", *USAGE_COUNTS), MISSING_VALUE),
                (_any_negative(*USAGE_COUNTS, "connections_open"), NEGATIVE_COUNT),
                (~F.col("second_ms").between(begin - LATE_MS, begin + HOUR_MS + LATE_MS), OTHER_SECOND),
            ),
        )
    )
    return joined.select(
        "*",
        F.concat_ws(":", "principal_type", "principal").alias("whole_principal"),
        in_hour(F.col("second_ms"), begin, 1_000).alias("second_in_hour"),
    ).select(
        *(
            F.col({"principal": "whole_principal", "second_ms": "second_in_hour"}.get(field.name, field.name))
            .cast(field.dataType)
            .alias(field.name)
            for field in USAGE_SILVER.fields
        )
    )


def _named_clients(clients: DataFrame, tenants: DataFrame) -> DataFrame:
    key = ["run_id", "client_ref"]
    named = clients.groupBy(*key).agg(*(F.max(name).alias(name) for name in ("principal_type", "principal", "client_id")))
    return _with_tenant(named, F.col("principal"), F.col("client_id"), tenants, key)


def decisions_silver(samples: DataFrame, events: DataFrame, groups: DataFrame, clients: DataFrame, tenants: DataFrame) -> DataFrame:
    """Return DECISIONS_SILVER: rows of `samples`, and controller mutations of `events`, with the names of their groups.

    A group that is named by a user or a client-id alone belongs to the tenant of all clients with that name, if they have the same tenant.
    """
    key = ["run_id", "proxy_id", "group_ref"]
    names = ["quota_type", "scope", "listener", "tag_user", "tag_client_id", "tag_ip", "tags", "num_samples"]
    known = groups.groupBy(*key).agg(
        *(F.max(name).alias(name) for name in names),
        F.max(F.coalesce("node", F.col("node_id").cast("string"))).alias("node"),
        F.max("window_ms").alias("group_window_ms"),
    )
    decoded = known.withColumn("user", F.try_url_decode(F.col("tag_user")))
    own = _with_tenant(decoded, F.col("user"), F.col("tag_client_id"), tenants, key)
    named = _with_members_tenant(own, _named_clients(clients, tenants))
    rows = _own(samples).unionByName(_mutations(events), allowMissingColumns=True)
    begin = hour_ms()
    counts = ("n", "throttled_n", "violated_n", "throttle_ms_sum", "applied_ms_sum")
    late_ms = LATE_MS + F.col("group_window_ms")
    joined = rows.join(F.broadcast(named), key, "left").withColumn(
        "problem",
        _first_problem(
            (F.col("quota_type").isNull(), UNKNOWN_GROUP),
            (_any_null("sample_start_ms", "last_event_ms", "bound", "sum", *counts), MISSING_VALUE),
            (_any_negative("n", "throttled_n", "violated_n"), NEGATIVE_COUNT),
            (F.col("throttled_n") > F.col("n"), TOO_MANY_THROTTLED),
            (F.col("last_event_ms") < F.col("sample_start_ms"), ENDS_EARLY),
            (~F.col("last_event_ms").between(begin - late_ms, begin + HOUR_MS + late_ms), OTHER_SAMPLE),
        ),
    )
    span = {"begin_ms": in_hour(F.col("sample_start_ms"), begin), "end_ms": in_hour(F.col("last_event_ms"), begin)}
    placed = joined.withColumns(span)
    return placed.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in DECISIONS_SILVER.fields))


def _own(samples: DataFrame) -> DataFrame:
    """Return the samples without usage that another process recorded, since that process's files contain it."""
    own = {total: F.col(total) - F.coalesce(elsewhere, F.lit(0)) for total, elsewhere in (("n", "remote_n"), ("sum", "remote_sum"))}
    return samples.withColumns(own)


def _mutations(events: DataFrame) -> DataFrame:
    """Return controller mutations as rows of one decision each; a token bucket has no samples. A refused request has no units."""
    one = F.lit(1)
    throttled = F.when(F.col("throttle_ms") > 0, one).otherwise(0)
    return events.where(F.col("kind").isin(*OF_BUCKETS)).select(
        "run_id",
        "proxy_id",
        "group_ref",
        F.col("ts_ms").alias("sample_start_ms"),
        F.col("ts_ms").alias("last_event_ms"),
        one.alias("n"),
        F.when(F.col("kind").isin(REFUSED, ASKED), 0).otherwise(F.col("value")).alias("sum"),
        "bound",
        F.col("seq").alias("first_seq"),
        throttled.alias("throttled_n"),
        throttled.alias("violated_n"),
        F.greatest("throttle_ms", F.lit(0)).cast("long").alias("throttle_ms_sum"),
        F.col("throttle_ms").alias("throttle_ms_max"),
        F.greatest("applied_ms", F.lit(0)).cast("long").alias("applied_ms_sum"),
        F.array(F.lit(0)).alias("dt_ms"),
        F.when(F.col("throttle_ms") > 0, F.array(F.lit(0))).otherwise(F.array().cast("array<int>")).alias("thr_pos"),
        F.when(F.col("throttle_ms") > 0, F.array("throttle_ms")).otherwise(F.array().cast("array<int>")).alias("thr_ms"),
        F.when(F.col("throttle_ms") > 0, F.array("applied_ms")).otherwise(F.array().cast("array<int>")).alias("applied_ms"),
        "date",
        "hour",
        "stem",
    )


def _with_tenant(frame: DataFrame, user: Column, client_id: Column, tenants: DataFrame, key: list[str]) -> DataFrame:
    """Add `tenant`: that of the first line of the tenants file that matches both names. A missing name counts as empty."""
    lines = F.broadcast(tenants.select("position", F.col("user").alias("user_is"), F.col("client_id").alias("client_is"), "tenant"))
    one = frame.select(*key, F.coalesce(user, F.lit("")).alias("user"), F.coalesce(client_id, F.lit("")).alias("client"))
    fitting = one.join(lines, F.expr("user rlike user_is and client rlike client_is"))
    first = fitting.groupBy(*key).agg(F.min_by("tenant", "position").alias("tenant"))
    return frame.join(F.broadcast(first), key, "left").withColumn("tenant", F.coalesce("tenant", F.lit(UNASSIGNED)))


def _with_members_tenant(groups: DataFrame, clients: DataFrame) -> DataFrame:
    """Use the tenant that all clients of a group's user, or of its client-id, have in common.

    When they have none, the group's own name decides. Alone it could match a line for other clients, such as the last one.
    """
    found = groups
    for of, name, other in (("user", "principal", "tag_client_id"), ("tag_client_id", "client_id", "user")):
        common = clients.groupBy(F.col("run_id").alias("its_run"), F.col(name).alias("its_name")).agg(
            F.when(F.count_distinct("tenant") == 1, F.max("tenant")).alias("in_common")
        )
        alone = (F.col(of) != "") & (F.coalesce(other, F.lit("")) == "")
        condition = (F.col("run_id") == F.col("its_run")) & (F.col(of) == F.col("its_name")) & alone
        tenant = F.coalesce("in_common", "tenant")
        found = found.join(F.broadcast(common), condition, "left").withColumn("tenant", tenant).drop("its_run", "its_name", "in_common")
    return found


def hour_ms() -> Column:
    """Return the start of the hour of the row's file, in UTC whatever the time zone of the session is."""
    return day_ms(F.col("date")) + F.col("hour").try_cast("bigint") * HOUR_MS


def day_ms(date: Column) -> Column:
    """Return the start of a day in UTC, of its text or date."""
    return F.unix_date(date.try_cast("date")).cast("bigint") * DAY_MS


def in_hour(at_ms: Column, begin_ms: Column, unit_ms: int = 1) -> Column:
    """Return a time, limited to the hour of the file. Moments just before or after the hour count as part of it."""
    return F.greatest(begin_ms, F.least(begin_ms + HOUR_MS - unit_ms, at_ms))


def _first_problem(*problems: tuple[Column, str]) -> Column:
    return F.coalesce(*(F.when(wrong, F.lit(text)) for wrong, text in problems))


def _any_null(*names: str) -> Column:
    return reduce(lambda left, right: left | right, (F.col(name).isNull() for name in names))


def _any_negative(*names: str) -> Column:
    return reduce(lambda left, right: left | right, (F.col(name) < 0 for name in names))
