"""Describes the content of one file, without Spark."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metering_format.manifest import Manifest
from metering_format.tables import ADDED, TABLES
from pipeline.errors import BadInputError
from pipeline.manifest import read_manifest
from pipeline.report.plain_page import Table, draw_plain
from pipeline.storage.paths import AnyPath
from pipeline.text import counted, table_lines

ROWS_SHOWN: Final = 5


def inspected(path: AnyPath) -> Manifest | dict[str, Any]:
    """Return the content of a manifest, a Parquet file or an open segment. For the last two: kind, table, counts and first rows.

    Raises:
        BadInputError: the file is none of these.
    """
    if not path.is_file():
        raise BadInputError(f"{path}: no such file; name a manifest, a .parquet or a .arrows.open file")
    if path.suffix == ".json":
        return read_manifest(path)
    table, kind = _read(path)
    name = next((name for name, schema in TABLES.items() if set(schema.names) - set(ADDED.get(name, ())) <= set(table.column_names)), None)
    first = table.slice(0, ROWS_SHOWN).to_pylist()
    return {
        "kind": kind,
        "table": name,
        "rows": len(table),
        "columns": table.column_names,
        "holds": list(_columns(table)),
        "first_rows": first,
    }


def as_dict(found: Manifest | dict[str, Any]) -> dict[str, Any]:
    """Return the content as plain data for JSON; a manifest unchanged, with its name."""
    return found if isinstance(found, dict) else {"kind": "manifest", "stem": found.file_set, "manifest": msgspec.to_builtins(found)}


def lines_of(found: Manifest | dict[str, Any]) -> Iterator[str]:
    """Yield the content as text."""
    if not isinstance(found, dict):
        yield from _manifest_lines(found)
        return
    name = f"table {found['table']}" if found["table"] else "no table of metering"
    yield f"{found['kind']}, {name}: {counted(found['rows'], 'row')}, {counted(len(found['columns']), 'column')}"
    for row in found["first_rows"]:
        yield "  " + ", ".join(f"{key}={value}" for key, value in row.items() if value is not None)


def rows_of(found: Manifest | dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content as rows of plain cells: the first rows of a table, or the files of a manifest."""
    rows = found["first_rows"] if isinstance(found, dict) else [msgspec.to_builtins(entry) for entry in found.files]
    return [{name: _text(cell) for name, cell in row.items()} for row in rows]


def column_lines(found: Manifest | dict[str, Any]) -> Iterator[str]:
    """Yield the content of each column, or the fields of a manifest besides its files."""
    yield ""
    if isinstance(found, dict):
        yield from table_lines(("column", "type", "nulls", "least", "most"), ([*column.values()] for column in found["holds"]))
        return
    fields = {name: its for name, its in msgspec.to_builtins(found).items() if name != "files"}
    yield from table_lines(("field", "value"), ((name, _text(its)) for name, its in fields.items()))


def draw_inspected(name: str, found: Manifest | dict[str, Any]) -> str:
    """Return the content as a page.

    Args:
        name: name of the file.
        found: the result of `inspected`.
    """
    first, *_ = lines_of(found)
    rows = rows_of(found)
    columns = [] if not isinstance(found, dict) else [[*column.values()] for column in found["holds"]]
    fields = [] if isinstance(found, dict) else [(key, _text(its)) for key, its in msgspec.to_builtins(found).items() if key != "files"]
    tables: list[Table] = [
        ("First rows" if columns else "Files", [*rows[0]] if rows else [], [[*row.values()] for row in rows]),
        ("Columns", ("column", "type", "nulls", "least", "most"), columns),
        ("Other fields", ("field", "value"), fields),
    ]
    return draw_plain(name, first, [], tables)


def _text(value: Any) -> str:
    return "" if value is None else json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)


def _columns(table: pa.Table) -> Iterator[dict[str, Any]]:
    for name, column in zip(table.column_names, table.columns, strict=True):
        ends: Any = {"min": None, "max": None}
        with contextlib.suppress(pa.ArrowNotImplementedError):  # lists have no minimum and maximum
            ends = pc.min_max(column).as_py()
        yield {
            "column": name,
            "type": str(column.type),
            "nulls": column.null_count,
            "least": _text(ends["min"]),
            "most": _text(ends["max"]),
        }


def _manifest_lines(manifest: Manifest) -> Iterator[str]:
    yield f"manifest of {manifest.file_set}, written by Sluice {manifest.proxy_version} ({manifest.proxy_id}), level {manifest.level}"
    yield f"  decisions {manifest.first_seq} to {manifest.last_seq}, {manifest.dropped_decisions} not written"
    for entry in manifest.files:
        yield f"  {entry.table:<11} {entry.rows:>10,} rows {entry.bytes:>12,} bytes  {entry.path}"


def _read(path: AnyPath) -> tuple[pa.Table, str]:
    try:
        with path.open("rb") as file:
            source = pa.BufferReader(file.read())
        if path.suffix == ".parquet":
            return pq.read_table(source), "Parquet"
        with pa.ipc.open_stream(source) as stream:
            return _whole_batches(stream), "segment"
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInputError(f"{path}: neither Parquet nor a metering segment ({str(error).splitlines()[0]})") from error


def _whole_batches(stream: pa.ipc.RecordBatchStreamReader) -> pa.Table:
    """Return all complete batches of a stream that a crash may have cut off."""
    batches = []
    with contextlib.suppress(pa.ArrowInvalid, OSError):
        batches.extend(stream)
    return pa.Table.from_batches(batches, schema=stream.schema)
