"""Where decisions lie until they are handed over. In a mapped file they outlive a process that is killed: then they can be counted."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Any, Final

from proxy.metering.batch import BATCH_RECORDS
from proxy.metering.layout import FILE_MODE
from proxy.metering.record import RAW, RECORD_BYTES

BUFFER_BYTES: Final = BATCH_RECORDS * RECORD_BYTES
_FIRST_SEQ: Final = Struct("<q")
_FILE_BYTES: Final = BUFFER_BYTES + _FIRST_SEQ.size
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
            _FIRST_SEQ.pack_into(self._map, BUFFER_BYTES, next_seq)
            self._map[:size] = _ZEROS[:size]
        return taken

    def close(self) -> None:
        """All was handed over."""
        if self._map is not None and self._path is not None:
            self.bytes = bytearray(BUFFER_BYTES)
            self._map.close()
            self._map = None
            self._path.unlink(missing_ok=True)


def decisions_taken(path: Path) -> int | None:
    """Return how many decisions a process had taken when it was killed, as its mapped buffer says; None: nothing can be told."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    if len(kept) != _FILE_BYTES:
        return None
    (first_seq,) = _FIRST_SEQ.unpack_from(kept, BUFFER_BYTES)
    count = sum(1 for ts_ms, *_ in RAW.iter_unpack(kept[:BUFFER_BYTES]) if ts_ms)
    return int(first_seq) + count
