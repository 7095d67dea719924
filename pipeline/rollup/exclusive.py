"""One roll-up at a time for each output directory: a second one would remove the staging directory of the first."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.errors import IncompleteError

LOCK: Final = ".lock"


@contextlib.contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the lock of an output directory for a block; the directory exists meanwhile. The kernel releases it when the process ends.

    Raises:
        IncompleteError: another process holds it.
        OSError: the directory cannot be created or written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK
    descriptor = _locked(path)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is locked, so that no other process locks a file that is gone: see `_locked`
        os.close(descriptor)
        with contextlib.suppress(OSError):
            directory.rmdir()  # if the block has written nothing


def _locked(path: Path) -> int:
    """Return the descriptor of the locked file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") or "unknown"
            os.close(descriptor)
            message = f"{path.parent}: another roll-up (process {holder}) writes to this directory; run this one again when it has ended"
            raise IncompleteError(message) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # the process that held the lock has removed the file
