"""Buffers of decisions for the writer. A mapped file survives a killed process, so that its decisions can be counted.

Usage is counted elsewhere; the file contains the possible number of its rows.
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
    """Space for one batch, filled from its beginning.

    Args:
        path: file to map; None: memory of this process.

    Attributes:
        words: `BATCH_WORDS` signed 64-bit numbers.
        records: bytes of the records.
    """

    __slots__ = ("_memory", "_numbers", "_path", "records", "words")

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory = memoryview(bytearray(_FILE_BYTES) if path is None else _mapped(path))
        self.words = self._memory[:_WORDS_BYTES].cast("q")
        self.records = self._memory[_WORDS_BYTES:_RECORDS_END]
        self._numbers = self._memory[_RECORDS_END:].cast("q")  # each is written atomically, whenever the process is killed

    def take(self, words: int, record_bytes: int, next_seq: int) -> tuple[bytes, bytes]:
        """Return the first `words`, and the first bytes of the records; the number of the next decision is `next_seq`."""
        taken = bytes(self.words[:words]), bytes(self.records[:record_bytes])
        self._numbers[_FIRST_SEQ] = ~next_seq  # it counts the words that are still there
        size = words * WORD_BYTES
        self._memory[:size] = _ZEROS[:size]
        self._numbers[_FIRST_SEQ] = next_seq
        return taken

    def usage_rows(self, count: int) -> None:
        """Store the possible number of usage rows per second."""
        self._numbers[_USAGE_ROWS] = count

    def close(self) -> None:
        """Close after everything was handed over."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        try_lock(descriptor)  # held as long as the map, so that others see a live process
        os.posix_fallocate(descriptor, 0, _FILE_BYTES)  # a full disk raises an error here, and not a signal later
        return mmap.mmap(descriptor, _FILE_BYTES)
    finally:
        os.close(descriptor)


def is_in_use(path: Path) -> bool:
    """Whether the process that maps a buffer is alive; True when unknown."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


class AbandonedBuffer(NamedTuple):
    """The content of the mapped buffer of a killed process.

    Attributes:
        decisions: number of decisions in it.
        usage_rows: possible number of usage rows: one for each client, place and class so far.
    """

    decisions: int
    usage_rows: int


def read_abandoned(path: Path) -> AbandonedBuffer | None:
    """Return what a killed process left in its mapped buffer; None: unknown."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    if len(kept) != _FILE_BYTES:
        return None
    first_seq, usage_rows = _NUMBERS.unpack_from(kept, _RECORDS_END)
    if first_seq < 0:  # killed while it handed over
        return AbandonedBuffer(~first_seq, usage_rows)
    words = memoryview(kept)[:_WORDS_BYTES].cast("q")
    decisions = sum(_decisions_of(word) for word in words)
    return AbandonedBuffer(first_seq + decisions, usage_rows)


def _decisions_of(word: int) -> int:
    if word > RECORDED:
        return 1 + (-word >> RUN_VALUE_BITS) if word < 0 else word > 0 and not REMOTE_DATA <= word < PASSED
    return word == RECORDED
