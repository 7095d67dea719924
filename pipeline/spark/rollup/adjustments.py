"""Late data of closed days. Published rows never change; adjustment rows are stored beside them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.rollup.coverage import Coverage, complete
from pipeline.rollup.inputs import Input
from pipeline.rollup.ledger import Ledger, hour_key, write_ledger
from pipeline.rollup.plan import Plan
from pipeline.rollup.publish import publish_batch, staging, take_back_batch
from pipeline.rollup.settings import RollupResult, RollupSettings
from pipeline.spark.rollup.charges import chargeback_of, charges_of, focus_of
from pipeline.spark.rollup.days import day_frame, days_frame, price_frame
from pipeline.spark.rollup.frames import Silver
from pipeline.spark.rollup.usage import CLIENT_KEY, start_of, with_coverage
from pipeline.spark.schemas import ADJUSTMENTS, USAGE_COUNTS
from pipeline.spark.written import write_rows
from pipeline.text import counted

_NOTHING: Final = (0, 0, 0, 0)


def batch_of(late: Sequence[Input]) -> str:
    """Return a name for a set of file sets; the same set always has the same name."""
    return hashlib.sha256("".join(sorted(item.sha256 for item in late)).encode()).hexdigest()[:16]


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


def add_adjustments(
    spark: SparkSession,
    settings: RollupSettings,
    source: str,
    plan: Plan,
    ledger: Ledger,
    result: RollupResult,
    report: Callable[[str], None],
) -> None:
    """Publish the adjustments for late file sets of closed days, and enter them into the ledger.

    A batch that an interrupted run published is removed first, since later file sets change the name of the batch.

    Raises:
        BadInputError, IncompleteError: as for any other file set.
    """
    late = plan.late
    report(f"reading {counted(len(late), 'late file set')} of closed days")
    silver = Silver(spark, source, late, settings.tenants)
    silver.check()
    result.usage_quarantined += sum(silver.usage_problems.values())
    result.decisions_quarantined += silver.decision_problems
    batch = batch_of(late)
    days = _coverage(plan, ledger, silver)
    rows = adjustments_of(silver.usage.where("problem is null"), batch, days_frame(spark, days)).persist()
    frames = {"usage_adjustment": rows}
    if settings.prices is not None:
        charges = charges_of(rows, price_frame(spark, settings.prices), settings.prices.currency, F.lit(batch))
        frames["chargeback_adjustment"] = chargeback_of(charges, day_frame(spark, late, days)).withColumn("batch", F.lit(batch))
        frames["focus_adjustment"] = focus_of(charges).withColumn("batch", F.lit(batch))
    with staging(settings.out) as place:
        for table, frame in frames.items():
            one = frame.coalesce(1).sortWithinPartitions("date")
            staged = Path(place.name, table)
            result.tables[table] = write_rows(one, settings.out, staged, "date", "batch", compression="zstd")
        if ledger.pending is not None:
            take_back_batch(settings.out, ledger.pending)
        ledger.pending = batch
        write_ledger(settings.out, ledger)
        for table in frames:
            publish_batch(settings.out, table, sorted({item.hour[0] for item in late}), batch)
    rows.unpersist()
    silver.release()
    _enter(plan, ledger, days)


def _coverage(plan: Plan, ledger: Ledger, silver: Silver) -> dict[str, Coverage]:
    """Return the coverage of closed days with late data. Days that an earlier version closed have no numbers, and are left out."""
    late: dict[str, list[Input]] = {}
    for item in plan.late:
        late.setdefault(item.hour[0], []).append(item)
    found = _found(plan, ledger)
    problems = silver.usage_problems, silver.decisions_aside
    return {
        date: complete(ledger.accounts.get(date, _NOTHING), late.get(date, ()), *problems, sum(found.get(date, {}).values()))
        for date in sorted({*late, *found})
        if date in ledger.accounts or date not in ledger.coverage
    }


def _found(plan: Plan, ledger: Ledger) -> dict[str, dict[str, int]]:
    """Return, by closed day and hour, the number of lost decisions that are present now; negative when a late file set follows a gap."""
    found: dict[str, dict[str, int]] = {}
    days = {item.hour[0] for item in plan.late}
    for key in {*ledger.lost, *(hour_key(item.hour) for item in plan.late)}:
        date, number = key.split(" ")[0], ledger.lost.get(key, 0) - plan.lost_now.get(key, 0)
        if (number > 0 and date <= (ledger.closed_through or "")) or date in days:
            found.setdefault(date, {})[key] = number
    return found


def _enter(plan: Plan, ledger: Ledger, days: Mapping[str, Coverage]) -> None:
    for hours in _found(plan, ledger).values():
        for key, number in hours.items():
            ledger.lost[key] = ledger.lost.get(key, 0) - number
    for item in plan.late:
        ledger.late.setdefault(hour_key(item.hour), []).append(item.sha256)
    for date, coverage in days.items():
        ledger.coverage[date], ledger.accounts[date] = coverage.percent, coverage.numbers
    ledger.pending = None
