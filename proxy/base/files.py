"""Files that are written atomically, for owner and group only, and locks on them."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".tmp-"
FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, all for owner and group only."""
    for place in (*reversed(path.parents), path):  # `parents=True` would make the parents readable for all
        place.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Make a rename in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put(path: Path, temporary: Path) -> None:
    """Rename a finished temporary file to its name, atomically."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.chmod(FILE_MODE)
    temporary.rename(path)
    sync_directory(path.parent)


def put_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically."""
    temporary = path.with_name(TEMPORARY + path.name)
    temporary.write_bytes(data)
    put(path, temporary)


def remove(*paths: Path) -> None:
    """Remove files that may not exist."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def try_lock(descriptor: int) -> bool:
    """Lock an open file; False: another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
