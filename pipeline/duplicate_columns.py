"""Parquet columns that equal another column byte for byte. A duplicate is not decoded a second time."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

DUPLICATE_COLUMNS: Final = {"applied_ms": "thr_ms", "applied_ms_sum": "throttle_ms_sum", "violated_n": "throttled_n"}
"""The applied throttle equals the decided throttle when every decision is enforced and no other quota throttles a client longer. Every
violation is a throttle unless its throttle time rounds to 0 ms, which those of schedules never do."""


def read_groups(file: pq.ParquetFile, source: pa.NativeFile, groups: Sequence[int], columns: list[str] | None) -> pa.Table:
    """Read some row groups with one thread.

    Args:
        source: the open file that `file` reads from.
        groups: indices of the row groups.
        columns: names of the columns to read; None reads all of them. The result has the order of the file, with duplicates last.

    Raises:
        pyarrow.ArrowInvalid, OSError: the file cannot be read.
    """
    wanted = set(columns or ())
    duplicates = {
        name: duplicate
        for name, duplicate in DUPLICATE_COLUMNS.items()
        if {name, duplicate} <= wanted and _are_duplicates(file, source, groups, name, duplicate)
    }
    read = file.read_row_groups(groups, columns and [name for name in columns if name not in duplicates], use_threads=False)
    for name, duplicate in duplicates.items():
        read = read.append_column(file.schema_arrow.field(name), read.column(duplicate))
    return read


def _are_duplicates(file: pq.ParquetFile, source: pa.NativeFile, groups: Sequence[int], name: str, duplicate: str) -> bool:
    schema = file.schema_arrow
    if schema.field(name).with_name(duplicate) != schema.field(duplicate):
        return False
    row_groups = (file.metadata.row_group(number) for number in groups)
    return all(_are_alike(source, _chunk(row_group, name), _chunk(row_group, duplicate)) for row_group in row_groups)


def _chunk(row_group: Any, name: str) -> Any:
    """Return the footer's metadata of a column, or of the elements of a list column."""
    columns = (row_group.column(number) for number in range(row_group.num_columns))
    return next(column for column in columns if column.path_in_schema.split(".")[0] == name)


def _are_alike(source: pa.NativeFile, one: Any, other: Any) -> bool:
    """Compare the pages of two column chunks. The footer has only the compression; the page headers have the encoding."""
    if (one.compression, one.total_compressed_size) != (other.compression, other.total_compressed_size):
        return False
    return bool(_pages(source, one).equals(_pages(source, other)))


def _pages(source: pa.NativeFile, chunk: Any) -> pa.Buffer:
    source.seek(chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset)
    return source.read_buffer(chunk.total_compressed_size)
