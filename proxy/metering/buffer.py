"""Where decisions lie until they are handed over. In a mapped file they outlive a process that is killed: then they can be counted.

Usage is counted elsewhere; the file says how many rows of it there may be.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from proxy.metering.batch import BATCH_WORDS
from proxy.metering.layout import FILE_MODE
from proxy.metering.record import RECORD_BYTES, TAG_AT, TIME, VALUE_BITS, WORD_BYTES

_NUMBER: Final = Struct("<q")
_WORDS_BYTES: Final = BATCH_WORDS * WORD_BYTES
_RECORDS_END: Final = _WORDS_BYTES + BATCH_WORDS * RECORD_BYTES
_FIRST_SEQ_AT: Final = _RECORDS_END
_USAGE_ROWS_AT: Final = _FIRST_SEQ_AT + _NUMBER.size
_FILE_BYTES: Final = _USAGE_ROWS_AT + _NUMBER.size
_ZEROS: Final = bytes(_WORDS_BYTES)


class DecisionBuffer:
    """Room for one batch, to be filled from its beginning.

    Args:
        path: of a file to map; None: memory of this process.

    Attributes:
        words: `BATCH_WORDS` unsigned numbers of 64 bits.
        records: bytes for as many records.
    """

    __slots__ = ("_memory", "_path", "records", "words")

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory = memoryview(bytearray(_FILE_BYTES) if path is None else _mapped(path))
        self.words = self._memory[:_WORDS_BYTES].cast("Q")
        self.records = self._memory[_WORDS_BYTES:_RECORDS_END]

    def take(self, words: int, record_bytes: int, next_seq: int) -> tuple[bytes, bytes]:
        """Return the first `words`, and what stands in the first bytes for records; the next decision will have the number `next_seq`."""
        taken = bytes(self.words[:words]), bytes(self.records[:record_bytes])
        _NUMBER.pack_into(self._memory, _FIRST_SEQ_AT, next_seq)
        size = words * WORD_BYTES
        self._memory[:size] = _ZEROS[:size]
        return taken

    def usage_rows(self, count: int) -> None:
        """Say how many rows of usage a second can have by now."""
        _NUMBER.pack_into(self._memory, _USAGE_ROWS_AT, count)

    def close(self) -> None:
        """All was handed over."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        os.posix_fallocate(descriptor, 0, _FILE_BYTES)  # a full disk says so here, and not by a signal later
        return mmap.mmap(descriptor, _FILE_BYTES)
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
    """Return what a process left in its mapped buffer when it was killed; None: nothing can be told."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    if len(kept) != _FILE_BYTES:
        return None
    (first_seq,), (usage_rows,) = _NUMBER.unpack_from(kept, _FIRST_SEQ_AT), _NUMBER.unpack_from(kept, _USAGE_ROWS_AT)
    words = memoryview(kept)[:_WORDS_BYTES].cast("Q")
    decisions = sum(_decisions_of(word) for word in words)
    return Left(int(first_seq) + decisions, int(usage_rows))


def _decisions_of(word: int) -> int:
    tag = word >> TAG_AT
    if not tag:
        return 1 + (word >> VALUE_BITS) if word else 0
    return tag != TIME >> TAG_AT
