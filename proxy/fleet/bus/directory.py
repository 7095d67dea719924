"""The bus in a folder, for members on one machine: they append to one log of files, one after the other, and read it.

A lock of the folder gives the log its order, and the clock of the machine its times. The kernel releases the lock of a process that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from proxy.base.files import try_lock
from proxy.config.sections.fleet import directory_problem
from proxy.fleet.bus.bus import BusError, Received, Sent
from proxy.fleet.bus.log_file import DamagedError, LogFile, bases_in, name_of, position_behind

POLL_S: Final = 0.01
"""Interval in which a member looks for messages."""
FOLLOW_POLLS: Final = 4
"""Number of looks without a message after which a member looks for the next file, which costs more."""
LOCK_S: Final = 5.0
"""Time limit for the lock, which a member holds for one write."""
LOCK_POLL_S: Final = 0.001
RETENTION_MS: Final = 60_000
"""Age of the last message of a file after which the file is deleted: a member that starts reads this part of the log."""
FILE_MS: Final = 30_000
FILE_BYTES: Final = 16 * 1024 * 1024
"""Time and size after which a new file begins."""


class DirectoryBus:
    """One member's connection to the bus in a folder; see `Bus`.

    Args:
        directory: the folder, which only its owner may access.
        time_ms: the clock that all members share.
    """

    def __init__(self, directory: Path, time_ms: Callable[[], int]) -> None:
        self.name = f"directory:{directory}"
        self._directory = directory
        self._time_ms = time_ms
        self._descriptor: int | None = None
        self._file: LogFile | None = None
        self._position = 0  # of the next message

    async def start(self) -> None:
        """Open the log at its end, or create it. Files that are damaged, for example by a crash of the machine, are deleted.

        Raises:
            BusError: the folder is missing, not private or not writable.
        """
        assert self._descriptor is None, "started twice"
        if (found := directory_problem(self._directory)) is not None:
            raise BusError("; ".join(found))
        try:
            with _problems():
                self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                damaged = [base for base in bases_in(self._descriptor) if _is_damaged(self._descriptor, base)]
            async with self._locked() as folder:
                for base in damaged:
                    if _is_damaged(folder, base):  # another member has not replaced it
                        os.unlink(name_of(base), dir_fd=folder)
                newest = _file_to_append(folder, self._time_ms())
                self._go_to(newest, newest.state()[1])
        except BaseException:
            await self.stop()
            raise

    async def send(self, data: bytes) -> Sent:
        """Append one message.

        Raises:
            BusError: it was not appended, for example because the disk is full.
        """
        async with self._locked() as folder:
            now_ms = self._time_ms()
            with _file_to_append(folder, now_ms) as file:
                return Sent(file.append(now_ms, data), now_ms)

    async def read_from(self, time_ms: int) -> int:
        """Let `receive` continue at the first message of this time or later, or at the end of the log; return the position.

        Raises:
            BusError: the log cannot be read.
        """
        with _problems():
            folder = self._folder()
            for base in bases_in(folder):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile, because it is old
                    file = LogFile(folder, base)
                    self._go_to(file, file.first)
                    for message in file.read(file.first):
                        self._position = message.position
                        if message.time_ms >= time_ms:
                            return self._position
                        self._position = position_behind(message)
            return self._position

    async def receive(self) -> Sequence[Received]:
        """Return the next messages, at least one.

        Raises:
            BusError: messages were lost, which stays so until `read_from`; or the log cannot be read.
        """
        with _problems():
            polls = 0
            while not (messages := self._next(follows=polls % FOLLOW_POLLS == 0)):
                await asyncio.sleep(POLL_S)
                polls += 1
        return messages

    async def stop(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._file = self._descriptor = None

    def _folder(self) -> int:
        if self._descriptor is None:
            raise BusError("is not started")
        return self._descriptor

    def _go_to(self, file: LogFile, position: int) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._position = file, position

    def _next(self, *, follows: bool) -> list[Received]:
        """Return the messages that can be read now, with `follows` also those of the next file."""
        folder, file = self._folder(), self._file
        assert file is not None
        while not (messages := file.read(self._position)):
            if not follows:
                return []
            try:
                following = LogFile(folder, self._position)
            except FileNotFoundError:
                if file.is_deleted:
                    raise BusError("messages were lost: the log was deleted") from None
                return []
            file = following
            self._go_to(file, file.first)
        self._position = position_behind(messages[-1])
        return messages

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[int]:
        """Let no other member write during the block, which gets the folder, and must not wait for anything."""
        with _problems():
            async with asyncio.timeout(LOCK_S):
                while not try_lock(self._folder()):  # noqa: ASYNC110 - another process has it
                    await asyncio.sleep(LOCK_POLL_S)
            folder = self._folder()
            try:
                yield folder
            finally:
                fcntl.flock(folder, fcntl.LOCK_UN)


def _file_to_append(folder: int, now_ms: int) -> LogFile:
    """Return the newest file, or a new one if it is full or old."""
    bases = bases_in(folder)
    if not bases:
        return LogFile.create(folder, 0, now_ms)
    with LogFile(folder, bases[-1]) as newest:
        begin_ms, end = newest.state()
    if end - bases[-1] < FILE_BYTES and abs(now_ms - begin_ms) < FILE_MS:
        return LogFile(folder, bases[-1])
    _delete_old(folder, bases, now_ms)
    return LogFile.create(folder, end, now_ms)


def _delete_old(folder: int, bases: Sequence[int], now_ms: int) -> None:
    for base, following in pairwise(bases):
        with LogFile(folder, following) as file:
            if abs(now_ms - file.state()[0]) >= RETENTION_MS:
                os.unlink(name_of(base), dir_fd=folder)


def _is_damaged(folder: int, base: int) -> bool:
    try:
        with LogFile(folder, base) as file:
            file.read(file.first)
    except FileNotFoundError:
        return False
    except DamagedError:
        return True
    return False


@contextlib.contextmanager
def _problems() -> Iterator[None]:
    """Turn errors of the system into a BusError."""
    try:
        yield
    except TimeoutError as error:
        raise BusError(f"another member has held the lock of the folder for {LOCK_S:g} s") from error
    except OSError as error:
        raise BusError(f"cannot be used: {error.strerror}") from error
