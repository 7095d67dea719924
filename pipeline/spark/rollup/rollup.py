"""The roll-up: reads changed file sets, checks their sums, builds the tables, publishes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.rollup.inputs import hashes_by_hour
from pipeline.rollup.ledger import Ledger, hour_key, write_ledger
from pipeline.rollup.plan import Plan
from pipeline.rollup.publish import STAGING, publish_days, publish_hours, staging
from pipeline.rollup.settings import RollupResult, RollupSettings, close_books, plan_rollup, published_coverage
from pipeline.spark.rollup.adjustments import add_adjustments
from pipeline.spark.rollup.checked import inputs_at, place_of, read_checked
from pipeline.spark.rollup.days import coverage_frame, day_frame, known_frame
from pipeline.spark.rollup.tables import Tables
from pipeline.spark.written import write_rows
from pipeline.text import counted

FILES_AT_ONCE_MAX = 64
DAILY: Final = ("usage_day", "decisions_day", "chargeback_day", "focus_day", "escapes")
HOURLY: Final = (
    *(f"{kind}_{level}" for kind in ("usage", "decisions") for level in ("minute", "hour")),
    *("throttle_histogram", "throttle_stretches", "rate_series", "quarantine"),
)
"""All tables of open days. Every run publishes all of them for its hours and days: a table that it does not build loses their rows."""
_HOUR: Final = pa.schema({"date": pa.string(), "hour": pa.string()})

ReportProgress = Callable[[str], None]


def roll_up(spark: SparkSession, settings: RollupSettings, report: ReportProgress = lambda _line: None) -> RollupResult:
    """Update the tables; nothing is built when there are no new files.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: the content of files differs from the sums in their manifests. Nothing is published.
    """
    ledger, plan = plan_of_source(spark, settings)
    result = RollupResult(len(plan.hours), len(plan.days), len(plan.late), broken=plan.broken)
    if plan.hours:
        _build_open(spark, settings, plan, result, report)
        _enter(ledger, plan, result, settings.fingerprint)
    if plan.late:
        add_adjustments(spark, settings, place_of(settings), plan, ledger, result, report)
    if plan.is_empty:
        close_books(settings)
    else:
        ledger.closed_through = settings.close_through or ledger.closed_through
        write_ledger(settings.out, ledger)
    result.coverage = published_coverage(ledger, settings)
    return result


def plan_of_source(spark: SparkSession, settings: RollupSettings) -> tuple[Ledger, Plan]:
    """Plan the roll-up of a local or remote directory.

    Raises:
        BadInputError, IncompleteError: the input or the output directory cannot be used.
    """
    return plan_rollup(settings, *inputs_at(spark, settings.source))


def _build_open(spark: SparkSession, settings: RollupSettings, plan: Plan, result: RollupResult, report: ReportProgress) -> None:
    report(f"reading {counted(len(plan.inputs), 'file set')}")
    rows = read_checked(spark, settings, plan.inputs, plan.lost)
    silver = rows.silver
    result.usage_quarantined, result.decisions_quarantined = sum(silver.usage_problems.values()), silver.decision_problems
    result.accounts_by_day = dict(rows.coverage_by_day)
    result.accounts = {hour_key(hour): share for hour, share in sorted(rows.coverage.items())}
    with staging(settings.out):
        written = _Written(spark, settings.out, plan, report)
        with Tables(silver, settings.levels, coverage_frame(spark, rows.coverage)) as tables:
            if settings.prices is not None:
                tables.add_charges(spark, settings.prices, day_frame(spark, plan.inputs, result.accounts_by_day))
            for table, frame in tables.frames.items():
                written.put(table, frame)
        silver.release()
        written.publish()
    result.tables = written.rows


def _enter(ledger: Ledger, plan: Plan, result: RollupResult, fingerprint: str) -> None:
    found = hashes_by_hour(plan.inputs)
    for date, coverage in result.accounts_by_day.items():
        ledger.coverage[date], ledger.accounts[date] = coverage.percent, coverage.numbers
    for key, hour in ((hour_key(hour), hour) for hour in plan.hours):
        ledger.hours[key] = found[hour]
        ledger.built_with[key] = fingerprint
        ledger.lost[key] = plan.lost_now.get(key, 0)
    ledger.lost = {key: number for key, number in ledger.lost.items() if number}


class _Written:
    """Tables of one run in the staging directory of `out`; `rows` has the number of rows of each."""

    def __init__(self, spark: SparkSession, out: Path, plan: Plan, report: ReportProgress) -> None:
        self._spark, self._out, self._plan, self._report = spark, out, plan, report
        self.rows: dict[str, int] = {}

    def put(self, table: str, frame: DataFrame) -> None:
        """Write the partitions of the plan, one sorted file for each. The same input gives the same rows in the same order."""
        self._report(f"building {table}")
        is_daily = table in DAILY
        names = ["date"] if is_daily else ["date", "hour"]
        rows = frame.drop("hour") if is_daily else self._of_the_plan(frame)
        order = [name for name in rows.columns if name not in names]
        files = min(len(self._plan.days if is_daily else self._plan.hours), FILES_AT_ONCE_MAX)
        by_partition = rows.repartition(files, *names).sortWithinPartitions(*names, *order)
        self.rows[table] = write_rows(by_partition, self._out, Path(STAGING, table), *names, compression="zstd")

    def _of_the_plan(self, frame: DataFrame) -> DataFrame:
        """Drop hours that are in the input only for the tables of their day."""
        if {item.hour for item in self._plan.inputs} <= set(self._plan.hours):
            return frame
        wanted = known_frame(self._spark, self._plan.hours, _HOUR)
        return frame.join(wanted.hint("broadcast"), _HOUR.names, "left_semi")

    def publish(self) -> None:
        """Replace the published hours and days by the staged ones. A table that this run did not build loses these hours and days."""
        for table, is_daily in ((table, table in DAILY) for table in (*DAILY, *HOURLY)):
            if is_daily:
                publish_days(self._out, table, self._plan.days)
            else:
                publish_hours(self._out, table, self._plan.hours)
