"""Replaces a file atomically: readers see the old or the new content, also after a power failure."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from proxy.base.files import sync_directory

WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def writable_by_others(path: Path) -> tuple[str, str] | None:
    """Return problem and remedy if others than the owner may write the file, since they could set quotas without permission; else None."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None  # the reader of the file reports the reason
    if not mode & WRITABLE_BY_OTHERS:
        return None
    return "may be written by its group or by all users, who could set quotas without permission", f"run `chmod go-w {path}`"


def in_locked_folder(path: Path) -> tuple[str, str] | None:
    """Return problem and remedy if the file cannot be replaced, because Sluice may not write to its folder; else None."""
    folder = path.resolve().parent
    if os.access(folder, os.W_OK | os.X_OK):
        return None
    return (
        f"cannot be replaced, although quotas may be changed: Sluice may not write to {folder}",
        'let it write there, or let nobody change quotas (quota_admin.authority = "nobody", no token with role = "write")',
    )


def write_whole(path: Path, data: bytes) -> None:
    """Replace the content of the file at `path` with `data`; owner and mode stay. A symlink stays, and its target is replaced.

    Raises:
        OSError: the file is unchanged.
    """
    target = path.resolve()
    old = target.stat()
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()  # left by a process that had this id and was killed
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
