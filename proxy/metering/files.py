"""One Parquet file: how its columns are written, and that what was written can be read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

COMPRESSION_LEVEL: Final = 1
DELTA: Final = (
    "dt_ms.list.element",
    "thr_pos.list.element",
    "thr_ms.list.element",
    "applied_ms.list.element",
    "first_seq",
    "last_seq",
    "sample_start_ms",
    "last_event_ms",
    "oldest_start_ms",
    "prior_sum",
    "sum",
    "seq",
    "ts_ms",
    "value",
    "window_sum",
)
"""Columns whose neighbours differ by little: deltas take half of what a dictionary does."""


PLAIN: Final = ("max_observed", "throttle_ms_sum", "applied_ms_sum")
"""Columns of which hardly a value comes twice: a dictionary makes them larger. BYTE_STREAM_SPLIT is not known to every reader."""


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table, and look at its footer.

    Raises:
        OSError: the disk is full or gone; no file is left.
    """
    try:
        _write(table, path)
        if pq.read_metadata(path).num_rows != len(table):
            raise OSError(f"{path}: what was written is not what can be read")
    except (OSError, pa.ArrowInvalid) as error:
        path.unlink(missing_ok=True)
        raise error if isinstance(error, OSError) else OSError(f"{path}: what was written cannot be read") from error


def _write(table: pa.Table, path: Path) -> None:
    delta = {column: "DELTA_BINARY_PACKED" for column in DELTA if column.split(".")[0] in table.column_names}
    plain = {column.split(".")[0] for column in delta} | set(PLAIN)
    dictionary = [column for column in table.column_names if column not in plain and not pa.types.is_list(table.schema.field(column).type)]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=dictionary,
        column_encoding=delta or None,
        data_page_version="2.0",
        row_group_size=250_000,
    )


def hashed(path: Path) -> dict[str, Any]:
    """Return what a manifest says of a file: its length and its SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
