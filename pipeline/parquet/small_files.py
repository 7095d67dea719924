"""Small Parquet files are read once, and the files that were used last are kept, up to a number of bytes.

A file set of a proxy with little traffic has files of a few kilobytes. Opening such a file takes longer than its content. The tables that
describe groups are often equal in many file sets, byte for byte; equal files share one entry.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.manifest import FileEntry, Manifest
from pipeline.parquet.checks import check_run, declared, reading
from pipeline.storage.paths import AnyPath, StorePath

SMALL_BYTES_MAX: Final = 2**20
"""Highest number of bytes of a file that is kept."""
KEPT_BYTES_MAX: Final = 8 * 2**20
"""Highest number of bytes of the files that are kept, and of their columns. The file that is read is kept in any case."""
OPEN_FILE_BYTES: Final = 64 * 2**10
"""Approximate memory of a file besides its content: its metadata, and space that allocations leave unused."""

_Content = tuple[str, str, str, bytes]


class SmallFile:
    """The content of a file, which belongs to the run of its manifest. Each column is read at most once.

    The open file is kept until the first columns are read, since its metadata need more memory than its content.

    Attributes:
        made: results that were computed from the table, by the function that computed them.
        places: number of paths that have this content.
        size: approximate bytes of memory, with the columns so far.
    """

    def __init__(self, table: str, content: _Content, file: pq.ParquetFile) -> None:
        self.content = content
        self.made: dict[Any, Any] = {}
        self.places = 0
        self.size = OPEN_FILE_BYTES + len(content[-1])
        self._file: pq.ParquetFile | None = file
        self._table = table
        self._schema = file.schema_arrow
        self._names = tuple(self._schema.names)
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._tables: dict[tuple[str, ...] | None, pa.Table] = {}

    def read(self, path: AnyPath, columns: Sequence[str] | None) -> pa.Table:
        """Return columns in the declared form; `path` is used in messages.

        Raises:
            BadInputError: the file does not have the declared columns.
            pyarrow.ArrowInvalid, OSError: a page is damaged.
        """
        key = None if columns is None else tuple(columns)
        if key not in self._tables:
            self._tables[key] = declared(path, self._table, self._read(key or self._names), columns)
        return self._tables[key]

    def _read(self, columns: Sequence[str]) -> pa.Table:
        there = [name for name in columns if name in self._names]
        missing = [name for name in there if name not in self._columns]
        if missing:
            file = self._file or _opened(self.content)
            read = file.read_row_groups(range(file.num_row_groups), missing, use_threads=False)
            self._file = None
            self.size += read.get_total_buffer_size()
            self._columns.update(zip(read.column_names, read.columns, strict=True))
            if len(missing) == len(there):
                return read
        schema = pa.schema([self._schema.field(name) for name in there])
        return pa.Table.from_arrays([self._columns[name] for name in there], schema=schema)


class SmallFiles:
    """The small files of one directory that were used last.

    Attributes:
        bytes: approximate memory of the files that are kept.
    """

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._by_path: OrderedDict[str, tuple[AnyPath, SmallFile]] = OrderedDict()
        self._by_content: dict[_Content, SmallFile] = {}

    def ask(self, directory: AnyPath, manifest: Manifest, entry: FileEntry, question: Callable[[AnyPath, SmallFile], Any]) -> Any:
        """Return the result of `question`, which gets the path of a file and the file.

        Raises:
            IncompleteError, BadInputError: the file is missing or damaged, is not Parquet, or belongs to another run.
        """
        found = self._by_path.get(entry.path)
        path = directory / entry.path if found is None else found[0]
        with reading(path, manifest):
            file = self._opened(path, manifest, entry) if found is None else found[1]
            before = file.size
            try:
                return question(path, file)
            finally:
                self.bytes += file.size - before
                self._by_path.move_to_end(entry.path)
                self._make_room(entry.path)

    def _opened(self, path: AnyPath, manifest: Manifest, entry: FileEntry) -> SmallFile:
        content = (entry.table, manifest.proxy_id, manifest.run_id, _bytes_of(path))
        found = self._by_content.get(content)
        if found is None:
            file = _opened(content)
            check_run(path, file, manifest)
            found = self._by_content[content] = SmallFile(entry.table, content, file)
            self.bytes += found.size
        found.places += 1
        self._by_path[entry.path] = (path, found)
        return found

    def _make_room(self, wanted: str) -> None:
        """Forget the files that were used longest ago."""
        while self.bytes > self._bytes_max and (path := next(iter(self._by_path))) != wanted:
            _, file = self._by_path.pop(path)
            file.places -= 1
            if not file.places:
                del self._by_content[file.content]
                self.bytes -= file.size


def _opened(content: _Content) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(content[-1]), pre_buffer=False, page_checksum_verification=True)


def _bytes_of(path: AnyPath) -> bytes:
    if isinstance(path, StorePath):
        return path.read_bytes()
    with path.open("rb", buffering=0) as file:
        return file.read()
