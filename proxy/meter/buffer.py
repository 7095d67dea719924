"""Buffers of decisions for the writer. In a mapped file they survive a process that is killed, so that its decisions can be counted.

Usage is counted elsewhere; the file says how many rows of it there may be.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from proxy.base.files import FILE_MODE, try_lock
from proxy.meter.batch import BATCH_WORDS
from proxy.meter.record import PASSED, RECORD_BYTES, RECORDED, REMOTE_DATA, RUN_VALUE_BITS, WORD_BYTES

_WORDS_BYTES: Final = BATCH_WORDS * WORD_BYTES
_RECORDS_END: Final = _WORDS_BYTES + BATCH_WORDS * RECORD_BYTES
_NUMBERS: Final = Struct("=qq")
_FIRST_SEQ: Final = 0
_USAGE_ROWS: Final = 1
_FILE_BYTES: Final = _RECORDS_END + _NUMBERS.size
_ZEROS: Final = bytes(_WORDS_BYTES)


class DecisionBuffer:
    """Room for one batch, to be filled from its beginning.

    Args:
        path: of a file to map; None: memory of this process.

    Attributes:
        words: `BATCH_WORDS` signed numbers of 64 bits.
        records: bytes for as many records.
    """

    __slots__ = ("_memory", "_numbers", "_path", "records", "words")

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory = memoryview(bytearray(_FILE_BYTES) if path is None else _mapped(path))
        self.words = self._memory[:_WORDS_BYTES].cast("q")
        self.records = self._memory[_WORDS_BYTES:_RECORDS_END]
        self._numbers = self._memory[_RECORDS_END:].cast("q")  # each is written at once or not at all, whenever we are killed

    def take(self, words: int, record_bytes: int, next_seq: int) -> tuple[bytes, bytes]:
        """Return the first `words`, and what stands in the first bytes for records; the next decision will have the number `next_seq`."""
        taken = bytes(self.words[:words]), bytes(self.records[:record_bytes])
        self._numbers[_FIRST_SEQ] = ~next_seq  # it counts the words in that still stand here
        size = words * WORD_BYTES
        self._memory[:size] = _ZEROS[:size]
        self._numbers[_FIRST_SEQ] = next_seq
        return taken

    def usage_rows(self, count: int) -> None:
        """Say how many rows of usage a second can have by now."""
        self._numbers[_USAGE_ROWS] = count

    def close(self) -> None:
        """All was handed over."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        try_lock(descriptor)  # lasts as long as the map, so that others see that we live
        os.posix_fallocate(descriptor, 0, _FILE_BYTES)  # a full disk says so here, and not by a signal later
        return mmap.mmap(descriptor, _FILE_BYTES)
    finally:
        os.close(descriptor)


def is_in_use(path: Path) -> bool:
    """Whether the process lives that maps a buffer; where that is unknown, it does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


class Left(NamedTuple):
    """What the mapped buffer of a process that was killed says.

    Attributes:
        decisions: how many it had taken.
        usage_rows: how many rows of usage it may have been counting: one for each client, place and class that it had met.
    """

    decisions: int
    usage_rows: int


def left_behind(path: Path) -> Left | None:
    """Return what a process left in its mapped buffer when it was killed; None: nothing is known."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    if len(kept) != _FILE_BYTES:
        return None
    first_seq, usage_rows = _NUMBERS.unpack_from(kept, _RECORDS_END)
    if first_seq < 0:  # killed while it handed over
        return Left(~first_seq, usage_rows)
    words = memoryview(kept)[:_WORDS_BYTES].cast("q")
    decisions = sum(_decisions_of(word) for word in words)
    return Left(first_seq + decisions, usage_rows)


def _decisions_of(word: int) -> int:
    if word > RECORDED:
        return 1 + (-word >> RUN_VALUE_BITS) if word < 0 else word > 0 and not REMOTE_DATA <= word < PASSED
    return word == RECORDED
