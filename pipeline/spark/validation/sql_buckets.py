"""Recomputes token buckets of controller mutations in SQL, as a second check that does not use the recorded balances.

Consider a bucket of capacity B and rate r that began full. Its net inflow is r x time less everything taken. Its balance at the n-th step
is B less the distance of the net inflow from its highest earlier value, which two running aggregates give. Where the bound changes, a new
range of rows begins with the recorded balance, which has to equal the balance that the range before it left.
"""

from collections.abc import Sequence
from typing import Any, Final

from pipeline.validation.verdict import CrossCheck
from quota.throttle import INT32_MAX

SLACK: Final = "1e-12"
"""Allowed difference of double sums, relative to everything that was added and taken. Decisions within it are left to the replay."""

STEPS: Final = """
SELECT e.run_id, e.proxy_id, e.group_ref, e.seq, e.ts_ms, e.kind, e.value, e.bound, e.throttle_ms, e.before, e.since_ms,
       CASE WHEN e.kind IN (5, 8) THEN 0 ELSE e.value END AS taken, g.num_samples * g.window_ms / 1000D * e.bound AS burst,
       coalesce(CAST(e.bound <> lag(e.bound) OVER (PARTITION BY e.run_id, e.proxy_id, e.group_ref ORDER BY e.seq) AS INT), 0) AS changed
FROM sql_bucket_events e JOIN sql_bucket_groups g USING (run_id, proxy_id, group_ref)
WHERE e.kind >= 4
"""
BALANCES: Final = f"""
WITH stretched AS (
    SELECT *, sum(changed) OVER (PARTITION BY run_id, proxy_id, group_ref ORDER BY seq ROWS UNBOUNDED PRECEDING) AS bound_run
    FROM sql_bucket_steps
), begun AS (
    SELECT *, CASE WHEN bound_run > 0 THEN first(before) OVER s END AS found, (ts_ms - first(since_ms) OVER s) / 1000D * bound AS inflow,
           sum(taken) OVER s AS outflow, sum(abs(taken)) OVER s AS moved
    FROM stretched
    WINDOW s AS (PARTITION BY run_id, proxy_id, group_ref, bound_run ORDER BY seq ROWS UNBOUNDED PRECEDING)
), room AS (
    SELECT *, inflow - (outflow - taken) AS net,
           least(found, min(burst - inflow + outflow - taken) OVER s, min(burst - inflow + outflow) OVER s_before) AS lowest_room
    FROM begun
    WINDOW s AS (PARTITION BY run_id, proxy_id, group_ref, bound_run ORDER BY seq ROWS UNBOUNDED PRECEDING),
           s_before AS (PARTITION BY run_id, proxy_id, group_ref, bound_run ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT *, net + lowest_room AS balance, least(burst, net + lowest_room - taken) AS left_over,
       (inflow + moved + burst) * {SLACK} AS slack
FROM room
"""  # noqa: S608 - constants
VERDICT: Final = f"""
WITH chained AS (
    SELECT *, CASE WHEN kind = 6 THEN left_over ELSE balance END AS judged,
           lag(left_over) OVER g AS left_before, lag(ts_ms) OVER g AS ts_before, lag(slack) OVER g AS slack_before
    FROM sql_bucket_balances
    WINDOW g AS (PARTITION BY run_id, proxy_id, group_ref ORDER BY seq)
), waited AS (
    SELECT *, CASE WHEN kind IN (5, 6) AND judged < 0 THEN -judged / nullif(bound, 0) * 1000 ELSE 0D END AS exact_ms,
           changed = 1 AND (since_ms <> ts_before OR abs(before - left_before) > slack_before) AS is_torn
    FROM chained
), rounded AS (
    SELECT *, CAST(floor(exact_ms) AS BIGINT) + CASE WHEN exact_ms - floor(exact_ms) >= 0.5 THEN 1 ELSE 0 END AS expected,
           kind <> 7 AND (bound = 0 OR abs(judged) <= slack OR coalesce(exact_ms >= {INT32_MAX}, TRUE)
           OR (exact_ms > 0 AND abs(exact_ms - floor(exact_ms) - 0.5) <= slack / bound * 1000)) AS left_out
    FROM waited
)
SELECT count(*) AS decisions, count_if(left_out) AS left_out,
       count_if(is_torn OR (NOT left_out AND (
           throttle_ms <> expected OR (kind IN (4, 8) AND judged < 0) OR (kind = 5 AND judged >= 0)))) AS differences
FROM rounded
"""  # noqa: S608 - constants


def check_buckets_in_sql(spark: Any, events: Sequence[str], groups: Any) -> CrossCheck:
    """Recompute every wait of every token bucket.

    Args:
        spark: the session.
        events: paths of the files of `events`, of whole runs from their first decision on.
        groups: frame with the buckets: run_id, proxy_id, group_ref, num_samples, window_ms.
    """
    spark.read.parquet(*events).createOrReplaceTempView("sql_bucket_events")
    groups.createOrReplaceTempView("sql_bucket_groups")
    for view, query in (("sql_bucket_steps", STEPS), ("sql_bucket_balances", BALANCES)):
        spark.sql(query).createOrReplaceTempView(view)
    row = spark.sql(VERDICT).collect()[0]
    return CrossCheck(int(row["decisions"]), int(row["differences"]), int(row["left_out"]))
