"""Locks on files: who holds one gives it back at the latest when it dies, however it dies."""

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
    """Return the file that a proxy has locked for as long as it lives."""
    return directory / SEGMENTS / f"{LOCK_PREFIX}{proxy_id}"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock that is made where it is not; False: another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def converting(directory: Path, proxy_id: str) -> Iterator[None]:
    """Convert what a proxy wrote as the only one: the child of a proxy that was killed goes on, and the next proxy has one of its own."""
    with _waited_for(directory / SEGMENTS / f"{_CONVERTING_PREFIX}{proxy_id}", os.O_RDWR | os.O_CREAT):
        yield


@contextlib.contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Change finished file sets as the only one, or one brings back what another takes away. Who only reads, or adds, does not ask.

    The directory of manifests itself is what is locked: there is no file that could be left behind.
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
