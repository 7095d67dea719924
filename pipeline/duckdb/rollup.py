"""The roll-up in this process."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import duckdb

from metering_format.manifest import Manifest
from pipeline.duckdb import decisions, escapes
from pipeline.duckdb.charges import charges_of
from pipeline.duckdb.database import Database, database
from pipeline.duckdb.gold import adjustments, charge_tables, gold_tables, look_at_hours, put_coverage, used_in_days
from pipeline.duckdb.names import number_names
from pipeline.duckdb.quarantine import quarantined
from pipeline.duckdb.usage import see_usage, usage_by_second, usage_sums
from pipeline.duckdb.written import write_hours, write_partition, write_rows
from pipeline.errors import BadInputError
from pipeline.removed import removed_runs
from pipeline.rollup.content import columns
from pipeline.rollup.content.sums import check_decisions, check_usage
from pipeline.rollup.coverage import Coverage, coverage_by_day
from pipeline.rollup.engine import ReportProgress
from pipeline.rollup.inputs import Hour, Input, find_inputs, hash_by_day
from pipeline.rollup.ledger import hour_key
from pipeline.rollup.plan import Plan
from pipeline.rollup.prices import Prices
from pipeline.rollup.run import update_tables
from pipeline.rollup.settings import RollupResult, RollupSettings
from pipeline.storage.copies import copy_files

_K = TypeVar("_K")
ROWS_TOGETHER_MAX: Final = 2**18
"""Highest number of decisions and rows of usage of hours that are added up together."""


def roll_up(settings: RollupSettings, report: ReportProgress = lambda _line: None) -> RollupResult:
    """Update the tables; nothing is built when there are no new files.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: the content of files differs from the sums in their manifests. Nothing is published.
    """
    with contextlib.ExitStack() as opened:
        try:
            return update_tables(LocalEngine(opened, settings), settings, report)
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            line = str(error).splitlines()[0][:300]
            raise BadInputError(f"{settings.source_name}: a file cannot be read ({line}); restore it") from error


class LocalEngine:
    """A `RollupEngine` in this process. `opened` closes its databases, and removes its copies of files."""

    def __init__(self, opened: contextlib.ExitStack, settings: RollupSettings) -> None:
        self._opened, self._settings = opened, settings
        self._directory = settings.directory

    def find(self) -> tuple[Sequence[Input], Mapping[tuple[str, str], int]]:
        """Find the file sets of the directory."""
        return find_inputs(self._directory), removed_runs(self._directory)

    def read(self, inputs: Sequence[Input]) -> LocalRows:
        """Read and check file sets. DuckDB does not notice damaged bytes, so their digests are compared first."""
        directory = self._local([item.manifest for item in inputs])
        rows = LocalRows(self._opened.enter_context(database()), self._settings)
        rows.check(directory, inputs)
        return rows

    def _local(self, manifests: Sequence[Manifest]) -> Path:
        """Return a directory of this machine that has the files. Those of an object store are copied, and compared with their digests."""
        if isinstance(self._directory, Path):
            return self._directory
        copy = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="sluice-metering-")))
        copy_files(self._directory, manifests, copy)
        return copy


class LocalRows:
    """`RollupRows` in the database."""

    def __init__(self, made: Database, settings: RollupSettings) -> None:
        self._database, self._settings = made, settings
        self._tables = gold_tables(settings.levels)
        self.usage_problems: Mapping[str, int] = {}
        self.decision_problems = 0
        self.decisions_aside: Mapping[str, int] = {}

    def check(self, directory: Path, inputs: Sequence[Input]) -> None:
        """Make the views of the file sets, and compare all sums with the manifests.

        Raises:
            IncompleteError: a sum differs, or a file is not the one that its manifest lists.
            BadInputError: a file is not Parquet, or was written by another program.
        """
        self._database.number_hours(item.hour for item in inputs)
        self._database.put_tenants(self._settings.tenants)
        self._database.keep_small(directory, self._settings.directory, inputs)
        self._database.read(directory, inputs)
        number_names(self._database)
        see_usage(self._database)
        decisions.see_decisions(self._database)
        self.usage_problems = check_usage(inputs, self._database.table(usage_sums()).to_pylist())
        found = self._database.table(decisions.decision_sums()).to_pylist()
        self.decision_problems, self.decisions_aside = check_decisions(inputs, found)

    @property
    def _has_problems(self) -> bool:
        return self.decision_problems > 0 or any(self.usage_problems.values())

    def put_open(self, plan: Plan, coverage: Mapping[Hour, Coverage], report: ReportProgress) -> dict[str, int]:
        """Write the tables of open days."""
        days = _percents(coverage_by_day(coverage))
        put_coverage(self._database, _percents(coverage), days)
        rows = dict.fromkeys((*self._tables, "quarantine"), 0)
        for inputs, is_wanted in _parts(plan):
            hours = sorted({item.hour for item in inputs})
            for hour in hours:
                report(f"adding up {hour_key(hour)}")
            self._add_up(inputs)
            if is_wanted:
                look_at_hours(self._database, hours)
                self._put_hours(rows)
                aside = quarantined(self._database) if self._has_problems else ()
                rows["quarantine"] += write_rows(self._settings.out, "quarantine", aside, columns.QUARANTINE, ("date", "hour"))
        escapes.see_client_seconds(self._database)
        for date in plan.days:
            report(f"building the day {date}")
            self._database.look_at(hour for hour in coverage if hour[0] == date)
            self._put_day(rows, date)
        if self._settings.prices is not None:
            report("building chargeback_day")
            rows |= self._put_charges(self._settings.prices, days, plan.inputs, None)
        return rows

    def _add_up(self, inputs: Sequence[Input]) -> None:
        """Add the file sets of some hours to the sums by second."""
        self._database.narrow(inputs)
        for table, query in (
            ("usage_seconds", usage_by_second()),
            ("decision_seconds", decisions.decisions_by_second()),
            ("waits", decisions.waits()),
        ):
            self._database.add(table, query)

    def _put_hours(self, rows: dict[str, int]) -> None:
        """Write the tables of the hours at which the database looks."""
        for table, (query, schema, is_daily) in self._tables.items():
            if not is_daily:
                rows[table] += write_hours(self._database, self._settings.out, table, query, schema)

    def _put_day(self, rows: dict[str, int], date: str) -> None:
        """Write the tables of the day at which the database looks."""
        for table, (query, schema, is_daily) in self._tables.items():
            if is_daily:
                rows[table] += write_partition(self._database, self._settings.out, table, query, schema, {"date": date})

    def _put_charges(self, prices: Prices, days: Mapping[str, float], inputs: Sequence[Input], batch: str | None) -> dict[str, int]:
        charges = charges_of(used_in_days(self._database), prices, batch)
        keys = ("date",) if batch is None else ("date", "batch")
        made = charge_tables(charges, days, hash_by_day(inputs), batch)
        return {table: write_rows(self._settings.out, table, rows, schema, keys) for table, (rows, schema) in made.items()}

    def put_late(self, late: Sequence[Input], batch: str, days: Mapping[str, Coverage]) -> dict[str, int]:
        """Write the adjustments of closed days."""
        self._database.add("usage_seconds", usage_by_second())
        put_coverage(self._database, {}, _percents(days))
        partitions = [{"date": date, "batch": batch} for date in sorted({item.hour[0] for item in late})]
        out = self._settings.out
        rows = {"usage_adjustment": 0}
        for partition in partitions:
            of_day = f"SELECT * FROM ({adjustments()}) WHERE date = '{partition['date']}'"
            rows["usage_adjustment"] += write_partition(self._database, out, "usage_adjustment", of_day, columns.ADJUSTMENTS, partition)
        if self._settings.prices is not None:
            rows |= self._put_charges(self._settings.prices, _percents(days), late, batch)
        return rows

    def release(self) -> None:
        """Close the database."""
        self._database.close()


def _percents(accounts: Mapping[_K, Coverage]) -> dict[_K, float]:
    return {key: account.percent for key, account in accounts.items()}


def _parts(plan: Plan) -> Iterator[tuple[list[Input], bool]]:
    """Yield the file sets of one or more hours, and whether these hours are built. Hours with few rows are added up together.

    Hours with many rows are added up one by one, which bounds the memory.
    """
    wanted = set(plan.hours)
    by_hour = itertools.groupby(sorted(plan.inputs, key=lambda item: item.hour), key=lambda item: item.hour)
    part: list[Input] = []
    rows = 0
    for hour, found in by_hour:
        its = list(found)
        more = sum(_size(item) for item in its)
        if part and (rows + more > ROWS_TOGETHER_MAX or (part[-1].hour in wanted) != (hour in wanted)):
            yield part, part[-1].hour in wanted
            part, rows = [], 0
        part += its
        rows += more
    if part:
        yield part, part[-1].hour in wanted


def _size(item: Input) -> int:
    """Return the number of decisions and of rows of usage."""
    return item.manifest.last_seq - item.manifest.first_seq + 1 + item.rows("usage")
