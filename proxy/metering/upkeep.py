"""Who changes finished file sets: one at a time, or one brings back what another takes away."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

MANIFESTS = "manifests"


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Wait until nobody else changes manifests of a metering directory, and keep others waiting for a block.

    The directory of manifests itself is what is locked: there is no file that could be left behind. Who only reads, or adds, does not ask.
    """
    place = directory / MANIFESTS
    if not place.is_dir():
        yield
        return
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
