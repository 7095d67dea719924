"""Reads the tables of one metering file set, from a local disk or from content in memory."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metering_format.manifest import FileEntry, Manifest
from pipeline.duplicate_columns import read_groups
from pipeline.manifest import RunKey, by_run
from pipeline.parquet.checks import check_run, declared, no_rows, reading
from pipeline.parquet.small_files import SMALL_BYTES_MAX, SmallFiles
from pipeline.storage.paths import AnyPath, StorePath

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one manifest below a metering directory.

    Attributes:
        directory: the root of the manifest's paths. When Spark read the files, it only appears in messages.
        held: content of the files by path, when Spark read them from another file system; None: they are in `directory`.
        small_files: the small files that were used last, of all file sets of the directory; None: each question opens its file.
    """

    directory: AnyPath
    manifest: Manifest
    held: Mapping[str, bytes] | None = None
    small_files: SmallFiles | None = field(default=None, compare=False, repr=False)

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
        parts = [self._read_file(entry, columns, after_ms) for entry in self.manifest.files if entry.table == table]
        if len(parts) == 1:
            return parts[0]
        return pa.concat_tables(parts) if parts else no_rows(table, None if columns is None else tuple(columns))

    def made_of(self, table: str, make: Callable[["FileSet"], R]) -> R:
        """Return `make(self)`, a result that follows from a table alone. File sets with an equal small file of it share the result.

        Raises:
            IncompleteError, BadInputError: as for `read`, and what `make` raises.
        """
        entries = [entry for entry in self.manifest.files if entry.table == table]
        if len(entries) != 1 or not self.is_small(entries[0]):
            return make(self)
        assert self.small_files is not None
        made = self.small_files.ask(self.directory, self.manifest, entries[0], lambda _path, file: file.made)
        if make not in made:
            made[make] = make(self)
        result: R = made[make]
        return result

    def read_alike(self, table: str, columns: list[str]) -> dict[str, Any] | None:
        """Return the value of each column, by name, when every column is constant by the footers' statistics.

        None when a column has several values, or when the footers have no statistics.

        Raises:
            IncompleteError, BadInputError: as for `read`.
        """
        alike: dict[str, Any] | None = None
        for entry in (entry for entry in self.manifest.files if entry.table == table):
            its = self._of_file(entry, functools.partial(_alike, columns=columns))
            if its is None or alike not in (None, its):
                return None
            alike = its
        return alike

    def _read_file(self, entry: FileEntry, columns: list[str] | None, after_ms: int | None) -> pa.Table:
        if self.is_small(entry):
            assert self.small_files is not None
            read = self.small_files.ask(self.directory, self.manifest, entry, lambda path, file: file.read(path, columns))
            return read if after_ms is None else read.filter(pc.greater(read.column("last_event_ms"), after_ms))
        read = self._of_file(entry, functools.partial(_rows_of, columns=columns, after_ms=after_ms))
        return declared(self.directory / entry.path, entry.table, read, columns)

    def is_small(self, entry: FileEntry) -> bool:
        """Whether a file is read once and kept."""
        return self.small_files is not None and entry.bytes <= SMALL_BYTES_MAX and self.held is None

    def _of_file(self, entry: FileEntry, ask: Callable[[pq.ParquetFile, pa.NativeFile], R]) -> R:
        """Open a file of this file set, check that it belongs to the run, and return the result of `ask`."""
        path = self.directory / entry.path
        with (
            reading(path, self.manifest),
            self._source(path, entry.path) as source,
            pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as file,
        ):
            check_run(path, file, self.manifest)
            return ask(file, source)

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


def _last_ms(row_group: Any) -> int:
    columns = (row_group.column(number) for number in range(row_group.num_columns))
    statistics = next((column.statistics for column in columns if column.path_in_schema == "last_event_ms"), None)
    return int(statistics.max) if statistics is not None and statistics.has_min_max else 2**63 - 1


def runs_of(directory: AnyPath, manifests: list[Manifest]) -> dict[RunKey, list[FileSet]]:
    """Return file sets by (proxy_id, run_id), each run in decision order."""
    small_files = SmallFiles()
    return {key: [FileSet(directory, manifest, None, small_files) for manifest in its] for key, its in by_run(manifests).items()}


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a small table as dictionaries."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
