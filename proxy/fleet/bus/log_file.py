"""One file of a log in a folder: a head with the end of the records, and the records.

A writer moves the end after it has written a record. So a record counts whole or not at all: what a writer left that died, or whose disk
was full, lies behind the end, and the next writer overwrites it.
"""

from __future__ import annotations

import os
import struct
import zlib
from types import TracebackType
from typing import Final, Self

from proxy.fleet.bus.bus import BusError, Received

FILE_MODE: Final = 0o600
_SUFFIX: Final = ".log"
_NEW: Final = "new"
"""Name of a file until its head is written."""
_MAGIC: Final = b"sluice\x00\x01"
_HEAD: Final = struct.Struct("<8sqqq")
"""Format, time of the first record in ms, end of the records, and the end with all bits inverted, which shows a read beside a write."""
_RECORD: Final = struct.Struct("<IqI")
"""Bytes of the message, time in ms, and the CRC-32 of these two and the message."""
_READS_MAX: Final = 100


class DamagedError(BusError):
    """The content is not that of a log, for example after a crash of the machine."""


class LogFile:
    """An open file of the log. A position is the number of bytes before it in the log. A context manager that closes the file.

    Args:
        folder: descriptor of the folder.
        base: position of the first byte of the file; it is the name of the file.

    Raises:
        FileNotFoundError: there is no such file.
    """

    def __init__(self, folder: int, base: int) -> None:
        self.base = base
        self.first = base + _HEAD.size
        self._descriptor = os.open(name_of(base), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)

    @classmethod
    def create(cls, folder: int, base: int, time_ms: int) -> Self:
        """Create a file whose first record is of this time. The caller is the only writer."""
        descriptor = os.open(_NEW, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE, dir_fd=folder)
        try:
            _write(descriptor, _head(time_ms, _HEAD.size), 0)
        finally:
            os.close(descriptor)
        os.rename(_NEW, name_of(base), src_dir_fd=folder, dst_dir_fd=folder)
        return cls(folder, base)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more."""
        return os.fstat(self._descriptor).st_nlink == 0

    def state(self) -> tuple[int, int]:
        """Return the time of the first record in ms, and the position behind the last one.

        Raises:
            DamagedError: the file has no valid head.
        """
        for _ in range(_READS_MAX):
            content = os.pread(self._descriptor, _HEAD.size, 0)
            magic, begin_ms, end, inverted = _HEAD.unpack(content.ljust(_HEAD.size))
            if magic == _MAGIC and end == ~inverted:
                return begin_ms, self.base + end
        raise DamagedError(f"{name_of(self.base)} is not a file of the log, or damaged")

    def append(self, time_ms: int, data: bytes) -> int:
        """Append a message, and return its position. The caller is the only writer.

        Raises:
            OSError: the message was not written.
        """
        begin_ms, position = self.state()
        record = _RECORD.pack(len(data), time_ms, _checksum(time_ms, data)) + data
        _write(self._descriptor, record, position - self.base)
        _write(self._descriptor, _head(begin_ms, position + len(record) - self.base), 0)
        return position

    def read(self, position: int) -> list[Received]:
        """Return the messages from a position on.

        Raises:
            DamagedError: something else is there.
        """
        end = self.state()[1]
        content = os.pread(self._descriptor, end - position, position - self.base) if end > position else b""
        messages, at = [], 0
        while at < len(content):
            size, time_ms, checksum = _RECORD.unpack_from(content.ljust(at + _RECORD.size), at)
            data = content[at + _RECORD.size : at + _RECORD.size + size]
            if checksum != _checksum(time_ms, data):
                raise DamagedError(f"{name_of(self.base)} is damaged at byte {position - self.base + at}")
            messages.append(Received(position + at, time_ms, data))
            at += _RECORD.size + size
        return messages


def name_of(base: int) -> str:
    """Return the name of the file that begins at this position."""
    return f"{base:020d}{_SUFFIX}"


def bases_in(folder: int) -> list[int]:
    """Return the positions at which the files in a folder begin, in their order."""
    stems = (name.removesuffix(_SUFFIX) for name in os.listdir(folder) if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def position_behind(message: Received) -> int:
    """Return the position behind a message."""
    return message.position + _RECORD.size + len(message.data)


def _head(begin_ms: int, end: int) -> bytes:
    return _HEAD.pack(_MAGIC, begin_ms, end, ~end)


def _checksum(time_ms: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(struct.pack("<Iq", len(data), time_ms)))


def _write(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count
