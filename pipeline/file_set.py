"""Reads one set of metering files on a local disk, table by table."""

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

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one manifest below a metering directory.

    Attributes:
        directory: the root of the manifest's paths; on another file system it only appears in messages.
        held: the content of the files by path, where Spark read them from another file system; None: they are on a local disk.
    """

    directory: Path
    manifest: Manifest
    held: Mapping[str, bytes] | None = None

    def read(self, table: str, *, columns: list[str] | None = None, after_ms: int | None = None) -> pa.Table:
        """Return the rows of a table, none where the file set has no such file.

        Args:
            after_ms: only rows of `samples` whose last event came later.

        Raises:
            IncompleteError: a file that the manifest promises is not there.
            BadInputError: a file is not Parquet, or not of the declared schema.
        """
        parts = [self._read_file(entry.path, table, columns, after_ms) for entry in self.manifest.files if entry.table == table]
        schema = TABLES[table] if columns is None else pa.schema([TABLES[table].field(name) for name in columns])
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def read_alike(self, table: str, columns: list[str]) -> dict[str, Any] | None:
        """Return the values of columns that are alike in all rows, by the footers; None where one is not, or the footers do not say.

        Raises:
            IncompleteError, BadInputError: as `read`.
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
        """Open a file of this file set, look whose it is, and ask it something."""
        path = self.directory / relative
        try:
            with (
                pa.memory_map(str(path)) if self.held is None else pa.BufferReader(self.held[relative]) as source,
                pq.ParquetFile(source, pre_buffer=False) as file,
            ):
                _check_run(path, file, self.manifest)
                return ask(file, source)
        except (FileNotFoundError, KeyError) as error:
            raise IncompleteError(f"{path}: is missing, and manifest {self.manifest.file_set} promises it; restore it") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise BadInputError(f"{path}: not a readable Parquet file ({_first_line(error)}); restore it") from error


def _rows_of(file: pq.ParquetFile, source: pa.NativeFile, *, columns: list[str] | None, after_ms: int | None) -> pa.Table:
    """Read with one thread: the others have file sets of their own to read."""
    if columns is not None:
        columns = [name for name in columns if name in file.schema_arrow.names]
    if after_ms is None:
        return read_groups(file, source, range(file.num_row_groups), columns)
    groups = [number for number in range(file.num_row_groups) if _last_ms(file.metadata.row_group(number)) > after_ms]
    read = read_groups(file, source, groups, columns)
    return read.filter(pc.greater(read.column("last_event_ms"), after_ms))


def _alike(file: pq.ParquetFile, _: pa.NativeFile, *, columns: list[str]) -> dict[str, Any] | None:
    """The values of columns that are alike in all rows of a file, None where there is no row."""
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
    """The one value of a column in a row group, None where there are more, or where the footer does not tell."""
    if statistics is None or not statistics.has_null_count:
        return None
    if statistics.null_count == rows:
        return (None,)
    return (statistics.min,) if not statistics.null_count and statistics.has_min_max and statistics.min == statistics.max else None


def check_columns(directory: Path, manifests: Iterable[Manifest]) -> None:
    """Compare the columns of every file of these manifests with the declared ones, and whose rows they are; only footers are read.

    Raises:
        IncompleteError: a file that a manifest promises is not there, or is of another run.
        BadInputError: a file is not Parquet, or of another program.
    """
    for manifest in manifests:
        for entry in manifest.files:
            path = directory / entry.path
            try:
                with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
                    schema = file.schema_arrow
                    _check_run(path, file, manifest)
            except FileNotFoundError as error:
                raise IncompleteError(f"{path}: is missing, and manifest {manifest.file_set} promises it; restore it") from error
            except PermissionError:
                raise
            except (pa.ArrowInvalid, OSError) as error:
                remedy = f"restore it (`sluice meter verify-manifests {directory}` names all)"
                raise BadInputError(f"{path}: not a readable Parquet file; {remedy}") from error
            _declared(path, entry.table, schema.empty_table(), None)


def _check_run(path: Path, file: pq.ParquetFile, manifest: Manifest) -> None:
    """Numbers of groups, clients and decisions hold within a run: rows of another one say something else. The footer knows whose they are.

    Raises:
        IncompleteError: they are not of the run, or not of the proxy, that the manifest tells of.
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


def _declared(path: Path, table: str, read: pa.Table, columns: list[str] | None) -> pa.Table:
    """Order and cast to the declared schema; columns that a newer minor version added are left out, or null in what an older one wrote."""
    declared = TABLES[table]
    wanted = [declared.field(name) for name in (columns or declared.names)]
    for name in ADDED.get(table, ()):
        if name not in read.column_names and (columns is None or name in columns):
            read = read.append_column(name, pa.nulls(len(read), declared.field(name).type))
    missing = [field.name for field in wanted if field.name not in read.column_names]
    if missing:
        raise BadInputError(f"{path}: lacks column {missing[0]} of table {table}; it is a file of another program or version; restore it")
    chosen, schema = read.select([field.name for field in wanted]), pa.schema(wanted)
    if chosen.schema.equals(schema):
        return chosen
    try:
        return chosen.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise BadInputError(f"{path}: is not of table {table} ({_first_line(error)}); restore it") from error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def runs_of(directory: Path, manifests: list[Manifest]) -> dict[RunKey, list[FileSet]]:
    """Group file sets by (proxy_id, run_id), each run in decision order."""
    return {key: [FileSet(directory, manifest) for manifest in its] for key, its in by_run(manifests).items()}


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return a small table as dictionaries."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
