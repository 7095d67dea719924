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
from pipeline.storage.paths import AnyPath, path_of
from sluice.object_store import is_url, shown_url

CHARGES: Final = "chargeback_day"
TABLES_VERSION: Final = 4
"""Incremented when columns or figures of the tables change; open hours are then rebuilt."""


@dataclass(frozen=True, slots=True)
class RollupSettings:
    """The settings of a roll-up.

    Attributes:
        source: the metering directory: a local path, or a URL of an object store; with Spark of any file system that Hadoop supports.
        levels: a subset of minute, hour and day.
        begin, end: date and hour ("2026-11-21 07"), None: no limit; `end` is included.
        close_through: the last day to close ("2026-11-20"). Rows of closed days never change.
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
    def directory(self) -> AnyPath:
        """Return the metering directory, on this machine or in an object store.

        Raises:
            BadInputError: its URL is invalid, or of a file system that only Hadoop knows.
        """
        return path_of(self.source)

    @property
    def source_name(self) -> str:
        """Return the metering directory for messages."""
        return shown_url(self.source) if is_url(self.source) else self.source

    @property
    def fingerprint(self) -> str:
        """Return a hash of the settings that affect the content of the tables."""
        return hashlib.sha256(repr((TABLES_VERSION, sorted(self.levels), self.tenants, self.prices)).encode()).hexdigest()


@dataclass(slots=True)
class RollupResult:
    """The result of a run.

    Attributes:
        tables: number of rows written, by table.
        coverage: percentage by day, of all published days.
        accounts: the numbers behind the coverage, by hour, of each hour that was read to build its day.
        accounts_by_day: the same numbers of each day that was built.
        broken: as in `Plan`.
        built: the hours that were built, as keys of the ledger.
        build_id: the build of all rows, in tables that have one.
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
    built: tuple[str, ...] = ()
    build_id: str | None = None


def plan_local(settings: RollupSettings) -> tuple[Ledger, Plan]:
    """Plan a roll-up of a local directory, without Spark.

    Raises:
        BadInputError, IncompleteError: the input or the output directory cannot be used.
    """
    return plan_rollup(settings, find_inputs(settings.directory), removed_runs(settings.directory))


def plan_rollup(settings: RollupSettings, inputs: Sequence[Input], removed: Mapping[tuple[str, str], int]) -> tuple[Ledger, Plan]:
    """Plan a roll-up of the given file sets.

    Args:
        settings: the settings of the roll-up.
        inputs: all file sets found.
        removed: sequence number of the last decision that retention removed, by run.

    Raises:
        BadInputError, IncompleteError: the output directory or a day cannot be used, or no file set is in the requested time.
    """
    ledger = read_ledger(settings.out)
    if settings.close_through is not None and ledger.closed_through is not None and settings.close_through < ledger.closed_through:
        raise BadInputError(f"--close-through: {settings.close_through} is before {ledger.closed_through}; closed days are not reopened")
    chosen_of(inputs, settings)
    lost = lost_between(inputs, removed)
    plan = plan_of(inputs, ledger, settings.fingerprint, lambda item: _is_chosen(item, settings), lost, settings.close_through)
    _check_prices(settings, {item.hour[0] for item in plan.late})
    concerned = {id(item.manifest) for item in (*plan.inputs, *plan.late)}
    broken = broken_links(by_run(item.manifest for item in inputs).values(), removed)
    lines = tuple(line for manifest, line in broken if id(manifest) in concerned)
    return ledger, replace(plan, broken=lines)


def _check_prices(settings: RollupSettings, late_days: Iterable[str]) -> None:
    """Refuse late data of a charged day without a price file. An adjustment is written once, so it could never be charged later."""
    charged = [date for date in sorted(late_days) if (settings.out / CHARGES / f"date={date}").exists()]
    if charged and settings.prices is None:
        raise BadInputError(
            f"{settings.source_name}: late files for {charged[0]}, which was charged and is closed; add --prices with the file used before"
        )


def close_books(settings: RollupSettings) -> None:
    """Close days that need no rebuild, as `settings` requests."""
    if settings.close_through is None:
        return
    ledger = read_ledger(settings.out)
    ledger.closed_through = settings.close_through
    settings.out.mkdir(parents=True, exist_ok=True)
    write_ledger(settings.out, ledger)


def published_coverage(ledger: Ledger, settings: RollupSettings) -> dict[str, float]:
    """Return the coverage in percent of each requested day, including days that earlier runs built."""
    first, last = (settings.begin or "")[:10], (settings.end or "9999-12-31")[:10]
    return {date: percent for date, percent in sorted(ledger.coverage.items()) if first <= date <= last}


def chosen_of(inputs: Sequence[Input], settings: RollupSettings) -> list[Input]:
    """Return the file sets in the hours of the settings.

    Raises:
        IncompleteError: there is none.
    """
    chosen = [item for item in inputs if _is_chosen(item, settings)]
    if not chosen:
        raise IncompleteError(f"{settings.source_name}: no file set in the hours from --from to --to; it has {_hours_of(inputs)}")
    return chosen


def _is_chosen(item: Input, settings: RollupSettings) -> bool:
    key = hour_key(item.hour)
    return (settings.begin is None or key >= settings.begin) and (settings.end is None or key <= settings.end)


def _hours_of(inputs: Sequence[Input]) -> str:
    keys = sorted(hour_key(item.hour) for item in inputs)
    return f"{keys[0]} to {keys[-1]}" if keys else "none at all"
