"""One DuckDB database for a roll-up, with the raw tables of file sets as views. What exceeds the memory goes to a temporary folder."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.tables import TABLES
from pipeline.duckdb.small_tables import FACTS, RAW, SmallTables
from pipeline.errors import BadInputError
from pipeline.memory import memory_bytes
from pipeline.rollup.content.columns import DAY_MS, HOUR_MS
from pipeline.rollup.inputs import Hour, Input
from pipeline.rollup.tenants import TenantLine
from pipeline.storage.paths import AnyPath

MEMORY_SHARE: Final = 2
"""DuckDB gets one byte in this many. The rest is for the page cache and for what DuckDB does not count."""
TASKS_SHARE: Final = 2
"""The databases of all tasks of a machine get one of these many parts of that. The rest is for rows on their way to the JVM and back."""
BATCH_ROWS: Final = 100_000
_MIB: Final = 2**20


class Database:
    """The database of one roll-up."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._numbers: dict[Hour, int] = {}
        self._kept: set[str] = set()
        self._small: frozenset[str] = frozenset()
        self._place = folder / "in"  # DuckDB would take some characters of the directory's name for a pattern

    def run(self, statement: str) -> None:
        """Execute a statement."""
        self._connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, which are few."""
        return self._connection.execute(query).fetchall()

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query in pieces."""
        yield from self._connection.sql(query).to_arrow_reader(BATCH_ROWS) or ()

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query, which fit into memory."""
        return self._connection.sql(query).to_arrow_table()

    def put(self, name: str, rows: pa.Table) -> None:
        """Make a table of rows that the caller has."""
        self._connection.register("given", rows)
        self.run(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
        self._connection.unregister("given")

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows that the caller has to a table, which is made if necessary."""
        self._connection.register("given", rows)
        self.add(table, "SELECT * FROM given")
        self._connection.unregister("given")

    def add(self, table: str, query: str) -> None:
        """Add the rows of a query to a table, which is made if necessary."""
        self.run(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM ({query}) LIMIT 0")
        self.run(f"INSERT INTO {table} {query}")

    def close(self) -> None:
        """Release the memory; nothing can be asked any more."""
        self._connection.close()

    def name_function(self, name: str, function: Any, parameters: Sequence[Any], result: Any) -> None:
        """Make a Python function usable in queries."""
        self._connection.create_function(name, function, list(parameters), result)

    def number_hours(self, hours: Iterable[Hour]) -> None:
        """Make the table `hours`: number, date, hour and first millisecond of each."""
        ordered = sorted(set(hours))
        self._numbers = {hour: number for number, hour in enumerate(ordered)}
        begins = [_begin_ms(date, hour) for date, hour in ordered]
        columns = {"hour_number": range(len(ordered)), "date": [date for date, _ in ordered], "hour": [hour for _, hour in ordered]}
        types = {"hour_number": pa.int64(), "date": pa.string(), "hour": pa.string()}
        made = {name: pa.array(values, types[name]) for name, values in columns.items()}
        self.put("hours", pa.table({**made, "hour_ms": pa.array(begins, pa.int64())}))

    def put_tenants(self, tenants: Iterable[TenantLine]) -> None:
        """Make the table `tenants` of the lines of a tenants file."""
        text = pa.string()
        schema = pa.schema({"position": pa.int32(), "user": text, "client_id": text, "tenant": text})
        lines = [{"position": line.position, "user": line.user, "client_id": line.client_id, "tenant": line.tenant} for line in tenants]
        self.put("tenants", pa.Table.from_pylist(lines, schema=schema))

    def keep_small(self, directory: Path, shown: AnyPath, inputs: Sequence[Input], tables: Collection[str] = RAW) -> None:
        """Check all files of some file sets, and keep the rows of small files of some tables, which `read` then does not open.

        Args:
            directory: the metering directory, or a copy of it.
            shown: the metering directory, which messages name.
            inputs: the file sets.
            tables: the tables whose rows are kept.

        Raises:
            IncompleteError, BadInputError: a file is not the one that its manifest lists.
        """
        text = pa.string()
        for table in tables:
            declared = pa.schema([*TABLES[table], *(pa.field(name, text) for name in ("stem", "date", "hour"))])
            self.put(f"small_{table}", declared.empty_table())
        small = SmallTables(directory, shown, self._insert_small, tables)
        small.read(inputs)
        self._kept, self._small = small.kept, frozenset(tables)

    def read(self, directory: Path, inputs: Sequence[Input], tables: Iterable[str] = RAW) -> None:
        """Make the views `raw_usage`, `raw_samples` and so on of these file sets, whose hours have numbers.

        A row of a view has the number of its hour and its file set.
        """
        self._place.symlink_to(directory.resolve())
        for table in tables:
            self._view(table, inputs)

    def _insert_small(self, table: str, rows: pa.Table) -> None:
        self._connection.register("given", rows)
        self.run(f"INSERT INTO small_{table} BY NAME SELECT * FROM given")
        self._connection.unregister("given")

    def narrow(self, inputs: Sequence[Input]) -> None:
        """Limit the views of facts to some of the file sets: all those of their hours."""
        for table in FACTS:
            self._view(table, inputs)

    def look_at(self, hours: Iterable[Hour]) -> None:
        """Limit the views `usage_here`, `decisions_here` and `waits_here` of the sums by second to some hours."""
        numbers = ", ".join(str(self._numbers[hour]) for hour in hours)
        for view, table in (("usage_here", "usage_seconds"), ("decisions_here", "decision_seconds"), ("waits_here", "waits")):
            self.run(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {table} WHERE hour_number IN ({numbers})")

    def _view(self, table: str, inputs: Sequence[Input]) -> None:
        """Make a view of a table's rows of some file sets, which are all those of their hours."""
        found = [(path, item) for item in inputs for path in self._paths(table, item)]
        rows = []
        if table in self._small:
            numbers = ", ".join(str(self._numbers[hour]) for hour in sorted({item.hour for item in inputs}))
            of_hours = f"JOIN hours USING (date, hour) WHERE hour_number IN ({numbers})"
            rows.append(f"SELECT its.*, hour_number, hour_ms FROM small_{table} AS its {of_hours}")
        if found or not rows:
            rows.append(self._of_files(table, found))
        self.run(f"CREATE OR REPLACE VIEW raw_{table} AS {' UNION ALL BY NAME '.join(rows)}")

    def _paths(self, table: str, item: Input) -> list[str]:
        """Return the paths of the files whose rows are not in the database."""
        entries = (entry.path for entry in item.manifest.files if entry.table == table)
        return [f"{self._place}/{path}" for path in entries if path not in self._kept]

    def _of_files(self, table: str, found: Sequence[tuple[str, Input]]) -> str:
        """Return a query for the rows of files. A file without rows declares all columns, since files of an earlier version lack some."""
        empty = self._folder / f"{table}.parquet"
        pq.write_table(TABLES[table].empty_table(), empty)
        names = [path for path, _ in found]
        columns = {
            "filename": names,
            "hour_number": [self._numbers[item.hour] for _, item in found],
            "stem": [item.manifest.file_set for _, item in found],
        }
        types = {"filename": pa.string(), "hour_number": pa.int32(), "stem": pa.string()}
        self.put(f"files_{table}", pa.table({name: pa.array(values, types[name]) for name, values in columns.items()}))
        paths = ", ".join(quoted(path) for path in (str(empty), *names))
        source = f"read_parquet([{paths}], filename = true, union_by_name = true, hive_partitioning = false)"
        return f"""
            SELECT rows.* EXCLUDE (filename), hour_number, stem, date, hour, hour_ms
            FROM {source} AS rows JOIN files_{table} USING (filename) JOIN hours USING (hour_number)"""


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _begin_ms(date: str, hour: str) -> int:
    """Return the first millisecond of an hour, in UTC."""
    days = (datetime.date.fromisoformat(date) - datetime.date(1970, 1, 1)).days
    return days * DAY_MS + int(hour) * HOUR_MS


@contextlib.contextmanager
def database(tasks: int | None = None) -> Iterator[Database]:
    """Open an empty database for a block.

    Args:
        tasks: number of databases that this machine may have at a time, with one thread each, beside a JVM; None: it is the only one.

    Raises:
        BadInputError: the disk for what does not fit into memory is full.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-rollup-") as folder:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_bytes() // MEMORY_SHARE // (1 if tasks is None else TASKS_SHARE * tasks) // _MIB}MiB",
            "temp_directory": folder,
            "preserve_insertion_order": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        if tasks is not None:
            settings["threads"] = 1
        elif hasattr(os, "sched_getaffinity"):  # Linux; DuckDB itself counts all cores
            settings["threads"] = len(os.sched_getaffinity(0))
        connection = duckdb.connect(":memory:", config=settings)
        try:
            yield Database(connection, Path(folder))
        except duckdb.OutOfMemoryException as error:
            line = str(error).splitlines()[0]
            raise BadInputError(f"the roll-up needs more memory or space in {folder} ({line}); set TMPDIR to a larger disk") from error
        finally:
            connection.close()
