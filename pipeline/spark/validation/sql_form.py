"""Recomputes every throttle time in SQL, as a second check that shares only the files with the replay.

Each sensor has a sweep line over its whole run. Each decision adds its value. A sample that expires subtracts its sum and passes on the
start of the next sample. In order of time with expiries first, two running aggregates give the live sum and the oldest live start. This is
slower than the replay, since it shuffles and sorts. It does not process files one by one, so it cannot have a wrong warm-up.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from metering_format.event_kinds import MUTATION
from metering_format.places import PACED, SHARED
from pipeline.file_set import FileSet
from pipeline.spark.validation.sql_buckets import check_buckets_in_sql
from pipeline.spark.written import url_of
from pipeline.validation.verdict import CrossCheck
from quota.throttle import INT32_MAX

MARGIN: Final = "1e-9"
"""Relative distance from a bound, or from half a millisecond, within which rounding of double sums may decide."""

EVENTS: Final = """
SELECT run_id, proxy_id, group_ref, sample_start_ms, bound, first_seq,
       posexplode(arrays_zip(dt_ms, val)) AS (position, event), unchecked_pos,
       map_from_arrays(thr_pos, thr_ms) AS waits
FROM sql_samples
"""
DECISIONS: Final = """
SELECT run_id, proxy_id, group_ref, sample_start_ms, bound, sample_start_ms + event.dt_ms AS ts_ms, event.val AS value,
       first_seq, position, NOT array_contains(unchecked_pos, position) AS checked, coalesce(waits[position], 0) AS recorded
FROM sql_events
"""
SWEEP: Final = """
WITH starts AS (
    SELECT run_id, proxy_id, group_ref, sample_start_ms, max(ts_ms) AS last_ms, sum(value) AS total
    FROM sql_decisions GROUP BY run_id, proxy_id, group_ref, sample_start_ms
), chained AS (
    SELECT s.*, lead(sample_start_ms) OVER (PARTITION BY run_id, proxy_id, group_ref ORDER BY sample_start_ms) AS next_start_ms,
           min(sample_start_ms) OVER (PARTITION BY run_id, proxy_id, group_ref) AS first_start_ms
    FROM starts s
), line AS (
    SELECT d.run_id, d.proxy_id, d.group_ref, d.ts_ms AS at_ms, 1 AS kind, d.first_seq, d.position, d.value, d.bound, d.checked, d.recorded,
           CAST(NULL AS BIGINT) AS next_start_ms, c.first_start_ms, g.num_samples, g.window_ms, g.cap_ms, g.quota_type
    FROM sql_decisions d JOIN chained c USING (run_id, proxy_id, group_ref, sample_start_ms)
    JOIN sql_groups g USING (run_id, proxy_id, group_ref)
    UNION ALL
    SELECT c.run_id, c.proxy_id, c.group_ref, c.last_ms + g.num_samples * g.window_ms, 0, 0, 0, -c.total, NULL, FALSE, 0,
           c.next_start_ms, c.first_start_ms, g.num_samples, g.window_ms, g.cap_ms, g.quota_type
    FROM chained c JOIN sql_groups g USING (run_id, proxy_id, group_ref)
)
SELECT *, sum(value) OVER w AS live, coalesce(max(next_start_ms) OVER w, first_start_ms) AS oldest_ms
FROM line
WINDOW w AS (PARTITION BY run_id, proxy_id, group_ref ORDER BY at_ms, kind, first_seq, position ROWS UNBOUNDED PRECEDING)
"""
WAITS: Final = f"""
WITH measured AS (
    SELECT *, greatest(at_ms - oldest_ms + greatest(num_samples - 1 - (at_ms - oldest_ms) DIV window_ms, 0) * window_ms, 1) AS span_ms
    FROM sql_sweep WHERE kind = 1
), rated AS (
    SELECT *, (CASE WHEN quota_type = 'Request' THEN live * CAST(1e-7 AS DOUBLE) ELSE CAST(live AS DOUBLE) END)
              / (span_ms / CAST(1000 AS DOUBLE)) AS observed
    FROM measured
), exact AS (
    SELECT *, checked AND observed > bound AS violated, (observed - bound) / nullif(bound, 0) * span_ms AS exact_ms FROM rated
), rounded AS (
    SELECT *, CASE WHEN NOT violated OR bound = 0 THEN 0
                   ELSE least(CAST(floor(exact_ms) AS BIGINT) + CASE WHEN exact_ms - floor(exact_ms) >= 0.5 THEN 1 ELSE 0 END,
                              coalesce(cap_ms, {INT32_MAX})) END AS expected,
           (checked AND bound = 0) OR coalesce(exact_ms >= {INT32_MAX}, FALSE)
           OR (quota_type = 'Request' AND checked AND (abs(observed - bound) <= abs(bound) * {MARGIN} OR (violated
               AND abs(exact_ms - floor(exact_ms) - 0.5)
                   <= (abs(observed / nullif(bound, 0)) + 1) * span_ms * {MARGIN} + {MARGIN}))) AS left_out
    FROM exact
)
SELECT count(*) AS decisions, count_if(left_out) AS left_out, count_if(NOT left_out AND expected <> recorded) AS differences FROM rounded
"""  # noqa: S608 - constants


def cross_check(spark: Any, directory: Path, file_sets: Sequence[FileSet]) -> CrossCheck:
    """Recompute every throttle time of these file sets, which have to be whole runs from their first decision on."""
    alone = [file_set for file_set in file_sets if SHARED not in file_set.manifest.settings]  # a supervisor has the buckets of its workers
    by_window = [file_set for file_set in file_sets if PACED not in file_set.manifest.settings]
    samples, groups = _paths(directory, by_window, "samples"), _paths(directory, file_sets, "dim_group")
    events = _paths(directory, alone, "events")
    cross_check = CrossCheck(0, 0, 0)
    if not samples and not events:
        return cross_check
    key = ["run_id", "proxy_id", "group_ref"]
    described = spark.read.parquet(*groups).select(*key, "quota_type", "num_samples", "window_ms", "cap_ms").dropDuplicates(key)
    if samples:
        cross_check = _check_samples(spark, samples, described.where(f"quota_type <> '{MUTATION}'"))
    if any(MUTATION in file_set.manifest.counts for file_set in alone):
        cross_check += check_buckets_in_sql(spark, events, described.where(f"quota_type = '{MUTATION}'"))
    return cross_check


def _check_samples(spark: Any, samples: Sequence[str], groups: Any) -> CrossCheck:
    spark.read.parquet(*samples).createOrReplaceTempView("sql_samples")
    groups.createOrReplaceTempView("sql_groups")
    for view, query in (("sql_events", EVENTS), ("sql_decisions", DECISIONS), ("sql_sweep", SWEEP)):
        spark.sql(query).createOrReplaceTempView(view)
    row = spark.sql(WAITS).collect()[0]
    return CrossCheck(int(row["decisions"]), int(row["differences"]), int(row["left_out"]))


def _paths(directory: Path, file_sets: Sequence[FileSet], table: str) -> list[str]:
    return [url_of(directory / entry.path) for file_set in file_sets for entry in file_set.manifest.files if entry.table == table]
