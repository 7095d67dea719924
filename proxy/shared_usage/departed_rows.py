"""The part of the segment with the throttles that departed connections left: words for each row, which any worker writes.

The first word is a random number, another one after each change of any row: who follows all rows reads them only then. A number that
increases would need a lock for all rows, since two workers that increase it at once can leave one increase.

The words of a row are: the end of its longest throttle, the end of one that applies to every new connection, the number of the other
throttles, a number that increases with each change, and the ends, ascending. An end is in monotonic milliseconds, 0: none. A lock of the
row protects changes.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proxy.enforcement.groups.departed_throttles import DepartedThrottles
from proxy.shared_usage.file_lock import DEPARTED_AT, try_lock

FIRST_ROW_AT: Final = 8
"""Index of the first row: the number of the last change has a cache line of its own."""
DEPARTED_WORDS: Final = 128
CHANGES_AT: Final = 3
"""Index of the number of changes in the words of a row."""
_ENDS: Final = 4
"""Index of the first end in the words of a row."""
DEPARTED_MAX: Final = DEPARTED_WORDS - _ENDS
"""Maximum number of throttles of a row."""
LOCK_TRIES: Final = 50
"""Number of attempts to lock a row: a holder needs microseconds, unless it is interrupted."""


class DepartedRows:
    """The throttles of all rows.

    Args:
        descriptor: the memory file.
        words: `FIRST_ROW_AT`, and `DEPARTED_WORDS` for each row.
    """

    __slots__ = ("_descriptor", "words")

    def __init__(self, descriptor: int, words: memoryview) -> None:
        self._descriptor = descriptor
        self.words = words

    @property
    def change(self) -> int:
        """A number that is another one after each change of any row. Who reads it before the rows misses no change."""
        return self.words[0]

    def until_ms(self, row: int) -> int:
        """Return the end of the longest throttle in monotonic ms, which may have passed; 0: there is none. Takes no lock."""
        return self.words[_first_word(row)]

    @contextmanager
    def locked(self, row: int) -> Iterator[DepartedThrottles | None]:
        """Lock the throttles of a row for a change; None: another process holds the lock for too long, and they are unchanged."""
        for _ in range(LOCK_TRIES):
            with try_lock(self._descriptor, DEPARTED_AT + row) as is_locked:
                if is_locked:
                    throttles = self._read(row)
                    before = (*throttles.until_ms,), throttles.for_all_until_ms
                    yield throttles
                    if before != ((*throttles.until_ms,), throttles.for_all_until_ms):
                        self._write(row, throttles)
                    return
        yield None

    def clear(self, row: int) -> None:
        """Remove all throttles of a row that is assigned to another group."""
        at = _first_word(row)
        self.words[at : at + CHANGES_AT] = array("q", [0] * CHANGES_AT)
        self._note_change(at)

    def _read(self, row: int) -> DepartedThrottles:
        at = _first_word(row)
        _, for_all_until_ms, count = self.words[at : at + CHANGES_AT].tolist()
        return DepartedThrottles(self.words[at + _ENDS : at + _ENDS + count].tolist(), for_all_until_ms, DEPARTED_MAX)

    def _write(self, row: int, throttles: DepartedThrottles) -> None:
        words, until_ms, at = self.words, throttles.until_ms, _first_word(row)
        words[at + _ENDS : at + _ENDS + len(until_ms)] = array("q", until_ms)
        words[at + 2] = len(until_ms)
        words[at + 1] = throttles.for_all_until_ms
        words[at] = throttles.longest_until_ms(0)
        self._note_change(at)

    def _note_change(self, at: int) -> None:
        """Note that the row whose words begin at `at` has changed."""
        self.words[at + CHANGES_AT] += 1
        self.words[0] = secrets.randbits(62)


def _first_word(row: int) -> int:
    return FIRST_ROW_AT + row * DEPARTED_WORDS
