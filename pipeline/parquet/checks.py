"""What is checked when a Parquet file is opened: that it belongs to the run of its manifest, and that it has the declared columns."""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.manifest import FileEntry, Manifest
from metering_format.tables import ADDED, TABLES
from pipeline.errors import BadInputError, IncompleteError, missing_file
from pipeline.storage.paths import AnyPath
from sluice.object_store import first_line

_CHECKSUM: Final = "CRC checksum verification failed"
"""Part of Arrow's message."""


@contextlib.contextmanager
def reading(path: AnyPath, manifest: Manifest) -> Iterator[None]:
    """Name the file, and the remedy, in errors of the block, which reads one file.

    Raises:
        IncompleteError: the file is missing, or a page is damaged.
        BadInputError: the file is not Parquet.
    """
    try:
        yield
    except (FileNotFoundError, KeyError) as error:
        raise missing_file(path, manifest.file_set) from error
    except (pa.ArrowInvalid, OSError) as error:
        if _CHECKSUM in str(error):
            raise IncompleteError(f"{path}: the checksum of a page differs, so the file is damaged; restore it") from error
        raise BadInputError(f"{path}: not a readable Parquet file ({first_line(error)}); restore it") from error


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
            with opened(directory / entry.path, manifest, entry, shown or directory):
                pass


@contextlib.contextmanager
def opened(source: Any, manifest: Manifest, entry: FileEntry, shown: AnyPath) -> Iterator[pq.ParquetFile]:
    """Open a file for a block, when its columns and its run are as they should be.

    Args:
        source: the path of the file on this machine, or its content as a `pyarrow.Buffer`.
        manifest, entry: the manifest, and its entry for the file.
        shown: the directory that messages name.

    Raises:
        IncompleteError, BadInputError: as for `check_columns`.
    """
    path = shown / entry.path
    try:
        with pq.ParquetFile(source, memory_map=isinstance(source, Path), pre_buffer=False, page_checksum_verification=True) as file:
            schema = file.schema_arrow
            check_run(path, file, manifest)
            if not _has_columns(entry.table, schema):
                declared(path, entry.table, schema.empty_table(), None)
            yield file
    except FileNotFoundError as error:
        raise missing_file(path, manifest.file_set) from error
    except PermissionError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        remedy = f"restore it (`sluice meter verify-manifests {shown}` names all)"
        raise BadInputError(f"{path}: not a readable Parquet file; {remedy}") from error


@functools.lru_cache(maxsize=64)
def _has_columns(table: str, schema: pa.Schema) -> bool:
    """Whether a file with this schema has the declared columns. Most files of a directory have the same schema."""
    try:
        declared(Path(), table, schema.empty_table(), None)
    except BadInputError:
        return False
    return True


def check_run(path: AnyPath, file: pq.ParquetFile, manifest: Manifest) -> None:
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


def declared(path: AnyPath, table: str, read: pa.Table, columns: Iterable[str] | None) -> pa.Table:
    """Order and cast columns to the declared schema.

    Columns that a newer minor version added are dropped. Columns that an older version lacks are null.

    Raises:
        BadInputError: a column is missing, or has another type.
    """
    schema = schema_of(table, None if columns is None else tuple(columns))
    if read.schema.equals(schema):
        return read
    own, names = set(read.column_names), schema.names
    for name in ADDED.get(table, ()):
        if name not in own and name in names:
            read = read.append_column(name, pa.nulls(len(read), TABLES[table].field(name).type))
            own.add(name)
    missing = next((name for name in names if name not in own), None)
    if missing is not None:
        raise BadInputError(f"{path}: has no column {missing} of table {table}; it was written by another program or version; restore it")
    chosen = read.select(names)
    if chosen.schema.equals(schema):
        return chosen
    try:
        return chosen.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise BadInputError(f"{path}: is not of table {table} ({first_line(error)}); restore it") from error


@functools.cache
def no_rows(table: str, columns: tuple[str, ...] | None) -> pa.Table:
    """Return some columns of a table without rows; None: all columns. Arrow takes long to make such a table."""
    return schema_of(table, columns).empty_table()


@functools.cache
def schema_of(table: str, columns: tuple[str, ...] | None) -> pa.Schema:
    """Return the declared schema of some columns of a table; None: of all."""
    return TABLES[table] if columns is None else pa.schema([TABLES[table].field(name) for name in columns])
