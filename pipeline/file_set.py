"""Reads the tables of one metering file set, from a local disk or from content in memory."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metering_format.manifest import Manifest
from metering_format.tables import ADDED, TABLES
from pipeline.duplicate_columns import read_groups
from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import RunKey, by_run
from pipeline.storage.paths import AnyPath, StorePath
from sluice.object_store import first_line

R = TypeVar("R")
_CHECKSUM = "CRC checksum verification failed"
"""Part of Arrow's message."""


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one manifest below a metering directory.

    Attributes:
        directory: the root of the manifest's paths. When Spark read the files, it only appears in messages.
        held: content of the files by path, when Spark read them from another file system; None: they are in `directory`.
    """

    directory: AnyPath
    manifest: Manifest
    held: Mapping[str, bytes] | None = None

    def read(self, table: str, *, columns: list[str] | None = None, after_ms: int | None = None) -> pa.Table:
        """Return the rows of a table; no rows when the file set has no file of that table.

        Args:
            table: name of the table.
            columns: names of the columns to read; None reads all of them.
            after_ms: return only rows of `samples` whose last event is later (wall milliseconds); None returns all rows.

        Raises:
            IncompleteError: a file that the manifest lists is missing.
            BadInputError: a file is not Parquet, or does not have the declared schema.
        """
        parts = [self._read_file(entry.path, table, columns, after_ms) for entry in self.manifest.files if entry.table == table]
        schema = TABLES[table] if columns is None else pa.schema([TABLES[table].field(name) for name in columns])
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def read_alike(self, table: str, columns: list[str]) -> dict[str, Any] | None:
        """Return the value of each column, by name, when every column is constant by the footers' statistics.

        None when a column has several values, or when the footers have no statistics.

        Raises:
            IncompleteError, BadInputError: as for `read`.
        """
        alike: dict[str, Any] | None = None
        for entry in (entry for entry in self.manifest.files if entry.table == table):
            its = self._of_file(entry.path, functools.partial(_alike, columns=columns))
            if its is None or alike not in (None, its):
                return None
            alike = its
        return alike

    def _read_file(self, relative: str, table: str, columns: list[str] | None, after_ms: int | None) -> pa.Table:
        path = self.directory / relative
        read = self._of_file(relative, functools.partial(_rows_of, columns=columns, after_ms=after_ms))
        return _declared(path, table, read, columns)

    def _of_file(self, relative: str, ask: Callable[[pq.ParquetFile, pa.NativeFile], R]) -> R:
        """Open a file of this file set, check that it belongs to the run, and return the result of `ask`."""
        path = self.directory / relative
        try:
            with (
                self._source(path, relative) as source,
                pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as file,
            ):
                _check_run(path, file, self.manifest)
                return ask(file, source)
        except (FileNotFoundError, KeyError) as error:
            raise IncompleteError(f"{path}: is missing, and manifest {self.manifest.file_set} lists it; restore it") from error
        except (pa.ArrowInvalid, OSError) as error:
            if _CHECKSUM in str(error):
                raise IncompleteError(f"{path}: the checksum of a page differs, so the file is damaged; restore it") from error
            raise BadInputError(f"{path}: not a readable Parquet file ({first_line(error)}); restore it") from error

    def _source(self, path: AnyPath, relative: str) -> pa.NativeFile:
        if self.held is not None:
            return pa.BufferReader(self.held[relative])
        return pa.BufferReader(path.read_buffer()) if isinstance(path, StorePath) else pa.memory_map(str(path))


def _rows_of(file: pq.ParquetFile, source: pa.NativeFile, *, columns: list[str] | None, after_ms: int | None) -> pa.Table:
    """Read with one thread, since other threads read other file sets."""
    if columns is not None:
        own = set(file.schema_arrow.names)  # each access converts the schema
        columns = [name for name in columns if name in own]
    if after_ms is None:
        return read_groups(file, source, range(file.num_row_groups), columns)
    groups = [number for number in range(file.num_row_groups) if _last_ms(file.metadata.row_group(number)) > after_ms]
    read = read_groups(file, source, groups, columns)
    return read.filter(pc.greater(read.column("last_event_ms"), after_ms))


def _alike(file: pq.ParquetFile, _: pa.NativeFile, *, columns: list[str]) -> dict[str, Any] | None:
    """Return the values of columns that are constant in a file; None when a column is not, or when the file has no rows."""
    names = file.schema.names
    alike: dict[str, Any] = {}
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        for name in columns:
            values = _values(group.column(names.index(name)).statistics, group.num_rows) if name in names else None
            if values is None or alike.setdefault(name, values[0]) != values[0]:
                return None
    return alike or None


def _values(statistics: Any, rows: int) -> tuple[Any] | None:
    """Return the single value of a column in a row group; None when there are several, or when the footer has no statistics."""
    if statistics is None or not statistics.has_null_count:
        return None
    if statistics.null_count == rows:
        return (None,)
    return (statistics.min,) if not statistics.null_count and statistics.has_min_max and statistics.min == statistics.max else None


def check_columns(directory: Path, manifests: Iterable[Manifest], shown: AnyPath | None = None) -> None:
    """Compare the columns of every file with the declared schema, and its run with the manifest's. Only footers are read.

    Args:
        directory: the metering directory, or a copy of it.
        manifests: the file sets.
        shown: the directory that messages name; None: `directory`.

    Raises:
        IncompleteError: a file that a manifest lists is missing, or belongs to another run.
        BadInputError: a file is not Parquet, or was written by another program.
    """
    for manifest in manifests:
        for entry in manifest.files:
            path = (shown or directory) / entry.path
            try:
                with pq.ParquetFile(directory / entry.path, memory_map=True, pre_buffer=False) as file:
                    schema = file.schema_arrow
                    _check_run(path, file, manifest)
            except FileNotFoundError as error:
                raise IncompleteError(f"{path}: is missing, and manifest {manifest.file_set} lists it; restore it") from error
            except PermissionError:
                raise
            except (pa.ArrowInvalid, OSError) as error:
                remedy = f"restore it (`sluice meter verify-manifests {shown or directory}` names all)"
                raise BadInputError(f"{path}: not a readable Parquet file; {remedy}") from error
            _declared(path, entry.table, schema.empty_table(), None)


def _check_run(path: AnyPath, file: pq.ParquetFile, manifest: Manifest) -> None:
    """Check that a file belongs to the run of its manifest. Group, client and sequence numbers have a meaning only within a run.

    Raises:
        IncompleteError: the footer names another proxy or another run than the manifest.
    """
    for name, expected in (("run_id", manifest.run_id), ("proxy_id", manifest.proxy_id)):
        if name not in file.schema.names:
            continue
        at = file.schema.names.index(name)
        for number in range(file.num_row_groups):
            statistics = file.metadata.row_group(number).column(at).statistics
            if statistics is not None and statistics.has_min_max:
                there = {statistics.min, statistics.max}
            else:
                there = set(file.read_row_group(number, [name]).column(name).unique().to_pylist())
            if strange := there - {expected}:
                raise IncompleteError(
                    f"{path}: has rows of {name} {min(map(str, strange))}, and manifest {manifest.file_set} is of {expected}; restore it"
                )


def _last_ms(row_group: Any) -> int:
    columns = (row_group.column(number) for number in range(row_group.num_columns))
    statistics = next((column.statistics for column in columns if column.path_in_schema == "last_event_ms"), None)
    return int(statistics.max) if statistics is not None and statistics.has_min_max else 2**63 - 1


def _declared(path: AnyPath, table: str, read: pa.Table, columns: list[str] | None) -> pa.Table:
    """Order and cast columns to the declared schema.

    Columns that a newer minor version added are dropped. Columns that an older version lacks are null.
    """
    declared = TABLES[table]
    wanted = [declared.field(name) for name in (columns or declared.names)]
    for name in ADDED.get(table, ()):
        if name not in read.column_names and (columns is None or name in columns):
            read = read.append_column(name, pa.nulls(len(read), declared.field(name).type))
    missing = [field.name for field in wanted if field.name not in read.column_names]
    if missing:
        raise BadInputError(
            f"{path}: has no column {missing[0]} of table {table}; it was written by another program or version; restore it"
        )
    chosen, schema = read.select([field.name for field in wanted]), pa.schema(wanted)
    if chosen.schema.equals(schema):
        return chosen
    try:
        return chosen.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise BadInputError(f"{path}: is not of table {table} ({first_line(error)}); restore it") from error


def runs_of(directory: AnyPath, manifests: list[Manifest]) -> dict[RunKey, list[FileSet]]:
    """Return file sets by (proxy_id, run_id), each run in decision order."""
    return {key: [FileSet(directory, manifest) for manifest in its] for key, its in by_run(manifests).items()}


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a small table as dictionaries."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
