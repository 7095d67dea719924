"""Writes files atomically and checks directories. A reader sees a whole file or no file."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import BadInputError
from pipeline.storage.paths import AnyPath, StorePath


def write_whole(path: AnyPath, text: str) -> None:
    """Write `text` to `path` with an atomic rename; create missing directories.

    Raises:
        OSError: the file cannot be written, or `path` exists and is not a regular file. Nothing is left behind.
        BadInputError: an object store refuses, or cannot be reached.
    """
    write_bytes(path, text.encode())


def write_bytes(path: AnyPath, data: bytes) -> None:
    """Write `data` to `path` in the same way.

    Raises:
        OSError, BadInputError: as for `write_whole`.
    """
    if isinstance(path, StorePath):
        path.write_bytes(data)
        return
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path` that becomes `path` when the block ends; create missing directories.

    Raises:
        OSError: the file cannot be written, or `path` exists and is not a regular file. Nothing is left behind.
    """
    if path.exists() and not path.is_file():  # a rename would replace a device by a file
        raise OSError(errno.EEXIST, "is there and no file; name another", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_readable(directory: Path) -> None:
    """Check that every directory below `directory` can be read. A search by name silently skips directories that it may not read.

    Raises:
        BadInputError: a directory cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise BadInputError(
            f"{error.filename}: cannot be read ({error.strerror}); run this command as its owner, or make it readable"
        ) from error

    if directory.exists():
        for _ in os.walk(directory, onerror=refuse):
            pass


def check_new(option: str, path: AnyPath) -> None:
    """Check, before a long computation, that a directory does not exist yet, and that a local one can be created.

    Args:
        option: the option that names it.
        path: the directory.

    Raises:
        BadInputError: it exists, or cannot be created.
    """
    if path.exists() if isinstance(path, Path) else path.is_dir():
        raise BadInputError(f"{option} {path}: exists already; name a new directory, or remove this one")
    if isinstance(path, Path):
        check_directory(path.parent)


def check_directory(path: Path) -> None:
    """Check, before a long computation, that a directory can be written to or created.

    Raises:
        BadInputError: it can be neither.
    """
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise BadInputError(f"{path}: cannot be written, since {there} is not a directory; name another")
