"""The part of the segment with a row for each broker, in which each worker has its own cells.

The digest of the broker's address identifies the row. A row belongs to its broker for the lifetime of the segment, and at most `ROWS_MAX`
brokers have one. `proxy.handler_time.shared` defines the cells.
"""

from __future__ import annotations

import struct
from typing import Final

ROWS_MAX: Final = 1_024
COLUMN_WORDS: Final = 8
"""Number of words of each worker's cells, and of the digest before them: one cache line."""


def broker_words(workers: int) -> int:
    """Return the number of words of all brokers' rows."""
    return ROWS_MAX * _row_words(workers)


def claim_broker(words: memoryview, workers: int, digest: bytes) -> memoryview | None:
    """Return the cells of a broker, with a new row if it has none; None: all rows belong to other brokers. Called with the lock held.

    Args:
        words: the words of all rows.
        workers: maximum number of workers.
        digest: digest of the address, 16 bytes.
    """
    high, low = struct.unpack("2q", digest)
    size = _row_words(workers)
    for step in range(ROWS_MAX):
        first = (high + step) % ROWS_MAX * size
        found = (words[first], words[first + 1])
        if found == (0, 0):
            words[first], words[first + 1] = high, low
        elif found != (high, low):
            continue
        return words[first + COLUMN_WORDS : first + size]
    return None


def _row_words(workers: int) -> int:
    return COLUMN_WORDS * (1 + workers)
