"""The roll-up, by any engine: reads changed file sets, checks their sums, builds the tables, publishes them."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from pipeline.rollup.coverage import coverage_by_day, coverage_by_hour
from pipeline.rollup.engine import ReportProgress, RollupEngine
from pipeline.rollup.inputs import hashes_by_hour
from pipeline.rollup.late import add_late
from pipeline.rollup.ledger import Ledger, hour_key, write_ledger
from pipeline.rollup.plan import Plan
from pipeline.rollup.publish import publish_days, publish_hours, staging
from pipeline.rollup.settings import RollupResult, RollupSettings, close_books, plan_rollup, published_coverage
from pipeline.text import counted

DAILY: Final = ("usage_day", "decisions_day", "chargeback_day", "focus_day", "escapes")
HOURLY: Final = (
    *(f"{kind}_{level}" for kind in ("usage", "decisions") for level in ("minute", "hour")),
    *("throttle_histogram", "throttle_stretches", "rate_series", "quarantine"),
)
"""All tables of open days. Every run publishes all of them for its hours and days: a table that it does not build loses their rows."""


def update_tables(engine: RollupEngine, settings: RollupSettings, report: ReportProgress = lambda _line: None) -> RollupResult:
    """Update the tables; nothing is built when there are no new files.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: the content of files differs from the sums in their manifests. Nothing is published.
    """
    ledger, plan = plan_rollup(settings, *engine.find())
    built = tuple(map(hour_key, plan.hours))
    result = RollupResult(len(plan.hours), len(plan.days), len(plan.late), broken=plan.broken, built=built)
    if plan.hours:
        _build_open(engine, settings, plan, result, report)
        _enter(ledger, plan, result, settings.fingerprint)
    if plan.late:
        add_late(engine, settings, plan, ledger, result, report)
    if plan.is_empty:
        close_books(settings)
    else:
        ledger.closed_through = settings.close_through or ledger.closed_through
        write_ledger(settings.out, ledger)
    result.coverage = published_coverage(ledger, settings)
    return result


def _build_open(engine: RollupEngine, settings: RollupSettings, plan: Plan, result: RollupResult, report: ReportProgress) -> None:
    report(f"reading {counted(len(plan.inputs), 'file set')}")
    rows = engine.read(plan.inputs)
    result.usage_quarantined, result.decisions_quarantined = sum(rows.usage_problems.values()), rows.decision_problems
    coverage = coverage_by_hour(plan.inputs, rows.usage_problems, rows.decisions_aside, plan.lost)
    result.accounts_by_day = coverage_by_day(coverage)
    result.accounts = {hour_key(hour): share for hour, share in sorted(coverage.items())}
    with staging(settings.out):
        result.tables = rows.put_open(plan, coverage, report)
        rows.release()
        _publish(settings, plan)


def _publish(settings: RollupSettings, plan: Plan) -> None:
    """Replace the published hours and days by the staged ones. A table that this run did not build loses these hours and days."""
    for table in DAILY:
        publish_days(settings.out, table, plan.days)
    for table in HOURLY:
        publish_hours(settings.out, table, plan.hours)


def replaced_files(names: Iterable[str], result: RollupResult, pending: str | None) -> set[str]:
    """Return the files of earlier runs that a run replaced.

    Args:
        names: paths of published files below the output directory.
        result: the result of the run.
        pending: the batch that the ledger had as pending before the run, of which late files take the place.
    """
    hours = {tuple(key.split(" ")) for key in result.built}
    gone = {f"{table}/date={date}" for table in DAILY for date, _ in hours}
    gone |= {f"{table}/date={date}/hour={hour}" for table in HOURLY for date, hour in hours}
    batch = f"batch={pending}" if pending is not None and result.late else None
    folders = ((name, PurePosixPath(name).parent) for name in names)
    return {name for name, folder in folders if str(folder) in gone or folder.name == batch}


def _enter(ledger: Ledger, plan: Plan, result: RollupResult, fingerprint: str) -> None:
    found = hashes_by_hour(plan.inputs)
    for date, coverage in result.accounts_by_day.items():
        ledger.coverage[date], ledger.accounts[date] = coverage.percent, coverage.numbers
    for key, hour in ((hour_key(hour), hour) for hour in plan.hours):
        ledger.hours[key] = found[hour]
        ledger.built_with[key] = fingerprint
        ledger.lost[key] = plan.lost_now.get(key, 0)
    ledger.lost = {key: number for key, number in ledger.lost.items() if number}
