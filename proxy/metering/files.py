"""Writes one Parquet file: encodes its columns, and checks the written file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COMPRESSION_LEVEL: Final = 1
LEVELS: Final = {"dt_ms.list.element": 4}
"""Compression levels of columns for which a higher level saves bytes at little cost."""
DELTA: Final = (
    "group_ref",
    "sample_index",
    "n",
    "throttled_n",
    "violated_n",
    "throttle_ms_sum",
    "throttle_ms_max",
    "applied_ms_sum",
    "dt_ms.list.element",
    "thr_pos.list.element",
    "thr_ms.list.element",
    "applied_ms.list.element",
    "remote_pos.list.element",
    "remote_total.list.element",
    "first_seq",
    "last_seq",
    "sample_start_ms",
    "last_event_ms",
    "oldest_start_ms",
    "prior_sum",
    "sum",
    "lead_ns",
    "seq",
    "ts_ms",
    "value",
    "window_sum",
)
"""Columns with similar consecutive values: deltas need half the bytes of a dictionary. Sums of waits need the same bytes, and are read
twice as fast."""


PLAIN: Final = ("max_observed",)
"""Columns with few duplicates: a dictionary makes them larger. Not every reader supports BYTE_STREAM_SPLIT."""

UNCOMPRESSED: Final = frozenset(
    {
        *("group_ref", "n", "prior_sum", "window_ms", "bound", "max_observed"),
        *("sample_start_ms", "last_event_ms", "oldest_start_ms", "thr_ms", "applied_ms"),
    }
)
"""Columns of samples that compression hardly reduces (0.15 bytes per decision for all of them). Uncompressed they are read in less time:
numbers of a row in half of it, `max_observed` in a quarter."""

SNAPPY: Final = frozenset({"lead_ns"})
"""Columns that are read in three quarters of the time with Snappy instead of Zstandard. They need a sixth more bytes, which is 0.04 bytes
for each decision."""

ROW_GROUP_ROWS: Final = 250_000
ROWS_WITH_AN_END: Final = 50_000


def write_parquet(table: pa.Table, path: Path, *, live_ms: int = 0) -> None:
    """Write a table, and check the file's footer.

    Args:
        live_ms: for a large table of samples, above 0: the samples with a last event in the newest `live_ms` get a separate, last row
            group. The validation of the next file reads only this row group.

    Raises:
        OSError: the disk is full or unavailable; no file is left.
    """
    try:
        _write(_with_an_end(table, live_ms), path)
        if pq.read_metadata(path).num_rows != len(table):
            raise OSError(f"{path}: the file that was read back differs from what was written")
    except (OSError, pa.ArrowInvalid) as error:
        path.unlink(missing_ok=True)
        raise error if isinstance(error, OSError) else OSError(f"{path}: the written file cannot be read") from error


def _with_an_end(table: pa.Table, live_ms: int) -> list[pa.Table]:
    if not live_ms or len(table) < ROWS_WITH_AN_END:
        return [table]
    last_ms = table.column("last_event_ms")
    is_live = pc.greater(last_ms, pc.max(last_ms).as_py() - live_ms)
    return [part for part in (table.filter(pc.invert(is_live)), table.filter(is_live)) if len(part)]


def _write(parts: list[pa.Table], path: Path) -> None:
    table = parts[0]
    delta = {column: "DELTA_BINARY_PACKED" for column in DELTA if column.split(".")[0] in table.column_names}
    plain = {column.split(".")[0] for column in delta} | set(PLAIN)
    dictionary = [column for column in table.column_names if column not in plain and not pa.types.is_list(table.schema.field(column).type)]
    codecs = _codecs(table.schema)
    with pq.ParquetWriter(
        path,
        table.schema,
        compression=codecs,
        compression_level={leaf: LEVELS.get(leaf, COMPRESSION_LEVEL) for leaf, codec in codecs.items() if codec == "zstd"},
        use_dictionary=dictionary,
        column_encoding=delta or None,
        data_page_version="2.0",
        write_page_checksum=True,
    ) as writer:
        for part in parts:
            writer.write_table(part, row_group_size=ROW_GROUP_ROWS)


def _codecs(schema: pa.Schema) -> dict[str, str]:
    """Return the compression of each column, by its path in the file."""
    uncompressed = UNCOMPRESSED if "max_observed" in schema.names else frozenset()
    leaves = {field.name: f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in schema}
    return {leaf: "none" if name in uncompressed else "snappy" if name in SNAPPY else "zstd" for name, leaf in leaves.items()}


def hashed(path: Path) -> dict[str, Any]:
    """Return the manifest's entries of a file: its length and its SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
