"""The tables of a roll-up as Delta tables: one below a directory for each, on this machine or in an object store."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from pipeline.builds.leftovers import days_of, kept_since_ms
from pipeline.builds.publishing import schema_of
from pipeline.builds.runs import BUILD_ID, NAME, SCHEMA, Row, transaction_after
from pipeline.errors import BadInputError, IncompleteError
from pipeline.rollup.published.ddl import TABLES
from sluice.object_store import first_line


class DeltaStore:
    """A `BuildStore` below a directory.

    Args:
        place: the directory: an absolute path, or a URL.
        name: the directory for messages.
    """

    def __init__(self, place: str, name: str) -> None:
        self._place, self._name = place.partition("?")[0].rstrip("/"), name
        self._tables: dict[str, DeltaTable] = {}

    def read_runs(self) -> Sequence[Row]:
        """Return the rows of `runs`."""
        with self._errors():
            self._runs = self._table(NAME, SCHEMA, ())
            rows: list[Row] = self._runs.to_pyarrow_table().to_pylist()
            return rows

    def prepare(self) -> None:
        """Make missing tables. Columns that an earlier version lacks are made with the rows that have them."""
        with self._errors():
            self._tables = {name: self._table(name, schema_of(table), table.partitions) for name, table in TABLES.items()}

    def _table(self, name: str, schema: pa.Schema, partitions: Sequence[str]) -> DeltaTable:
        place = f"{self._place}/{name}"
        if not DeltaTable.is_deltatable(place, self._options):
            DeltaTable.create(place, schema, mode="ignore", partition_by=list(partitions), storage_options=self._options)
        return DeltaTable(place, storage_options=self._options)

    @property
    def _options(self) -> dict[str, str] | None:
        """Credentials and the endpoint come from the environment; a server without TLS has to be allowed."""
        return {"allow_http": "true"} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http:") else None

    def append(self, table: str, pieces: Iterator[pa.Table]) -> None:
        """Add rows by one commit."""
        first = next(pieces, None)
        if first is None:
            return
        batches = (batch for piece in chain([first], pieces) for batch in piece.to_batches())
        with self._errors():
            write_deltalake(
                self._tables[table], pa.RecordBatchReader.from_batches(first.schema, batches), mode="append", schema_mode="merge"
            )

    def count(self, rows: pa.Table, replaced: Sequence[datetime.date]) -> None:
        """Replace the rows of `runs` of some dates."""
        transaction = Transaction(*transaction_after(self._runs.version()))  # Spark has only this to see that another one has published
        # without retries: a commit would be repeated on the state after that of another program, for which it was not computed
        once = CommitProperties(app_transactions=[transaction], max_commit_retries=0)
        try:
            if replaced:
                dates = ", ".join(f"'{date}'" for date in replaced)
                write_deltalake(self._runs, rows, mode="overwrite", predicate=f"date IN ({dates})", commit_properties=once)
            else:
                write_deltalake(self._runs, rows, mode="append", commit_properties=once)
        except CommitFailedError as error:
            message = f"{self._name}: another roll-up has published meanwhile, and no row of this one counts; run this one again"
            raise IncompleteError(message) from error

    def remove_leftovers(self, first: datetime.date, last: datetime.date) -> None:
        """Remove rows whose build does not count, as whole files: each has the rows of one build."""
        with self._errors():
            since = first - datetime.timedelta(days=1)
            counted = self._counted(since, last)
            for table in self._tables.values():
                left = sorted(build for date, build in _files_of(table) if since <= date <= last and build not in counted)
                if left:
                    builds = ", ".join(f"'{build}'" for build in left)
                    with contextlib.suppress(CommitFailedError):  # the next run removes them
                        table.delete(f"{BUILD_ID} IN ({builds}) AND {days_of(first, last)}")

    def _counted(self, since: datetime.date, last: datetime.date) -> set[str]:
        """Return the builds of some days that count now, or that counted not long ago."""
        since_ms = kept_since_ms()
        versions = sorted((entry["version"], entry["timestamp"]) for entry in self._runs.history())
        older = [version for version, at_ms in versions if at_ms < since_ms]
        found: set[str] = set()
        for version in [*older[-1:], *(version for version, _ in versions[len(older) :])]:
            then = DeltaTable(self._runs.table_uri, version=version, storage_options=self._options)
            found.update(
                then.to_pyarrow_table(columns=[BUILD_ID], filters=[("date", ">=", since), ("date", "<=", last)])
                .column(BUILD_ID)
                .drop_null()
                .to_pylist()
            )
        return found

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the store to errors of input."""
        try:
            yield
        except (DeltaError, OSError) as error:
            raise BadInputError(f"{self._name}: cannot be used ({first_line(error)}); check the place and the credentials") from error


def _files_of(table: DeltaTable) -> Iterator[tuple[datetime.date, str]]:
    """Yield the day and the build of each file; files that may have several builds, as after a compaction, are left out."""
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for file in files:
        if file.get("min.build_id") is not None and file["min.build_id"] == file["max.build_id"]:
            yield file["partition.date"], file["min.build_id"]
