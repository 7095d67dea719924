"""Registers metering files in an Iceberg table, in place: the table refers to the files, and no row is copied.

A metering file never changes under its path: `forget` and `compact` write other names. So a path that the table has needs no comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from metering_format.manifest import FileEntry, Manifest
from metering_format.tables import TABLES
from pipeline.errors import BadInputError
from pipeline.iceberg.catalog import without_retries
from pipeline.iceberg.footers import check_footer
from pipeline.manifest import check_files, find_manifests
from pipeline.storage.paths import AnyPath

THREADS: Final = 8
_PROPERTIES: Final = {"gc.enabled": "false"}
"""The files are the proxy's: no maintenance of the table may delete them."""
_NAMED: Final = ("dim_group", "dim_client", "dim_bound", "states")
"""Tables with names of users. `forget` removes names from their files, so the metadata of a table must not keep any."""
_WITHOUT_BOUNDS: Final = {"write.metadata.metrics.default": "counts"}
"""Otherwise the metadata has the least and the greatest value of each column."""


@dataclass(frozen=True, slots=True)
class RegisteredFile:
    """A file and its number of rows, by the manifest or by the table."""

    location: str
    rows: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The result: files that came into the table, files that left it, and those that it had and keeps, of this directory."""

    added: list[RegisteredFile] = field(default_factory=list)
    removed: list[RegisteredFile] = field(default_factory=list)
    kept: list[RegisteredFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MeteringFiles:
    """The files of one metering table that manifests list.

    Attributes:
        root: URL of the metering directory, as an Iceberg table has it.
        table: name of the metering table.
        files: entry and manifest of each file, by its URL.
    """

    root: str
    table: str
    files: Mapping[str, tuple[FileEntry, Manifest]]


def files_of(directory: AnyPath, table: str) -> MeteringFiles:
    """Return the files of one metering table of a directory. All files of all manifests are there.

    Raises:
        BadInputError: it is no metering directory, or engines cannot read files of its name.
        IncompleteError: a file that a manifest lists is missing, or has another length.
    """
    manifests = find_manifests(directory)
    check_files(directory, manifests, hashes=False)
    root = _root(directory)
    listed = ((entry, manifest) for manifest in manifests for entry in manifest.files if entry.table == table)
    return MeteringFiles(root, table, {f"{root}/{entry.path}": (entry, manifest) for entry, manifest in listed})


def register(wanted: MeteringFiles, catalog: Catalog, identifier: tuple[str, ...]) -> Registered:
    """Make these files those of an Iceberg table, by one commit; none if nothing has changed.

    Files of the directory that no manifest lists any more leave the table. Files of other directories stay in it.

    Args:
        wanted: the files.
        catalog: the catalog of the table.
        identifier: namespaces and name of the table, which is made if necessary.

    Raises:
        BadInputError: a file is not of its table, or the Iceberg table has other columns.
        IncompleteError: a file is missing or differs from its manifest. Nothing is registered.
    """
    table = _table(catalog, identifier, wanted.table)
    present = {task.file.file_path: task.file for task in table.scan().plan_files()}
    place = f"{wanted.root}/{wanted.table}/"
    gone = [file for location, file in present.items() if location.startswith(place) and location not in wanted.files]
    new = {location: its for location, its in wanted.files.items() if location not in present}
    _check(table, new)
    _commit(table, list(new), gone)
    return Registered(
        [RegisteredFile(location, entry.rows) for location, (entry, _) in new.items()],
        [RegisteredFile(file.file_path, file.record_count) for file in gone],
        [RegisteredFile(location, entry.rows) for location, (entry, _) in wanted.files.items() if location in present],
    )


def _root(directory: AnyPath) -> str:
    """Return the URL of the directory, as the table has it.

    Raises:
        BadInputError: engines would take a part of the path for the query of a URL.
    """
    root = f"file://{directory.resolve()}" if isinstance(directory, Path) else str(directory)
    if strange := [letter for letter in "?#%" if letter in root]:
        raise BadInputError(f"{root}: has a {strange[0]}, which URLs in a table cannot have; rename the directory")
    return root


def _table(catalog: Catalog, identifier: tuple[str, ...], table_of_files: str) -> Table:
    """Return the table; it is made if there is none."""
    declared = pa.schema([field.with_nullable(True) for field in TABLES[table_of_files]])
    if not catalog.table_exists(identifier):
        catalog.create_namespace_if_not_exists(identifier[:-1])
        properties = _PROPERTIES | (_WITHOUT_BOUNDS if table_of_files in _NAMED else {})
        return without_retries(catalog.create_table(identifier, declared, properties=properties))
    table = catalog.load_table(identifier)
    columns = {column.name for column in table.schema().fields}
    if columns != set(declared.names):
        differs = sorted(columns.symmetric_difference(declared.names))[0]
        name = ".".join(identifier)
        raise BadInputError(f"--table {name}: has other columns than {table_of_files} (such as {differs}); name another table")
    return without_retries(table)


def _check(table: Table, new: Mapping[str, tuple[FileEntry, Manifest]]) -> None:
    with ThreadPoolExecutor(THREADS) as threads:
        for done in [threads.submit(check_footer, table.io, location, *its) for location, its in new.items()]:
            done.result()


def _commit(table: Table, new: Sequence[str], gone: Sequence[DataFile]) -> None:
    if not (new or gone):
        return
    with table.transaction() as transaction:
        if gone:
            with transaction.update_snapshot().overwrite() as change:
                for file in gone:
                    change.delete_data_file(file)
        if new:
            transaction.add_files(list(new), check_duplicate_files=False)
