"""The tables of a roll-up in an Iceberg catalog."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from pipeline.builds.leftovers import days_of
from pipeline.builds.publishing import schema_of
from pipeline.builds.runs import NAME, SCHEMA, Row
from pipeline.errors import IncompleteError
from pipeline.iceberg.catalog import errors_of, without_retries
from pipeline.iceberg.leftovers import remove_leftovers
from pipeline.rollup.published.ddl import TABLES, PublishedTable

ROWS_AT_ONCE: Final = 500_000
"""Rows that are in memory before they are written."""
_PROPERTIES: Final = {"commit.manifest-merge.enabled": "true"}
"""Otherwise each commit adds a manifest that every later reader opens."""


class IcebergStore:
    """A `BuildStore` in a namespace."""

    def __init__(self, catalog: Catalog, namespace: tuple[str, ...]) -> None:
        self._catalog, self._namespace = catalog, namespace
        self._tables: dict[str, Table] = {}

    def read_runs(self) -> Sequence[Row]:
        """Return the rows of `runs`."""
        identifier = (*self._namespace, NAME)
        with errors_of(self._catalog.name):
            if not self._catalog.table_exists(identifier):
                self._catalog.create_namespace_if_not_exists(self._namespace)
                self._catalog.create_table_if_not_exists(identifier, SCHEMA, properties=_PROPERTIES)
            self._runs = without_retries(self._catalog.load_table(identifier))
            rows: list[Row] = self._runs.scan().to_arrow().to_pylist()
            return rows

    def prepare(self) -> None:
        """Make missing tables and columns."""
        with errors_of(self._catalog.name):
            existing = {identifier[-1] for identifier in self._catalog.list_tables(self._namespace)}
            self._tables = {name: self._table(name, table, is_new=name not in existing) for name, table in TABLES.items()}

    def _table(self, name: str, published: PublishedTable, *, is_new: bool) -> Table:
        identifier, schema = (*self._namespace, name), schema_of(published)
        if is_new:
            with self._catalog.create_table_transaction(identifier, schema, properties=_PROPERTIES) as made, made.update_spec() as spec:
                for column in published.partitions:
                    spec.add_identity(column)
        table = self._catalog.load_table(identifier)
        if not set(schema.names) <= {column.name for column in table.schema().fields}:
            with table.update_schema() as change:
                change.union_by_name(schema)
        return table

    def append(self, table: str, pieces: Iterator[pa.Table]) -> None:
        """Add rows by one commit."""
        with errors_of(self._catalog.name), self._tables[table].transaction() as transaction:
            for rows in _joined(pieces):
                transaction.append(rows)

    def count(self, rows: pa.Table, replaced: Sequence[datetime.date]) -> None:
        """Replace the rows of `runs` of some dates."""
        try:
            with errors_of(self._catalog.name), self._runs.transaction() as transaction:
                if replaced:
                    dates = ", ".join(f"'{date}'" for date in replaced)
                    transaction.overwrite(rows, f"date IN ({dates})")
                else:
                    transaction.append(rows)
        except IncompleteError as error:
            name = ".".join((self._catalog.name, *self._namespace))
            message = f"{name}: another roll-up has published meanwhile, and no row of this one counts; run this one again"
            raise IncompleteError(message) from error

    def remove_leftovers(self, first: datetime.date, last: datetime.date) -> None:
        """Remove rows whose build does not count."""
        with errors_of(self._catalog.name):
            remove_leftovers(self._runs, self._tables.values(), days_of(first, last))


def _joined(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows in few tables, each of which becomes a snapshot."""
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) >= ROWS_AT_ONCE:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)
