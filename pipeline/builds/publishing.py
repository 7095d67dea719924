"""Publishes a roll-up in tables that cannot be renamed. Each row has its build; a build counts when the table `runs` has it.

The local engine works in a folder of this machine, as for any output, and that folder has only what the run builds. Then each table gets
the new rows by one commit. Spark's tasks write to the tables themselves. The commit to `runs` makes all rows count at once, in place of the
rows of the same hours and days. A run that ends before has added rows that no reader counts. The next run that publishes removes them.
"""

from __future__ import annotations

import contextlib
import datetime
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.builds.runs import BUILD_ID, SCHEMA, Builds, Row, builds_of, rows_by_date
from pipeline.rollup.ledger import NAME, Ledger, write_ledger
from pipeline.rollup.published.ddl import TABLES, PublishedTable
from pipeline.rollup.settings import CHARGES, RollupResult

BUILD_ID_LETTERS: Final = 16
"""The bounds of a column in the statistics of Iceberg are cut at this length."""


PutRows = Callable[[Path, str], None]
"""Brings the rows of a roll-up from its folder to the tables, with their build."""


class RunsStore(Protocol):
    """The table `runs` of one namespace or directory, during one roll-up."""

    def read_runs(self) -> Sequence[Row]:
        """Return the rows of `runs`, which is made if necessary. `count` fails if another program changes it from now on.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
        """

    def count(self, rows: pa.Table, replaced: Sequence[datetime.date]) -> None:
        """Replace the rows of `runs` of some dates by one commit.

        Args:
            rows: the new rows.
            replaced: the dates among theirs that have rows now.

        Raises:
            IncompleteError: another roll-up has published meanwhile.
        """

    def remove_leftovers(self, first: datetime.date, last: datetime.date) -> None:
        """Remove the rows of these days, and of the day before, whose build does not count."""


class BuildStore(RunsStore, Protocol):
    """All tables of a namespace or directory, which this process writes."""

    def prepare(self) -> None:
        """Make the tables that are missing, and the columns that tables of an earlier version lack."""

    def append(self, table: str, pieces: Iterator[pa.Table]) -> None:
        """Add rows to a table by one commit; no commit without rows."""


@contextlib.contextmanager
def build_tables(store: BuildStore) -> Iterator[BuildTables]:
    """Open the tables for one roll-up of the local engine.

    Raises:
        BadInputError: the store refuses, or cannot be reached.
    """

    def put_rows(folder: Path, build_id: str) -> None:
        store.prepare()
        for name in TABLES:
            store.append(name, _pieces(folder / name, schema_of(TABLES[name]), build_id))

    with opened_builds(store, put_rows) as tables:
        yield tables


@contextlib.contextmanager
def opened_builds(store: RunsStore, put_rows: PutRows) -> Iterator[BuildTables]:
    """Open the tables for one roll-up; `put_rows` is called before its build counts.

    Raises:
        BadInputError: the store refuses, or cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-tables-") as folder:
        tables = BuildTables(store, Path(folder, "tables"), builds_of(store.read_runs()), put_rows)
        tables.write_known()
        yield tables


class BuildTables:
    """The tables during one roll-up.

    Attributes:
        folder: the output directory of the roll-up.
        build_id: the build of its rows.
    """

    def __init__(self, store: RunsStore, folder: Path, builds: Builds, put_rows: PutRows) -> None:
        self.folder, self.build_id = folder, uuid.uuid4().hex[:BUILD_ID_LETTERS]
        self._store, self._builds, self._put_rows = store, builds, put_rows

    def write_known(self) -> None:
        """Write what a roll-up reads in its output directory: the ledger, and a folder for each day with charges."""
        self.folder.mkdir()
        write_ledger(self.folder, self._builds.ledger)
        for date in self._builds.charged:
            (self.folder / CHARGES / f"date={date}").mkdir(parents=True)

    def publish(self, result: RollupResult) -> None:
        """Publish what a roll-up wrote to the folder, and enter the build into its result; nothing is committed if it changed nothing.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
            IncompleteError: another roll-up has published meanwhile. No reader counts a row of this one.
        """
        ledger = msgspec.json.decode((self.folder / NAME).read_bytes(), type=Ledger)
        charged = {path.parent.name.removeprefix("date=") for path in (self.folder / CHARGES).glob("date=*/*.parquet")}
        builds = self._builds.after(ledger, result.built, charged, self.build_id)
        before, after = rows_by_date(self._builds), rows_by_date(builds)
        changed = sorted(date for date in {*before, *after} if before.get(date) != after.get(date))
        if not changed:
            return
        self._put_rows(self.folder, self.build_id)
        rows: list[dict[str, Any]] = [row for date in changed for row in after.get(date, ())]
        self._store.count(pa.Table.from_pylist(rows, schema=SCHEMA), [date for date in changed if date in before])
        self._store.remove_leftovers(changed[0], changed[-1])
        result.build_id = self.build_id

    def bring(self, *, report: bool) -> None:
        """Do nothing: a summary shows the rows of this build only."""


def schema_of(published: PublishedTable) -> pa.Schema:
    """Return the columns of a table: those of its files, those that are folders in a directory, and the build."""
    folders = [(name, pa.date32() if name == "date" else pa.string()) for name in published.partitions]
    return pa.schema([*published.fields, *folders, (BUILD_ID, pa.string())])


def _pieces(folder: Path, schema: pa.Schema, build_id: str) -> Iterator[pa.Table]:
    """Yield the rows of each file below the folder of a table."""
    for path in sorted(folder.rglob("*.parquet")):
        rows = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
        places = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
        for name, value in (*places.items(), (BUILD_ID, build_id)):
            rows = rows.append_column(name, pa.array([value] * len(rows), pa.string()))
        yield rows.select(schema.names).cast(schema)
