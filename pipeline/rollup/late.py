"""Late data of closed days. Published rows never change; adjustment rows are stored beside them."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.rollup.coverage import Coverage, complete
from pipeline.rollup.engine import ReportProgress, RollupEngine, RollupRows
from pipeline.rollup.inputs import Input
from pipeline.rollup.ledger import Ledger, hour_key, write_ledger
from pipeline.rollup.plan import Plan
from pipeline.rollup.publish import publish_batch, staging, take_back_batch
from pipeline.rollup.settings import RollupResult, RollupSettings
from pipeline.text import counted

_NOTHING: Final = (0, 0, 0, 0)


def batch_of(late: Sequence[Input]) -> str:
    """Return a name for a set of file sets; the same set always has the same name."""
    return hashlib.sha256("".join(sorted(item.sha256 for item in late)).encode()).hexdigest()[:16]


def add_late(
    engine: RollupEngine, settings: RollupSettings, plan: Plan, ledger: Ledger, result: RollupResult, report: ReportProgress
) -> None:
    """Publish the adjustments for late file sets of closed days, and enter them into the ledger.

    A batch that an interrupted run published is removed first, since later file sets change the name of the batch.

    Raises:
        BadInputError, IncompleteError: as for any other file set.
    """
    late = plan.late
    report(f"reading {counted(len(late), 'late file set')} of closed days")
    rows = engine.read(late)
    result.usage_quarantined += sum(rows.usage_problems.values())
    result.decisions_quarantined += rows.decision_problems
    batch = batch_of(late)
    days = _coverage(plan, ledger, rows)
    with staging(settings.out):
        tables = rows.put_late(late, batch, days)
        result.tables |= tables
        if ledger.pending is not None:
            take_back_batch(settings.out, ledger.pending)
        ledger.pending = batch
        write_ledger(settings.out, ledger)
        for table in tables:
            publish_batch(settings.out, table, sorted({item.hour[0] for item in late}), batch)
    rows.release()
    _enter(plan, ledger, days)


def _coverage(plan: Plan, ledger: Ledger, rows: RollupRows) -> dict[str, Coverage]:
    """Return the coverage of closed days with late data. Days that an earlier version closed have no numbers, and are left out."""
    late: dict[str, list[Input]] = {}
    for item in plan.late:
        late.setdefault(item.hour[0], []).append(item)
    found = _found(plan, ledger)
    problems = rows.usage_problems, rows.decisions_aside
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
