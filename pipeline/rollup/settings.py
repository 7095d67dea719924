"""The settings and the result of a roll-up."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pipeline.chain import broken_links
from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import by_run
from pipeline.removed import removed_runs
from pipeline.rollup.coverage import Coverage, lost_between
from pipeline.rollup.inputs import Input, find_inputs
from pipeline.rollup.ledger import Ledger, hour_key, read_ledger, write_ledger
from pipeline.rollup.plan import Plan, plan_of
from pipeline.rollup.prices import Prices
from pipeline.rollup.tenants import TenantLine

CHARGES: Final = "chargeback_day"
TABLES_VERSION: Final = 4
"""Raised when the tables get other columns or figures: what is open is then built again."""


@dataclass(frozen=True, slots=True)
class RollupSettings:
    """The settings of a roll-up.

    Attributes:
        source: a directory, or one on any file system that Hadoop knows.
        levels: which of minute, hour and day.
        begin, end: dates and hours ("2026-11-21 07"), None: no limit; `end` is included.
        close_through: the last day ("2026-11-20") whose rows never change again.
    """

    source: str
    out: Path
    levels: tuple[str, ...] = ("hour", "day")
    tenants: tuple[TenantLine, ...] = ()
    begin: str | None = None
    end: str | None = None
    close_through: str | None = None
    prices: Prices | None = None

    @property
    def fingerprint(self) -> str:
        """Hash of what shapes the tables besides the input."""
        return hashlib.sha256(repr((TABLES_VERSION, sorted(self.levels), self.tenants, self.prices)).encode()).hexdigest()


@dataclass(slots=True)
class RollupResult:
    """The result of a run.

    Attributes:
        tables: rows written, by table.
        coverage: percent by day, of what is published, now or before.
        accounts: of each hour that was looked at to build its day: what its coverage is made of.
        accounts_by_day: the same of each day that was built.
        broken: that of the plan.
    """

    hours: int = 0
    days: int = 0
    late: int = 0
    usage_quarantined: int = 0
    decisions_quarantined: int = 0
    coverage: dict[str, float] = field(default_factory=dict)
    accounts: dict[str, Coverage] = field(default_factory=dict)
    accounts_by_day: dict[str, Coverage] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()


def plan_local(settings: RollupSettings) -> tuple[Ledger, Plan]:
    """Find what is to be done with a local directory; needs no Spark.

    Raises:
        BadInputError, IncompleteError: the input or the output directory cannot be used.
    """
    source = Path(settings.source.removeprefix("file://"))
    return plan_rollup(settings, find_inputs(source), removed_runs(source))


def plan_rollup(settings: RollupSettings, inputs: Sequence[Input], removed: Mapping[tuple[str, str], int]) -> tuple[Ledger, Plan]:
    """Find what is to be done with the file sets that were found.

    Args:
        removed: the last decision of each run that retention removed.

    Raises:
        BadInputError, IncompleteError: the output directory or the days cannot be used, or no file set is of the time asked for.
    """
    ledger = read_ledger(settings.out)
    if settings.close_through is not None and ledger.closed_through is not None and settings.close_through < ledger.closed_through:
        raise BadInputError(f"--close-through: {settings.close_through} is before {ledger.closed_through}; what is closed stays closed")
    if not any(_is_chosen(item, settings) for item in inputs):
        raise IncompleteError(f"{settings.source}: no file set of the hours that --from and --to name; it has {_hours_of(inputs)}")
    lost = lost_between(inputs, removed)
    plan = plan_of(inputs, ledger, settings.fingerprint, lambda item: _is_chosen(item, settings), lost, settings.close_through)
    _check_prices(settings, {item.hour[0] for item in plan.late})
    concerned = {id(item.manifest) for item in (*plan.inputs, *plan.late)}
    broken = broken_links(by_run(item.manifest for item in inputs).values(), removed)
    lines = tuple(line for manifest, line in broken if id(manifest) in concerned)
    return ledger, replace(plan, broken=lines)


def _check_prices(settings: RollupSettings, late_days: Iterable[str]) -> None:
    """What comes late to a day that was charged has to be charged too: it is an adjustment once and never again."""
    charged = [date for date in sorted(late_days) if (settings.out / CHARGES / f"date={date}").exists()]
    if charged and settings.prices is None:
        raise BadInputError(f"{settings.source}: files came late to {charged[0]}, which was charged and is closed; name --prices, as then")


def close_books(settings: RollupSettings) -> None:
    """Close days of which nothing is to be built; what was asked for stands in `settings`."""
    if settings.close_through is None:
        return
    ledger = read_ledger(settings.out)
    ledger.closed_through = settings.close_through
    settings.out.mkdir(parents=True, exist_ok=True)
    write_ledger(settings.out, ledger)


def published_coverage(ledger: Ledger, settings: RollupSettings) -> dict[str, float]:
    """Return the coverage of each day of the time asked for, whichever run built it."""
    first, last = (settings.begin or "")[:10], (settings.end or "9999-12-31")[:10]
    return {date: percent for date, percent in sorted(ledger.coverage.items()) if first <= date <= last}


def _is_chosen(item: Input, settings: RollupSettings) -> bool:
    key = hour_key(item.hour)
    return (settings.begin is None or key >= settings.begin) and (settings.end is None or key <= settings.end)


def _hours_of(inputs: Sequence[Input]) -> str:
    keys = sorted(hour_key(item.hour) for item in inputs)
    return f"{keys[0]} to {keys[-1]}" if keys else "none at all"
