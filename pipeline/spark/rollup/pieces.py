"""Arrow tables as rows of a Spark frame: Spark moves and stores the compressed tables, and only Python tasks look into them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

PIECES: Final = "share int, name string, place string, data binary"
"""Columns of a frame of pieces."""
SUMS_SHARE: Final = -1
"""Share of pieces that the driver collects."""
_SCHEMA: Final = pa.schema([("share", pa.int32()), ("name", pa.string()), ("place", pa.string()), ("data", pa.binary())])
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class Piece(NamedTuple):
    """Some rows of a table.

    Attributes:
        share: number of the task that gets the piece.
        name: name of the table.
        place: date or partition of the rows ("2026-11-21", "date=2026-11-21/hour=07").
    """

    share: int
    name: str
    place: str
    rows: pa.Table


def as_batch(piece: Piece) -> pa.RecordBatch:
    """Return a piece as a row of PIECES."""
    values = (piece.share, piece.name, piece.place, as_bytes(piece.rows))
    columns = [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def pieces_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    """Yield the pieces of rows of PIECES, one by one."""
    for batch in batches:
        shares, names, places = (batch.column(number).to_pylist() for number in range(3))
        for share, name, place, data in zip(shares, names, places, batch.column(3), strict=True):
            yield Piece(share, name, place, from_bytes(data.as_buffer()))


def pieces_of_rows(rows: Iterable[Any]) -> Iterator[Piece]:
    """Yield the pieces of rows that the driver has collected."""
    for row in rows:
        yield Piece(row["share"], row["name"], row["place"], from_bytes(bytes(row["data"])))


def as_bytes(rows: pa.Table) -> bytes:
    """Return a table in the format of Arrow, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def from_bytes(data: bytes | pa.Buffer) -> pa.Table:
    """Return the table of `as_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
