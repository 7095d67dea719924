"""The first divergence of each group as a table in Parquet."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.files import whole_file, write_bytes
from pipeline.storage.paths import AnyPath
from pipeline.validation.divergence import SCHEMA
from pipeline.validation.verdict import Verdict

ROWS_AT_ONCE: Final = 10_000


def write_divergences(directory: AnyPath, verdict: Verdict) -> None:
    """Write the first divergence of each group to a new directory.

    Raises:
        OSError, BadInputError: the file cannot be written.
    """
    path = directory / "part-0.parquet"
    if isinstance(path, Path):
        with whole_file(path) as temporary:
            _write(str(temporary), verdict)
        return
    data = io.BytesIO()
    _write(data, verdict)
    write_bytes(path, data.getvalue())


def _write(to: str | io.BytesIO, verdict: Verdict) -> None:
    with pq.ParquetWriter(to, SCHEMA, compression="zstd") as writer:
        for batch in _batches(verdict):
            writer.write_batch(batch)


def _batches(verdict: Verdict) -> Iterator[pa.RecordBatch]:
    found = verdict.divergences(verdict.groups_with_divergences)
    for begin in range(0, len(found), ROWS_AT_ONCE):
        yield pa.RecordBatch.from_pylist([one.as_row() for one in found[begin : begin + ROWS_AT_ONCE]], schema=SCHEMA)
