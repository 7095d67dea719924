"""Opens, repairs, writes and syncs the file of the audit log. Blocking; `AuditLog` calls it from a thread."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from proxy.config.problem import ConfigProblems, Problem
from proxy.quota_admin.audit.audit import AuditUnavailable
from proxy.quota_admin.audit.chain import START, Link, link_of, read_line

BLOCK_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
MODE: Final = 0o600
OPEN_TO_OTHERS: Final = 0o027
"""Permission bits that the file must not have: its group may read it, others must have no access."""


class AuditFile:
    """A file that is kept open and locked; lines are only appended.

    Attributes:
        last: end of the file's chain.
        mended: event about a repair at the opening; None: there was no repair.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            ConfigProblems: the file cannot be used.
        """
        self.path = path
        self.last = START
        self.mended: dict[str, Any] | None = None
        self._size = 0
        self._open()

    def append(self, lines: bytes, last: Link) -> None:
        """Append complete lines, with `last` as the new end of the chain; the lines are on the disk when this returns.

        Raises:
            AuditUnavailable: the lines could not be written; the file has no part of them.
        """
        try:
            if self._was_moved():
                self._reopen()
            os.ftruncate(self._file, self._size)  # the remains of a failed write
            written = 0
            while written < len(lines):
                written += os.write(self._file, lines[written:])
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            reason = error.strerror or str(error)
            raise AuditUnavailable(
                f"audit.file: {self.path} cannot be written: {reason}; free disk space or give Sluice write access"
            ) from None
        self._size += len(lines)
        self.last = last

    def lines_back(self) -> Iterator[bytes]:
        """Yield the current lines, the last one first, without line ends."""
        return lines_back(self._file, self._size)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines in order."""
        with self.path.open("rb") as file:
            yield from lines_of(file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        except OSError as error:
            raise _problem(self.path, f"cannot be opened: {error.strerror}", "name a file that Sluice may write") from None
        try:
            self._check()
            self._truncate_incomplete_line()
            _sync_folder(self.path)
        except BaseException:
            os.close(self._file)
            raise

    def _check(self) -> None:
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            raise _problem(self.path, "is no file", "name a file")
        if found.st_mode & OPEN_TO_OTHERS:
            raise _problem(self.path, f"is accessible to other users (mode {stat.S_IMODE(found.st_mode):04o})", "run chmod 0640 on it")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _problem(self.path, "is written by another process", "give each Sluice a file of its own") from None

    def _truncate_incomplete_line(self) -> None:
        """Find the end of the chain, and remove an incomplete last line; the change of this line never got a response."""
        size = os.fstat(self._file).st_size
        torn = next(iter(_pieces_back(self._file, size)), b"") if size else b""
        self._size = size - len(torn)
        line = next(lines_back(self._file, self._size), None)
        if line is not None:
            fields = read_line(line)
            if fields is None:
                raise _problem(self.path, "does not end with a line of an audit log", "move it away, or name another file")
            self.last = link_of(fields["seq"], line)
        if torn:
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            self.mended = {"event": "mended", "cut_bytes": len(torn), "cut_sha256": hashlib.sha256(torn).hexdigest()}

    def _was_moved(self) -> bool:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return True
        own = os.fstat(self._file)
        return (found.st_ino, found.st_dev) != (own.st_ino, own.st_dev)

    def _reopen(self) -> None:
        """Open a new file of the same name after the old one was moved away; its lines continue the chain."""
        last, old, size, self.last = self.last, self._file, self._size, START
        try:
            self._open()
        except ConfigProblems as problems:
            self._file, self._size, self.last = old, size, last
            raise OSError(0, problems.lines()[0]) from None
        if self.last != START:
            os.close(self._file)
            self._file, self._size, self.last = old, size, last
            raise OSError(0, "another audit log is in its place")
        self.last = last
        os.close(old)


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without line ends; none is longer than `LINE_BYTES_MAX`."""
    while line := file.readline(LINE_BYTES_MAX):
        yield line.removesuffix(b"\n")


def lines_back(file: int, size: int) -> Iterator[bytes]:
    """Yield the complete lines in the first `size` bytes of a file, the last one first."""
    pieces = _pieces_back(file, size)
    next(pieces, None)
    yield from pieces


def _pieces_back(file: int, size: int) -> Iterator[bytes]:
    """Yield the bytes between line ends, from the end of the file on; first those after the last line end."""
    rest = b""
    while size > 0:
        at = max(0, size - BLOCK_BYTES)
        rest = os.pread(file, size - at, at) + rest
        size = at
        *pieces, first = reversed(rest.split(b"\n"))
        yield from pieces
        rest = first
        if len(rest) > LINE_BYTES_MAX:
            return
    yield rest


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _problem(path: Path, message: str, remedy: str) -> ConfigProblems:
    return ConfigProblems([Problem(str(path), "", f"the audit log {message}", remedy)])
