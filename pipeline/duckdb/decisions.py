"""Decisions by quota group: samples with names and problems, sums by second, waits, and the tables that are made from them."""

from __future__ import annotations

from typing import Final

from metering_format.event_kinds import ASKED, OF_BUCKETS, REFUSED
from pipeline.duckdb.database import Database
from pipeline.duckdb.seconds import DECISION_COUNTS
from pipeline.duckdb.usage import PERCENTILES, any_negative, any_null, in_hour, start_of, sums_by, with_coverage
from pipeline.rollup.content.columns import GROUPS_IN_SERIES, HOUR_MS
from pipeline.rollup.content.problems import (
    ENDS_EARLY,
    LATE_MS,
    MISSING_VALUE,
    NEGATIVE_COUNT,
    OTHER_SAMPLE,
    TOO_MANY_THROTTLED,
    UNKNOWN_GROUP,
)
from pipeline.rollup.content.sums import DECISION_SUMS
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND
from quota.throttle import INT32_MAX

_SAMPLE: Final = (
    *(
        "run_id",
        "proxy_id",
        "group_ref",
        "hour_number",
        "stem",
        "date",
        "hour",
        "hour_ms",
        "sample_start_ms",
        "last_event_ms",
        "bound",
        "max_observed",
    ),
    *("first_seq", "throttled_n", "violated_n", "throttle_ms_sum", "throttle_ms_max", "applied_ms_sum"),
    *("dt_ms", "thr_pos", "thr_ms", "applied_ms", "lead_ns"),
)
_RATE: Final = f"CASE WHEN quota_type = 'Request' THEN units * {PERCENT_PER_NANOSECOND!r} ELSE units::DOUBLE END"


def see_decisions(database: Database) -> None:
    """Make the view `decisions`: samples without what another process recorded, and controller mutations, with their group and problem.

    `begin_ms` to `end_ms` is the part of a sample within the hour of its file.
    """
    counts = ("n", "throttled_n", "violated_n", "throttle_ms_sum", "applied_ms_sum")
    late = f"{LATE_MS} + group_window_ms"
    database.run(f"""
        CREATE VIEW decisions AS
        SELECT *,
            CASE WHEN quota_type IS NULL THEN '{UNKNOWN_GROUP}'
                 WHEN {any_null("sample_start_ms", "last_event_ms", "bound", "sum", *counts)} THEN '{MISSING_VALUE}'
                 WHEN {any_negative("n", "throttled_n", "violated_n")} THEN '{NEGATIVE_COUNT}'
                 WHEN throttled_n > n THEN '{TOO_MANY_THROTTLED}'
                 WHEN last_event_ms < sample_start_ms THEN '{ENDS_EARLY}'
                 WHEN last_event_ms NOT BETWEEN hour_ms - ({late}) AND hour_ms + {HOUR_MS} + ({late})
                     THEN '{OTHER_SAMPLE}'
            END AS problem,
            {in_hour("sample_start_ms")} AS begin_ms, {in_hour("last_event_ms")} AS end_ms
        FROM ({_samples()} UNION ALL BY NAME {_mutations()}) LEFT JOIN groups USING (run_id, proxy_id, group_ref)""")


def _samples() -> str:
    """Return samples without usage that another process recorded, since that process's files contain it."""
    return f"""SELECT {", ".join(_SAMPLE)}, n - coalesce(remote_n, 0) AS n, sum - coalesce(remote_sum, 0) AS sum FROM raw_samples"""


def _mutations() -> str:
    """Return controller mutations as rows of one decision each; a token bucket has no samples. A refused request has no units."""
    waits = {"thr_pos": "0", "thr_ms": "throttle_ms", "applied_ms": "applied_ms"}
    lists = ", ".join(f"CASE WHEN throttle_ms > 0 THEN [{value}] ELSE [] END AS {name}" for name, value in waits.items())
    return f"""
        SELECT run_id, proxy_id, group_ref, hour_number, stem, date, hour, hour_ms, ts_ms AS sample_start_ms, ts_ms AS last_event_ms, bound,
               NULL::DOUBLE AS max_observed, seq AS first_seq, (throttle_ms > 0)::INT AS throttled_n, (throttle_ms > 0)::INT AS violated_n,
               greatest(throttle_ms, 0)::BIGINT AS throttle_ms_sum, throttle_ms AS throttle_ms_max,
               greatest(applied_ms, 0)::BIGINT AS applied_ms_sum, [0] AS dt_ms, {lists}, 1 AS n,
               CASE WHEN kind IN ({REFUSED}, {ASKED}) THEN 0 ELSE value END AS sum
        FROM raw_events WHERE kind IN ({", ".join(map(str, OF_BUCKETS))})"""


def decision_sums() -> str:
    """Return a query for the sums of decisions by file set and quota type, and the numbers of quarantined rows and decisions."""
    aside = ", sum(n) FILTER (problem IS NOT NULL)::BIGINT AS aside"
    return sums_by("decisions", ("stem", "quota_type"), DECISION_SUMS, aside)


def decisions_by_second() -> str:
    """Return a query for sums of samples by hour, second and group.

    A sample that extends over several seconds distributes its units by time. Its decisions and throttles count in the second in which it
    begins. `waited_n` is the number of throttles that delayed a client.
    """
    counts = ", ".join(f"sum(CASE WHEN is_first THEN {name} ELSE 0 END)::BIGINT AS {name}" for name in DECISION_COUNTS)
    limited = f"bound < {UNLIMITED!r} AND NOT (quota_type = 'Connection' AND bound >= {INT32_MAX})"
    pairs = "list_filter(list_zip(thr_ms, applied_ms), lambda wait: wait[1] > 0 AND wait[2] > 0)"
    is_none = "throttled_n = 0 OR applied_ms_sum = 0"
    return f"""
        WITH waited AS (
            SELECT hour_number, gold_group_number, quota_type, sum, bound, max_observed, n, throttled_n, violated_n, throttle_ms_sum,
                throttle_ms_max, applied_ms_sum, begin_ms, greatest(begin_ms, end_ms) AS end_ms,
                CASE WHEN {is_none} THEN 0 WHEN applied_ms IS NULL THEN throttled_n ELSE len({pairs}) END AS waited_n,
                CASE WHEN {is_none} THEN 0 WHEN applied_ms IS NULL THEN throttle_ms_sum
                     ELSE coalesce(list_sum(list_transform({pairs}, lambda wait: wait[1])), 0) END AS waited_ms_sum
            FROM decisions WHERE problem IS NULL),
        parts AS (
            SELECT *, begin_ms - begin_ms % 1000 AS second_ms, sum AS units, true AS is_first
            FROM waited WHERE end_ms < begin_ms - begin_ms % 1000 + 1000
            UNION ALL
            SELECT * EXCLUDE (first_ms),
                {_until("second_ms + 1000")} - CASE WHEN second_ms > begin_ms THEN {_until("second_ms")} ELSE 0 END,
                second_ms = first_ms
            FROM (SELECT *, begin_ms - begin_ms % 1000 AS first_ms,
                         unnest(range(begin_ms - begin_ms % 1000, end_ms + 1, 1000)) AS second_ms
                  FROM waited WHERE end_ms >= begin_ms - begin_ms % 1000 + 1000))
        SELECT hour_number, gold_group_number, quota_type, second_ms, sum(units)::BIGINT AS units, {counts},
            max(CASE WHEN is_first THEN throttle_ms_max ELSE 0 END)::BIGINT AS throttle_ms_max, max(max_observed) AS observed_max,
            min(CASE WHEN {limited} THEN bound END) AS bound,
            max(CASE WHEN {limited} AND bound > 0 THEN max_observed / bound END) AS utilisation
        FROM parts GROUP BY hour_number, gold_group_number, quota_type, second_ms"""


def waits() -> str:
    """Return a query for the decisions with a throttle time above 0: when it begins, the throttle time, and whether it was applied.

    In a paced group it ends at the decision. It counts in the hour of the decision, also if it began before it.
    """
    return f"""
        SELECT hour_number, gold_group_number, at_ms, wait_ms, applied, {in_hour("at_ms")} AS at_in_hour_ms
        FROM (
            SELECT hour_number, hour_ms, gold_group_number, wait[2]::BIGINT AS wait_ms, wait[3] > 0 AS applied,
                   sample_start_ms + dt_ms[wait[1] + 1] - CASE WHEN lead_ns IS NULL THEN 0 ELSE wait[2] END AS at_ms
            FROM (SELECT hour_number, hour_ms, gold_group_number, sample_start_ms, dt_ms, lead_ns,
                         unnest(list_zip(thr_pos, thr_ms, applied_ms)) AS wait
                  FROM decisions WHERE problem IS NULL AND throttled_n > 0))
        WHERE wait_ms > 0"""


def _until(at_ms: str) -> str:
    """Return the units of a sample up to a time: whole numbers, whose last one is the sample's sum."""
    return f"floor(sum * ((least({at_ms}, end_ms + 1) - begin_ms)::DOUBLE / (end_ms + 1 - begin_ms)))::BIGINT"


def decisions_per(level: str) -> str:
    """Return a query for the rows of the table of decisions by minute, hour or day."""
    place = "date" if level == "day" else "date, hour"
    shares = list(enumerate((50, 95, 99), 1))
    percentiles = ", ".join(f"rates[{at}] AS rate_p{share}, waits[{at}] AS throttle_ms_p{share}" for at, share in shares)
    return f"""
        WITH per AS (
            SELECT {place}, {start_of(level, "second_ms")} AS start, gold_group_number, sum(n)::BIGINT AS decisions,
                sum(units)::BIGINT AS units, sum(throttled_n)::BIGINT AS throttled, sum(violated_n)::BIGINT AS violated,
                sum(throttle_ms_sum)::BIGINT AS throttle_ms, sum(waited_n)::BIGINT AS waited, sum(waited_ms_sum)::BIGINT AS waited_ms,
                max(throttle_ms_max) AS throttle_ms_max, sum(applied_ms_sum)::BIGINT AS applied_ms, count(*) AS seconds_active,
                avg(rate) AS rate_mean, quantile_cont(rate, {PERCENTILES}) AS rates, max(rate) AS rate_max,
                max(observed_max) AS observed_max, avg(bound) AS bound_mean,
                100 * sum(CASE WHEN bound IS NOT NULL THEN rate END) / nullif(sum(bound), 0.0) AS utilisation_mean_percent,
                100 * max(utilisation) AS utilisation_max_percent
            FROM (SELECT *, {_RATE} AS rate FROM decisions_here JOIN hours USING (hour_number))
            GROUP BY {place}, start, gold_group_number),
        waited_per AS (
            SELECT {place}, {start_of(level, "at_in_hour_ms")} AS start, gold_group_number,
                quantile_cont(wait_ms, {PERCENTILES}) AS waits
            FROM waits_here JOIN hours USING (hour_number) GROUP BY {place}, start, gold_group_number)
        SELECT * EXCLUDE (gold_group_number, rates, waits), {percentiles}
        FROM per LEFT JOIN waited_per USING ({place}, start, gold_group_number)
        JOIN gold_groups USING (gold_group_number) {with_coverage(level)}"""


def histogram() -> str:
    """Return a query for the number of waits by length, and separately of throttles that were not applied."""
    return """
        SELECT * EXCLUDE (hour_number, gold_group_number)
        FROM (
            SELECT hour_number, gold_group_number, applied, pow(2, ceil(log2(wait_ms)))::BIGINT AS bucket_ms, count(*) AS n
            FROM waits_here GROUP BY ALL)
        JOIN gold_groups USING (gold_group_number) JOIN hours USING (hour_number)"""


def series() -> str:
    """Return a query for the seconds of the groups that waited longest in each hour. Groups without waits follow, by use of their bound.

    `rank_waited`, `rank_used` and `gold_group_number` order the groups of an hour, so that those of several queries can be chosen from.
    """
    return f"""
        WITH ranked AS (
            SELECT hour_number, gold_group_number, sum(throttle_ms_sum)::BIGINT AS rank_waited, max(utilisation) AS rank_used
            FROM decisions_here GROUP BY ALL),
        chosen AS (
            SELECT *
            FROM ranked
            QUALIFY row_number() OVER (
                PARTITION BY hour_number ORDER BY rank_waited DESC, rank_used DESC NULLS LAST, gold_group_number
            ) <= {GROUPS_IN_SERIES})
        SELECT its.* EXCLUDE (hour_number, quota_type, throttle_ms_max),
            throttled_n AS throttled, throttle_ms_sum AS throttle_ms, rank_waited, rank_used,
            gold_groups.* EXCLUDE (gold_group_number), date, hour
        FROM decisions_here AS its JOIN chosen USING (hour_number, gold_group_number)
        JOIN gold_groups USING (gold_group_number) JOIN hours USING (hour_number)"""


def added_decisions(seconds: str) -> str:
    """Return a query for the sums by hour, second and group of a table with several rows for some, as `decisions_by_second`."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in ("units", *DECISION_COUNTS))
    return f"""
        SELECT hour_number, gold_group_number, quota_type, second_ms, {sums}, max(throttle_ms_max) AS throttle_ms_max,
            max(observed_max) AS observed_max, min(bound) AS bound, max(utilisation) AS utilisation
        FROM {seconds} GROUP BY hour_number, gold_group_number, quota_type, second_ms"""
