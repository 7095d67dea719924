"""The part of the segment that tells workers what the others know of each broker: a row for each address, with cells of each worker.

A row is found by the digest of the address, and stays its broker's as long as the segment lives: `ROWS_MAX` brokers have one. What is in
the cells is up to `proxy.handler_time.shared`.
"""

from __future__ import annotations

import struct
from typing import Final

ROWS_MAX: Final = 1_024
COLUMN_WORDS: Final = 8
"""Of each worker, and of the digest before them: one cache line."""


def broker_words(workers: int) -> int:
    """Return how many words the rows of all brokers take."""
    return ROWS_MAX * _row_words(workers)


def claim_broker(words: memoryview, workers: int, digest: bytes) -> memoryview | None:
    """Return the cells of a broker, which is given a row if need be; None: others have them all. Called with the lock.

    Args:
        words: of all rows.
        digest: 16 bytes, of the address.
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
