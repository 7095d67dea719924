"""The tables of a roll-up in Iceberg. Each row has its build; a build counts when the table `runs` has it, which is committed last.

A roll-up works in a folder of this machine, as for any output, and that folder has only what the run builds. Then each table gets the new
rows by one commit, and the commit to `runs` makes all of them count at once, in place of the rows of the same hours and days. A run that
ends before has added rows that no reader counts. The next run that publishes removes them.
"""

from __future__ import annotations

import contextlib
import datetime
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table

from pipeline.errors import IncompleteError
from pipeline.iceberg.catalog import errors_of, without_retries
from pipeline.iceberg.leftovers import remove_leftovers
from pipeline.iceberg.runs import SCHEMA, Builds, builds_of, rows_by_date
from pipeline.rollup.ledger import NAME, Ledger, write_ledger
from pipeline.rollup.published.ddl import TABLES, PublishedTable
from pipeline.rollup.settings import CHARGES, RollupResult

RUNS: Final = "runs"
BUILD_ID: Final = "build_id"
BUILD_ID_LETTERS: Final = 16
"""The bounds of a column in a file's statistics are cut at this length."""
ROWS_AT_ONCE: Final = 500_000
"""Rows that are in memory before they are written."""
_PROPERTIES: Final = {"commit.manifest-merge.enabled": "true"}
"""Otherwise each commit adds a manifest that every later reader opens."""


@contextlib.contextmanager
def gold_tables(catalog: Catalog, namespace: tuple[str, ...]) -> Iterator[GoldTables]:
    """Open the tables for one roll-up.

    Raises:
        BadInputError: the catalog refuses, or cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-tables-") as folder, catalog:
        with errors_of(catalog.name):
            if not catalog.table_exists((*namespace, RUNS)):
                catalog.create_namespace_if_not_exists(namespace)
                catalog.create_table_if_not_exists((*namespace, RUNS), SCHEMA, properties=_PROPERTIES)
            runs = without_retries(catalog.load_table((*namespace, RUNS)))
            builds = builds_of(runs.scan().to_arrow().to_pylist())
        tables = GoldTables(catalog, namespace, Path(folder, "tables"), runs, builds)
        tables.write_known()
        yield tables


class GoldTables:
    """The tables of one namespace.

    Attributes:
        folder: the output directory of the roll-up.
    """

    def __init__(self, catalog: Catalog, namespace: tuple[str, ...], folder: Path, runs: Table, builds: Builds) -> None:
        self.folder = folder
        self._catalog, self._namespace = catalog, namespace
        self._runs, self._builds = runs, builds

    def write_known(self) -> None:
        """Write what a roll-up reads in its output directory: the ledger, and a folder for each day with charges."""
        self.folder.mkdir()
        write_ledger(self.folder, self._builds.ledger)
        for date in self._builds.charged:
            (self.folder / CHARGES / f"date={date}").mkdir(parents=True)

    def publish(self, result: RollupResult) -> None:
        """Publish what a roll-up wrote to the folder, and enter the build into its result; nothing is committed if it changed nothing.

        Raises:
            BadInputError: the catalog refuses, or cannot be reached.
            IncompleteError: another roll-up has published meanwhile. No reader counts a row of this one.
        """
        build_id = uuid.uuid4().hex[:BUILD_ID_LETTERS]
        ledger = msgspec.json.decode((self.folder / NAME).read_bytes(), type=Ledger)
        charged = {path.parent.name.removeprefix("date=") for path in (self.folder / CHARGES).glob("date=*/*.parquet")}
        builds = self._builds.after(ledger, result.built, charged, build_id)
        before, after = rows_by_date(self._builds), rows_by_date(builds)
        changed = sorted(date for date in {*before, *after} if before.get(date) != after.get(date))
        if not changed:
            return
        with errors_of(self._catalog.name):
            existing = {identifier[-1] for identifier in self._catalog.list_tables(self._namespace)}
            tables = {name: self._table(name, table, is_new=name not in existing) for name, table in TABLES.items()}
            for name, table in tables.items():
                self._append(table, name, build_id)
            self._count([row for date in changed for row in after.get(date, ())], [date for date in changed if date in before])
            remove_leftovers(self._runs, tables.values(), changed[0], changed[-1])
        result.build_id = build_id

    def _table(self, name: str, published: PublishedTable, *, is_new: bool) -> Table:
        """Return a table. It is made if it is new, and gets the columns that an earlier version lacks."""
        identifier, schema = (*self._namespace, name), _schema_of(published)
        if is_new:
            with self._catalog.create_table_transaction(identifier, schema, properties=_PROPERTIES) as made, made.update_spec() as spec:
                for column in published.partitions:
                    spec.add_identity(column)
        table = self._catalog.load_table(identifier)
        if not set(schema.names) <= {column.name for column in table.schema().fields}:
            with table.update_schema() as change:
                change.union_by_name(schema)
        return table

    def _append(self, table: Table, name: str, build_id: str) -> None:
        """Add the rows of the folder by one commit, if there are any."""
        schema = _schema_of(TABLES[name])
        with table.transaction() as transaction:
            for rows in _pieces(self.folder / name, schema, build_id):
                transaction.append(rows)

    def _count(self, rows: list[dict[str, Any]], replaced: list[datetime.date]) -> None:
        """Replace the rows of `runs` of these dates; from this commit on the build counts."""
        made = pa.Table.from_pylist(rows, schema=SCHEMA)
        try:
            with self._runs.transaction() as transaction:
                if replaced:
                    dates = ", ".join(f"'{date}'" for date in replaced)
                    transaction.overwrite(made, f"date IN ({dates})")
                else:
                    transaction.append(made)
        except (CommitFailedException, ValidationException) as error:
            name = ".".join((self._catalog.name, *self._namespace))
            message = f"{name}: another roll-up has published meanwhile, and no row of this one counts; run this one again"
            raise IncompleteError(message) from error


def _schema_of(published: PublishedTable) -> pa.Schema:
    """Return the columns of a table: those of its files, those that are folders, and the build."""
    folders = [(name, pa.date32() if name == "date" else pa.string()) for name in published.partitions]
    return pa.schema([*published.fields, *folders, (BUILD_ID, pa.string())])


def _pieces(folder: Path, schema: pa.Schema, build_id: str) -> Iterator[pa.Table]:
    """Yield the rows of all files below the folder of a table, in pieces that fit into memory."""
    held: list[pa.Table] = []
    for path in sorted(folder.rglob("*.parquet")):
        held.append(_rows_of(path, folder, schema, build_id))
        if sum(map(len, held)) >= ROWS_AT_ONCE:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _rows_of(path: Path, folder: Path, schema: pa.Schema, build_id: str) -> pa.Table:
    rows = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
    places = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
    for name, value in (*places.items(), (BUILD_ID, build_id)):
        rows = rows.append_column(name, pa.array([value] * len(rows), pa.string()))
    return rows.select(schema.names).cast(schema)
