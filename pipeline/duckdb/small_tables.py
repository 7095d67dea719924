"""Rows of small files, which are read once and kept in the database, since DuckDB takes long to open a file for each query."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.manifest import FileEntry, Manifest
from metering_format.tables import TABLES
from pipeline.errors import IncompleteError, missing_file
from pipeline.manifest import problems_in, with_files
from pipeline.parquet.checks import declared, opened
from pipeline.rollup.inputs import Input
from pipeline.storage.paths import AnyPath

SMALL_BYTES_MAX: Final = 2**18
"""Highest number of bytes of a file whose rows are kept in the database."""
KEPT_BYTES_MAX: Final = 2**25
"""Highest number of bytes of all small files whose rows are kept. DuckDB reads further files when it needs them."""
ROWS_AT_ONCE: Final = 2**14
FACTS: Final = ("usage", "samples", "events")
NAMES: Final = ("dim_group", "dim_client")
RAW: Final = (*FACTS, *NAMES)
"""The tables that the roll-up reads."""
_NOT_ASKED: Final = {
    "samples": frozenset(
        {
            *("sample_index", "prior_sum", "window_ms", "oldest_start_ms", "last_seq"),
            *("val", "unchecked_pos", "remote_pos", "remote_source", "remote_total"),
        }
    )
}
"""Columns that no query of the roll-up needs. They take most of the time and the memory."""

Put = Callable[[str, pa.Table], None]
"""Adds rows to a table of the database: the raw table's name, and rows that also have `stem` and `date` and `hour` as text."""


class SmallTables:
    """Reads the small files of some file sets, and checks all files.

    Args:
        directory: the metering directory, or a copy of it whose files were compared with their digests.
        shown: the metering directory, which messages name.
        put: receives the rows.
        tables: the tables whose rows are kept.

    Attributes:
        kept: paths of the files whose rows are in the database, or are equal to rows that are.
    """

    def __init__(self, directory: Path, shown: AnyPath, put: Put, tables: Collection[str]) -> None:
        self.kept: set[str] = set()
        self._directory, self._shown, self._put = directory, shown, put
        self._tables = tables
        self._seen: set[tuple[str, ...]] = set()
        self._parts: dict[str, list[tuple[Input, pa.Table]]] = {table: [] for table in tables}
        self._rows = dict.fromkeys(tables, 0)
        self._bytes = 0
        self._differs = False

    def read(self, inputs: Sequence[Input]) -> None:
        """Read small files, and check that all files belong to their runs, and have the declared columns and the manifests' digests.

        Raises:
            IncompleteError: a file is missing, belongs to another run, or differs from its manifest.
            BadInputError: a file is not Parquet, or was written by another program.
        """
        for item in inputs:
            for entry in item.manifest.files:
                if entry.bytes <= SMALL_BYTES_MAX:
                    self._read_small(item, entry)
                else:
                    with opened(self._directory / entry.path, item.manifest, entry, self._shown):
                        pass
        for table in self._tables:
            self._flush(table)
        self._check_digests([item.manifest for item in inputs])

    def _read_small(self, item: Input, entry: FileEntry) -> None:
        path = self._directory / entry.path
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise missing_file(self._shown / entry.path, item.manifest.file_set) from error
        digest = hashlib.sha256(data).hexdigest()
        self._differs |= digest != entry.sha256
        is_fact = entry.table in FACTS
        content = (entry.table, item.manifest.proxy_id, item.manifest.run_id, digest)
        if not is_fact and content in self._seen:  # the same groups or clients as in an earlier file set
            self.kept.add(entry.path)
            return
        with opened(pa.py_buffer(data), item.manifest, entry, self._shown) as file:
            is_kept = digest == entry.sha256 and entry.table in self._tables and self._bytes <= KEPT_BYTES_MAX
            read = _rows_of(file, self._shown / entry.path, entry.table) if is_kept else None
        if read is not None:
            self.kept.add(entry.path)
            self._bytes += entry.bytes
            self._add(item, entry.table, read)
        if is_kept or entry.table not in self._tables:
            self._seen.add(content)

    def _add(self, item: Input, table: str, read: pa.Table) -> None:
        self._parts[table].append((item, read))
        self._rows[table] += len(read)
        if self._rows[table] >= ROWS_AT_ONCE:
            self._flush(table)

    def _flush(self, table: str) -> None:
        parts = self._parts[table]
        if parts:
            lengths = [len(read) for _, read in parts]
            rows = pa.concat_tables([read for _, read in parts])
            places = (("stem", [item.manifest.file_set for item, _ in parts]), ("date", [item.hour[0] for item, _ in parts]))
            for name, values in (*places, ("hour", [item.hour[1] for item, _ in parts])):
                rows = rows.append_column(name, pa.array(np.repeat(values, lengths), pa.string()))
            self._put(table, rows)
        self._parts[table], self._rows[table] = [], 0

    def _check_digests(self, manifests: Sequence[Manifest]) -> None:
        """Compare the digests of the other files as well. Files of a copy were compared when they were copied."""
        if not isinstance(self._shown, Path):
            return
        if not self._differs:
            large = ([entry for entry in manifest.files if entry.bytes > SMALL_BYTES_MAX] for manifest in manifests)
            wanted = [(manifest, tuple(entries)) for manifest, entries in zip(manifests, large, strict=True) if entries]
            manifests = [with_files(manifest, entries) for manifest, entries in wanted]
        if manifests and (problems := problems_in(self._directory, manifests)):
            raise IncompleteError(f"{problems[0]}; restore it (`sluice meter verify-manifests {self._directory}` names all)")


def _rows_of(file: pq.ParquetFile, path: AnyPath, table: str) -> pa.Table:
    columns = [name for name in TABLES[table].names if name not in _NOT_ASKED.get(table, ())]
    own = set(file.schema_arrow.names)
    read = file.read_row_groups(range(file.num_row_groups), [name for name in columns if name in own], use_threads=False)
    return declared(path, table, read, columns)
