"""What one file holds, without Spark."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import BadInputError
from pipeline.manifest import Manifest, read_manifest
from pipeline.schemas import TABLES

ROWS_SHOWN: Final = 5


def inspected(path: Path) -> Manifest | dict[str, Any]:
    """Return what `path`, a manifest, a Parquet file or an open segment, holds: of the last two kind, table, counts and the first rows.

    Raises:
        BadInputError: it is none of these.
    """
    if not path.is_file():
        raise BadInputError(f"{path}: no such file; name a manifest, a .parquet or a .arrows.open file")
    if path.suffix == ".json":
        return read_manifest(path)
    table, kind = _read(path)
    name = next((name for name, schema in TABLES.items() if set(schema.names) <= set(table.column_names)), None)
    first = table.slice(0, ROWS_SHOWN).to_pylist()
    return {"kind": kind, "table": name, "rows": len(table), "columns": table.column_names, "first_rows": first}


def as_dict(found: Manifest | dict[str, Any]) -> dict[str, Any]:
    """Return what was found as plain data for JSON; a manifest is told as it stands, and with its name."""
    return found if isinstance(found, dict) else {"kind": "manifest", "stem": found.stem, "manifest": msgspec.to_builtins(found)}


def lines_of(found: Manifest | dict[str, Any]) -> Iterator[str]:
    """Yield what was found for people."""
    if not isinstance(found, dict):
        yield from _manifest_lines(found)
        return
    name = f"table {found['table']}" if found["table"] else "no table of schema 1"
    yield f"{found['kind']}, {name}: {found['rows']:,} rows, {len(found['columns'])} columns"
    for row in found["first_rows"]:
        yield "  " + ", ".join(f"{key}={value}" for key, value in row.items() if value is not None)


def _manifest_lines(manifest: Manifest) -> Iterator[str]:
    yield f"manifest of {manifest.stem}, written by Sluice {manifest.proxy_version} ({manifest.proxy_id}), level {manifest.level}"
    yield f"  decisions {manifest.first_seq} to {manifest.last_seq}, {manifest.dropped_decisions} not written"
    for entry in manifest.files:
        yield f"  {entry.table:<11} {entry.rows:>10,} rows {entry.bytes:>12,} bytes  {entry.path}"


def _read(path: Path) -> tuple[pa.Table, str]:
    try:
        if path.suffix == ".parquet":
            return pq.read_table(path, partitioning=None), "Parquet"
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            return _whole_batches(stream), "segment"
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInputError(f"{path}: neither Parquet nor a metering segment ({str(error).splitlines()[0]})") from error


def _whole_batches(stream: pa.ipc.RecordBatchStreamReader) -> pa.Table:
    """Everything up to where a crash cut the stream."""
    batches = []
    with contextlib.suppress(pa.ArrowInvalid, OSError):
        batches.extend(stream)
    return pa.Table.from_batches(batches, schema=stream.schema)
