"""Replaces a file as a whole: readers see the old one or the new one, also after a power cut."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from proxy.base.files import sync_directory

LOOSE: Final = stat.S_IWGRP | stat.S_IWOTH


def loosely_kept(path: Path) -> tuple[str, str] | None:
    """Name the problem and the remedy where others than its owner may write the file: they could set quotas without the right to."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None  # who reads it says why
    if not mode & LOOSE:
        return None
    return "may be written by its group or by all users, who could set quotas without permission", f"run `chmod go-w {path}`"


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` in the place of the file at `path`, with its owner and mode; behind a symlink, of the file that it points to.

    Raises:
        OSError: the file is as it was.
    """
    target = path.resolve()
    old = target.stat()
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()  # of a process that had this id and was killed
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            os.fsync(descriptor)
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync_directory(target.parent)
