"""Compares the footer of a metering file with the schema of its table, and with its manifest. A table reads the file as it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from metering_format.manifest import FileEntry, Manifest
from metering_format.tables import ADDED, TABLES
from pipeline.errors import BadInputError, IncompleteError, missing_file
from pipeline.text import counted
from sluice.object_store import first_line


def check_footer(files: FileIO, location: str, entry: FileEntry, manifest: Manifest) -> None:
    """Read a footer by the file system of the catalog, so that a file that the catalog cannot reach is an error here.

    Raises:
        IncompleteError: the file is missing, or its rows or its run are not those of the manifest.
        BadInputError: it is not Parquet, or has other columns than its table.
    """
    try:
        with files.new_input(location).open() as source, pq.ParquetFile(source) as file:
            _check_columns(location, entry.table, file.schema_arrow)
            if file.metadata.num_rows != entry.rows:
                there = counted(file.metadata.num_rows, "row")
                raise IncompleteError(f"{location}: {there}, manifest {manifest.file_set} has {entry.rows:,}; restore it")
            _check_run(location, file.metadata, manifest)
    except FileNotFoundError as error:
        raise missing_file(location, manifest.file_set) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInputError(f"{location}: not a readable Parquet file ({first_line(error)}); restore it") from error


def _check_columns(location: str, table: str, found: pa.Schema) -> None:
    """Compare names and types. Columns that an earlier version lacks are null in the table."""
    declared = TABLES[table]
    for field in declared:
        if field.name not in found.names and field.name not in ADDED.get(table, ()):
            raise BadInputError(f"{location}: has no column {field.name} of table {table}; another program or version wrote it; restore it")
        if field.name in found.names and found.field(field.name).type != field.type:
            kinds = f"{found.field(field.name).type}, and table {table} has {field.type}"
            raise BadInputError(f"{location}: column {field.name} is {kinds}; another program or version wrote it; restore it")
    if more := [name for name in found.names if name not in declared.names]:
        raise BadInputError(f"{location}: column {more[0]} is not one of table {table}; use the Sluice that wrote it, or a newer one")


def _check_run(location: str, footer: Any, manifest: Manifest) -> None:
    """Compare run and proxy by the statistics of the row groups."""
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    for name, expected in (("run_id", manifest.run_id), ("proxy_id", manifest.proxy_id)):
        if name not in names:
            continue
        for number in range(footer.num_row_groups):
            statistics = footer.row_group(number).column(names.index(name)).statistics
            if statistics is None or not statistics.has_min_max or {statistics.min, statistics.max} != {expected}:
                raise IncompleteError(f"{location}: has rows of another {name} than manifest {manifest.file_set}, {expected}; restore it")
