"""Locks of single bytes of the segment's file. No process waits for one, and the kernel releases it when its holder dies."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ROWS_AT: Final = 0
"""The byte that protects the assignment of rows to groups."""
HUB_AT: Final = 2**40
"""The byte that the fleet's hub locks while it writes the fleet's cells."""
DEPARTED_AT: Final = 1
"""The byte that protects the departed throttles of the first row; those of the other rows follow."""


@contextmanager
def try_lock(descriptor: int, at: int) -> Iterator[bool]:
    """Try to lock a byte of the file, without waiting; yield whether this process has the lock."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    except (BlockingIOError, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, at)
