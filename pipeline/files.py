"""Writes files atomically: a file appears as a whole or not at all."""

import errno
import os
from pathlib import Path

from pipeline.errors import BadInputError


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` in one step; missing directories are made.

    Raises:
        OSError: it cannot be written, or is there and no file; then nothing is left behind.
    """
    if path.exists() and not path.is_file():  # a rename would put a file in the place of a device
        raise OSError(errno.EEXIST, "is there and no file; name another", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def check_readable(directory: Path) -> None:
    """Look into every directory below one: to a search by name, what may not be read is not there.

    Raises:
        BadInputError: one cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise BadInputError(
            f"{error.filename}: cannot be read ({error.strerror}), so what is in it is not known; run this as its owner, or let it be read"
        ) from error

    if directory.exists():
        for _ in os.walk(directory, onerror=refuse):
            pass


def check_directory(path: Path) -> None:
    """Look whether a directory can be written to, or made, before hours of work are lost over it.

    Raises:
        BadInputError: it cannot.
    """
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise BadInputError(f"{path}: cannot be written, since {there} is not a directory that may be; name another")
