"""A segment: an Arrow stream of batches and a file with lines of facts. After a crash both are complete up to the last flush.

Batches have the encoding of the meter. The converter decodes them, since the writer shares the interpreter with the event loop.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Final

import msgspec
import pyarrow as pa

from metering_format.places import SEGMENTS
from proxy.base.files import FILE_MODE, TEMPORARY, remove
from proxy.meter.batch import Batch, Fact
from proxy.metering.layout import FACTS_SUFFIX, RAW_SUFFIX
from proxy.metering.raw import READABLE, SEGMENT_SCHEMA, SegmentBatch

_encode = msgspec.json.Encoder().encode
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an Arrow stream."""
FIRST_SEQ: Final = b"first_seq"
_OFFSETS: Final = Struct("<ii")
_REPEATED_KINDS: Final = frozenset({"run", "state", "group", "bound", "client"})
"""Kinds of facts that each segment repeats as needed, so the loss of a segment loses none of them."""


def _begin() -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, SEGMENT_SCHEMA, options=_OPTIONS).close()
    return bytes(sink.getvalue()).removesuffix(_END)


_BEGIN: Final = _begin()
"""The beginning of an Arrow stream with the columns of a segment."""


def _message(batch: Batch) -> memoryview:
    """Return the message of a batch in the stream. Arrow releases the interpreter lock while it compresses into its own memory."""
    sink = pa.BufferOutputStream()
    row = pa.RecordBatch.from_arrays([_alone(data) for data in (batch.words, batch.records)], schema=SEGMENT_SCHEMA)
    pa.ipc.new_stream(sink, SEGMENT_SCHEMA, options=_OPTIONS).write_batch(row, custom_metadata={FIRST_SEQ: str(batch.first_seq).encode()})
    return memoryview(sink.getvalue())[len(_BEGIN) :]


def _alone(data: bytes) -> pa.Array:
    """Return a column of one row without a copy. `pa.array` would load pandas into the proxy if it is installed."""
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(_OFFSETS.pack(0, len(data))), pa.py_buffer(data)])


class _Appender:
    """A file that grows in complete steps: `keep` ends a step, and after a failure `cut` truncates the file to the last one."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        self._kept = 0
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> None:
        left = memoryview(data)
        while left:
            written = os.write(self._descriptor, left)
            self.bytes += written
            left = left[written:]

    def keep(self) -> None:
        self._kept = self.bytes

    def cut(self) -> None:
        """Truncate to the end of the last step, so that data which is written again elsewhere is not there twice."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._kept)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)


class SegmentWriter:
    """Appends batches to the two files of one segment.

    Args:
        header: facts that identify the run. The file appears together with its header, since a segment has to name its process.

    Raises, from every method:
        OSError: the disk is full or fails; the segment has everything written before.
    """

    def __init__(self, file_set: Path, header: list[Fact]) -> None:
        self.path = file_set
        self.bytes = 0
        self.decisions = 0
        self.is_worth_keeping = False
        self._is_broken = False
        self._raw: _Appender | None = None
        path = file_set.with_name(file_set.name + FACTS_SUFFIX)
        temporary = path.with_name(TEMPORARY + path.name)
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        remove(temporary)  # left by a process that died at this point
        self._facts = _Appender(temporary)
        try:
            self.write(header)
            temporary.rename(path)
            self._raw = _Appender(file_set.with_name(file_set.name + RAW_SUFFIX))
            self._raw.write(_BEGIN)
        except BaseException:
            remove(temporary)
            self.discard()
            raise
        self._raw.keep()

    def write(self, facts: list[Fact], batch: Batch | None = None) -> None:
        """Append `facts`, then the batch with the decisions that need them: all or, with an error, none."""
        files = [file for file in (self._facts, self._raw) if file is not None]
        try:
            if facts:
                self._facts.write(b"".join(_encode(fact) + b"\n" for fact in facts))
            if batch is not None and batch.count:
                assert self._raw is not None
                self._raw.write(_message(batch))
        except OSError:
            self._is_broken = True
            for file in files:
                file.cut()
            raise
        for file in files:
            file.keep()
        self.bytes = sum(file.bytes for file in files)
        self.decisions += 0 if batch is None else batch.count
        self.is_worth_keeping |= self.decisions > 0 or any(_REPEATED_KINDS.isdisjoint(fact) for fact in facts)

    def sync(self) -> None:
        """Flush everything written so far to the disk."""
        assert self._raw is not None
        self._facts.sync()
        self._raw.sync()

    def close(self) -> None:
        """Write the end of the stream and close the files; data that cannot be written is dropped."""
        assert self._raw is not None
        if not self._is_broken:
            with contextlib.suppress(OSError):
                self._raw.write(_END)
                self.sync()
        self._raw.close()
        self._facts.close()

    def discard(self) -> None:
        """Close and remove the files."""
        for file in (self._raw, self._facts):
            if file is not None:
                file.close()
        remove(self.path.with_name(self.path.name + RAW_SUFFIX), self.path.with_name(self.path.name + FACTS_SUFFIX))


@dataclass(frozen=True, slots=True)
class Segment:
    """The readable part of a segment: complete batches, and complete lines of facts."""

    batches: list[SegmentBatch]
    facts: list[Fact]

    @property
    def header(self) -> Fact | None:
        """The last fact with run and start time: an empty segment may have been started again."""
        return next((fact["run"] for fact in reversed(self.facts) if "run" in fact), None)

    def facts_of(self, kind: str) -> Iterator[Any]:
        """Yield the facts of one kind."""
        return (fact[kind] for fact in self.facts if kind in fact)


class OtherVersionError(Exception):
    """A segment is complete, and has an encoding that this version does not read."""


def read_segment(file_set: Path) -> Segment:
    """Read a segment that may end at any byte.

    Raises:
        OtherVersionError: a version of Sluice with another encoding wrote it.
    """
    batches: list[SegmentBatch] = []
    raw = file_set.with_name(file_set.name + RAW_SUFFIX)
    with contextlib.suppress(pa.ArrowInvalid, OSError), pa.OSFile(str(raw)) as file:
        stream = pa.ipc.open_stream(file)
        if not any(stream.schema.equals(known, check_metadata=True) for known in READABLE):
            raise OtherVersionError("written by another version of Sluice: run `sluice meter repair` of that version")
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            words, records = (batch.column(name)[0].as_py() for name in SEGMENT_SCHEMA.names)
            batches.append(SegmentBatch(int(metadata[FIRST_SEQ]), words, records))
    return Segment(batches, list(_facts(file_set.with_name(file_set.name + FACTS_SUFFIX))))


def _facts(path: Path) -> Iterator[Fact]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            try:
                yield msgspec.json.decode(line, type=dict)
            except msgspec.DecodeError:
                return  # a line that a crash truncated, or not a fact


def proxy_of(file_set: Path) -> str | None:
    """Return the proxy id of a segment; None: the segment ends before it."""
    for fact in _facts(file_set.with_name(file_set.name + FACTS_SUFFIX)):
        with contextlib.suppress(TypeError, KeyError):
            return str(fact["run"]["proxy_id"])
        break
    return None


def left_over(directory: Path, proxy_id: str | None = None) -> list[str]:
    """Return the segments of earlier runs in order; with `proxy_id` only those of one proxy, since others may still be written."""
    place = directory / SEGMENTS
    found = (path for path in place.glob(f"*{FACTS_SUFFIX}") if path.is_file() and not path.name.startswith(TEMPORARY))
    names = sorted(path.name.removesuffix(FACTS_SUFFIX) for path in found)
    return [name for name in names if proxy_id is None or proxy_of(place / name) in (proxy_id, None)]
