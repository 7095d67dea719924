"""Where decisions lie until they are handed over. In a mapped file they outlive a process that is killed: then they can be counted.

Usage is counted elsewhere; the file says how many rows of it there may be.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from proxy.metering.batch import BATCH_RECORDS
from proxy.metering.layout import FILE_MODE
from proxy.metering.record import RAW, RECORD_BYTES

BUFFER_BYTES: Final = BATCH_RECORDS * RECORD_BYTES
_NUMBER: Final = Struct("<q")
_FIRST_SEQ_AT: Final = BUFFER_BYTES
_USAGE_ROWS_AT: Final = BUFFER_BYTES + _NUMBER.size
_FILE_BYTES: Final = _USAGE_ROWS_AT + _NUMBER.size
_ZEROS: Final = bytes(BUFFER_BYTES)


class DecisionBuffer:
    """Room for one batch; `bytes` is what decisions are packed into.

    Args:
        path: of a file to map; None: memory of this process.
    """

    __slots__ = ("_map", "_path", "bytes")

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self.bytes: Any = bytearray(BUFFER_BYTES)
        if path is None:
            return
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            os.posix_fallocate(descriptor, 0, _FILE_BYTES)  # a full disk says so here, and not by a signal later
            self.bytes = self._map = mmap.mmap(descriptor, _FILE_BYTES)
        finally:
            os.close(descriptor)

    def take(self, size: int, next_seq: int) -> bytes:
        """Return what stands in the first `size` bytes; the next decision there will have the number `next_seq`."""
        taken = bytes(memoryview(self.bytes)[:size])
        if self._map is not None:
            _NUMBER.pack_into(self._map, _FIRST_SEQ_AT, next_seq)
            self._map[:size] = _ZEROS[:size]
        return taken

    def usage_rows(self, count: int) -> None:
        """Say how many rows of usage a second can have by now."""
        if self._map is not None:
            _NUMBER.pack_into(self._map, _USAGE_ROWS_AT, count)

    def close(self) -> None:
        """All was handed over."""
        if self._map is not None and self._path is not None:
            self.bytes = bytearray(BUFFER_BYTES)
            self._map.close()
            self._map = None
            self._path.unlink(missing_ok=True)


class Left(NamedTuple):
    """What the mapped buffer of a process that was killed says.

    Attributes:
        decisions: how many it had taken.
        usage_rows: how many rows of usage it may have been counting: one for each client, place and class that it had met.
    """

    decisions: int
    usage_rows: int


def left_behind(path: Path) -> Left | None:
    """Return what a process left in its mapped buffer when it was killed; None: nothing can be told."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    if len(kept) != _FILE_BYTES:
        return None
    (first_seq,), (usage_rows,) = _NUMBER.unpack_from(kept, _FIRST_SEQ_AT), _NUMBER.unpack_from(kept, _USAGE_ROWS_AT)
    count = sum(1 for ts_ms, *_ in RAW.iter_unpack(kept[:BUFFER_BYTES]) if ts_ms)
    return Left(int(first_seq) + count, int(usage_rows))
