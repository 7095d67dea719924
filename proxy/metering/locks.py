"""Locks on files; the kernel releases them when the process ends in any way."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metering_format.places import MANIFESTS, SEGMENTS
from proxy.base.files import FILE_MODE, try_lock
from proxy.metering.layout import LOCK_PREFIX

_CONVERTING_PREFIX: Final = ".converting-"


def lock_path(directory: Path, proxy_id: str) -> Path:
    """Return the file that a proxy locks as long as it runs."""
    return directory / SEGMENTS / f"{LOCK_PREFIX}{proxy_id}"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Yield whether a lock was acquired; its file is created if necessary. False: another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def converting(directory: Path, proxy_id: str) -> Iterator[None]:
    """Convert a proxy's files exclusively: the child of a killed proxy may still run beside that of the next proxy."""
    with _waited_for(directory / SEGMENTS / f"{_CONVERTING_PREFIX}{proxy_id}", os.O_RDWR | os.O_CREAT):
        yield


@contextlib.contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Change finished file sets exclusively, so that two changes do not undo each other. Reading and adding need no lock.

    The lock is on the directory of manifests itself, so that no lock file can be left behind.
    """
    place = directory / MANIFESTS
    if not place.is_dir():
        yield
        return
    with _waited_for(place, os.O_RDONLY):
        yield


@contextlib.contextmanager
def _waited_for(path: Path, flags: int) -> Iterator[None]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
