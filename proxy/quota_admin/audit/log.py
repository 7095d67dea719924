"""The audit log on the event loop: a thread writes lines one by one, and a line is on the disk before its caller continues."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from proxy.quota_admin.audit.audit import AuditUnavailable, Event
from proxy.quota_admin.audit.chain import START, Link, Verdict, append_line, read_line, verify
from proxy.quota_admin.audit.file import AuditFile

KEPT_LINES_MAX: Final = 10_000
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum number of lines in memory, without a file."""


class _Keeper(Protocol):
    """Stores lines; its methods block."""

    last: Link

    def append(self, lines: bytes, last: Link) -> None:
        """Store complete lines, with `last` as the new end of the chain."""

    def lines_back(self) -> Iterator[bytes]:
        """Yield the lines, the last one first."""

    def lines(self) -> Iterator[bytes]:
        """Yield the lines in order."""

    def close(self) -> None:
        """Close the storage."""


class _Memory:
    """Stores the last lines in memory."""

    def __init__(self) -> None:
        self.last = START
        self._lines: deque[bytes] = deque()
        self._bytes = 0

    def append(self, lines: bytes, last: Link) -> None:
        self._lines.extend(lines.splitlines())
        self._bytes += len(lines)
        while len(self._lines) > KEPT_LINES_MAX or (self._bytes > KEPT_BYTES_MAX and len(self._lines) > 1):
            self._bytes -= len(self._lines.popleft()) + 1
        self.last = last

    def lines_back(self) -> Iterator[bytes]:
        return reversed(self._lines.copy())

    def lines(self) -> Iterator[bytes]:
        return iter(self._lines.copy())

    def close(self) -> None:
        pass


class AuditLog:
    """Stores changes in a file, or without a file the newest ones in memory. Lines wait until the file is open.

    Attributes:
        lines: number of lines written.
        error: why the last line could not be written; None: it was written.
    """

    def __init__(self, path: Path | None, *, wall_time_s: Callable[[], float]) -> None:
        self._wall_time_s = wall_time_s
        self._one_at_a_time = asyncio.Lock()
        self._begin: list[dict[str, Any]] = []
        self._keeper: _Keeper = _Memory()
        self.path = path
        self.lines = 0
        self.error: str | None = None
        self._is_open = asyncio.Event()
        if path is None:
            self._is_open.set()

    def open(self) -> None:
        """Open or create the file; do nothing if no file is configured.

        Raises:
            ConfigProblems: the file cannot be used.
        """
        if self.path is not None:
            self._keeper = file = AuditFile(self.path)
            self._begin = [file.mended] if file.mended is not None else []
        self._is_open.set()

    async def release(self) -> None:
        """Close the file, so that another process can open it. Lines wait until `open`."""
        if self.path is not None and self._is_open.is_set():
            self._is_open.clear()
            async with self._one_at_a_time:
                self._keeper.close()

    async def append(self, events: Sequence[Event]) -> int:
        """Write lines; return the number of the first one after all are on the disk.

        Raises:
            AuditUnavailable: the lines could not be written.
        """
        await self._is_open.wait()
        async with self._one_at_a_time:
            first = self._keeper.last.seq + len(self._begin) + 1
            events = [*self._begin, *events]
            work = asyncio.ensure_future(asyncio.to_thread(self._append, events))
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])  # no other task may write before the thread has finished
                raise
            except AuditUnavailable as error:
                self.error = str(error)
                raise
            self.error, self._begin = None, []
            self.lines += len(events)
            return first

    async def history(self, *, limit: int, before: int | None = None, after: int = 0) -> list[dict[str, Any]]:
        """Return lines, the last one first: at most `limit`, with numbers below `before` and above `after`."""
        lines = await self.history_lines(limit=limit, before=before, after=after)
        return [json.loads(line) for line in lines]

    async def history_lines(self, *, limit: int, before: int | None = None, after: int = 0) -> list[bytes]:
        """Return the same lines as bytes, not decoded."""
        return await asyncio.to_thread(lambda: list(history(self._keeper.lines_back(), limit=limit, before=before, after=after)))

    async def verify(self) -> Verdict:
        """Check the whole chain; the time is proportional to its length."""
        return await asyncio.to_thread(lambda: verify(self._keeper.lines()))

    def close(self) -> None:
        """Close the file finally. Waiting lines are dropped: another process has the file, and writes them."""
        if self._is_open.is_set():
            self._keeper.close()
        self._keeper = _Memory()
        self._is_open.set()

    def _append(self, events: Sequence[Event]) -> None:
        link, lines = self._keeper.last, []
        now_s = self._wall_time_s()
        for event in events:
            line, link = append_line(link, event, now_s)
            lines.append(line + b"\n")
        self._keeper.append(b"".join(lines), link)


def history(lines_back: Iterator[bytes], *, limit: int, before: int | None = None, after: int = 0) -> Iterator[bytes]:
    """Yield the selected lines, the last one first; invalid lines are skipped."""
    left = limit
    for line in lines_back:
        fields = read_line(line)
        if fields is None or (before is not None and fields["seq"] >= before):
            continue
        if left <= 0 or fields["seq"] <= after:
            return
        left -= 1
        yield line
