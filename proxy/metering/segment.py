"""A segment: what a crash leaves whole up to the last flush. Raw decisions as an Arrow stream, facts as lines beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from proxy.metering.batch import Batch, Fact
from proxy.metering.layout import FACTS_SUFFIX, FILE_MODE, RAW_SUFFIX
from proxy.metering.raw import SCHEMA, batch_of

_encode = msgspec.json.Encoder().encode
FIRST_SEQ = b"first_seq"


class SegmentWriter:
    """Appends batches to the two files of one segment.

    Raises, from every method:
        OSError: the disk is full or gone; the segment holds what was written before.
    """

    def __init__(self, stem: Path) -> None:
        self.path = stem
        self.bytes = 0
        self.decisions = 0
        self._raw_file: Any = None
        self._facts = _open(stem.with_name(stem.name + FACTS_SUFFIX))
        try:
            self._raw = _open(stem.with_name(stem.name + RAW_SUFFIX))
            self._sink = pa.PythonFile(self._raw, mode="w")
            self._stream = pa.ipc.new_stream(self._sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        except BaseException:
            self._facts.close()
            raise

    def write(self, batch: Batch, facts: list[Fact]) -> None:
        """Append `facts`, then the decisions that they explain."""
        if facts:
            lines = b"".join(_encode(fact) + b"\n" for fact in facts)
            self._facts.write(lines)
            self._facts.flush()
            self.bytes += len(lines)
        if batch.count:
            self._stream.write_batch(batch_of(batch.raw), custom_metadata={FIRST_SEQ: str(batch.first_seq).encode()})
            self._raw.flush()
            self.bytes += len(batch.raw) // 3  # about what is left after compression; rotation needs no more
            self.decisions += batch.count

    def sync(self) -> None:
        """Make everything written so far last."""
        os.fsync(self._facts.fileno())
        os.fsync(self._raw.fileno())

    def close(self) -> None:
        """End the stream; what cannot be written any more is left out."""
        for close in (self._stream.close, self.sync, self._raw.close, self._facts.close):
            with contextlib.suppress(OSError, ValueError):
                close()


def _open(path: Path) -> Any:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    return os.fdopen(descriptor, "wb")


@dataclass(frozen=True, slots=True)
class Segment:
    """What is left of a segment: whole batches with their first numbers, and whole lines of facts."""

    batches: list[tuple[int, pa.RecordBatch]]
    facts: list[Fact]

    def told(self, kind: str) -> Iterator[dict[str, Any]]:
        """The facts of one kind."""
        return (fact[kind] for fact in self.facts if kind in fact)


def read_segment(stem: Path) -> Segment:
    """Read a segment that may end in the middle of anything."""
    batches: list[tuple[int, pa.RecordBatch]] = []
    raw = stem.with_name(stem.name + RAW_SUFFIX)
    with contextlib.suppress(pa.ArrowInvalid, OSError), pa.OSFile(str(raw)) as file:
        stream = pa.ipc.open_stream(file)
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            batches.append((int(metadata[FIRST_SEQ]), batch))
    return Segment(batches, list(_facts(stem.with_name(stem.name + FACTS_SUFFIX))))


def _facts(path: Path) -> Iterator[Fact]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            try:
                yield msgspec.json.decode(line)
            except msgspec.DecodeError:
                return  # the line that the crash cut
