"""Quotas from a file that people edit: read whole, checked whole, and put in place whole or not at all."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from proxy import log
from proxy.config_problem import ConfigProblems
from proxy.config_read import read_bounded
from proxy.quota_source.table import QuotaContent, QuotaTable, empty_table, read_quotas
from proxy.status import SourceStatus

QUOTA_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
POLL_SECONDS: Final = 1.0
SMALL_FILE_BYTES: Final = 64 * 1024
"""Up to this size a file is read at every poll, since an edit in place may keep its size and time."""
PROBLEMS_LOGGED_MAX: Final = 8
SETTLE_SECONDS: Final = 0.05
"""Who writes in place empties the file first: what is read holds only if it is the same this much later."""
SETTLE_TRIES_MAX: Final = 40


class _Seen(NamedTuple):
    """What a poll compares. Kubernetes swaps symlinks, so path and time alone do not tell one file from another."""

    stat: tuple[int, int, int]
    digest: bytes


class _Reading(NamedTuple):
    """What one look at the file found. `content` is None when its bytes are those already in place."""

    seen: _Seen
    content: QuotaContent | None


async def _settle() -> None:
    await asyncio.sleep(SETTLE_SECONDS)


def read_quota_file(path: Path) -> QuotaContent:
    """Return the quotas in the file at `path`.

    Raises:
        ConfigProblems: it cannot be read, or not all of it is right.
    """
    return read_quotas(read_bounded(path, QUOTA_FILE_BYTES_MAX), str(path))


class FileQuotaSource:
    """Keeps the table that the file last held rightly, and hands on each new one.

    Whatever happens to the file, the last good table stays; `status` says since when, and why.
    """

    def __init__(
        self,
        path: Path,
        on_table: Callable[[QuotaTable], None],
        *,
        now_ms: Callable[[], int],
        wall_time_s: Callable[[], float],
        on_connection_rates: Callable[[Mapping[str, int]], None] = lambda _: None,
        pause: Callable[[], Awaitable[None]] = _settle,
    ) -> None:
        """`pause` is waited for between two looks at a file that changed."""
        self.path = path
        self.table: QuotaTable = empty_table()
        self._on_table = on_table
        self._on_connection_rates = on_connection_rates
        self._now_ms = now_ms
        self._wall_time_s = wall_time_s
        self._pause = pause
        self._seen: _Seen | None = None
        self._rejected: _Seen | None = None
        self._lines: tuple[str, ...] = ()
        self._entries = 0
        self._last_success_s = 0.0
        self._last_success_ms = 0
        self._busy = asyncio.Lock()

    @property
    def status(self) -> SourceStatus:
        """How it stands, for metrics and readiness."""
        return SourceStatus(
            f"file:{self.path}", self._entries, self._last_success_s, self._last_success_ms, self._lines[0] if self._lines else None
        )

    async def start(self) -> None:
        """Read the file for the first time.

        Raises:
            ConfigProblems: then there is nothing to start with.
        """
        reading = await asyncio.to_thread(self._look, always=True)
        self._accept(reading)

    async def reload(self) -> bool:
        """Look at the file now, whatever it looks like from outside; True when what it holds is in place."""
        return await self._refresh(always=True)

    async def poll_forever(self) -> None:
        """Look every second until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.poll()

    async def poll(self) -> bool:
        """Look once; True when what the file holds is in place."""
        return await self._refresh(always=False)

    async def _refresh(self, *, always: bool) -> bool:
        async with self._busy:
            try:
                reading = await self._settled(await asyncio.to_thread(self._look, always=always))
            except ConfigProblems as problems:
                self._reject(problems)
                return False
            if reading is not None:
                self._accept(reading)
            return not self._lines

    async def _settled(self, reading: _Reading | None) -> _Reading | None:
        """Return what the file holds when it is no longer being written."""
        for _ in range(SETTLE_TRIES_MAX):
            if reading is None or reading.content is None:
                break
            await self._pause()
            if await asyncio.to_thread(self._digest) == reading.seen.digest:
                break
            reading = await asyncio.to_thread(self._look, always=True)
        return reading

    def _digest(self) -> bytes:
        return hashlib.sha256(read_bounded(self.path, QUOTA_FILE_BYTES_MAX)).digest()

    def _look(self, *, always: bool) -> _Reading | None:
        """Return what is new, or None when nothing is; runs in a thread and changes nothing but what was rejected.

        Raises:
            ConfigProblems: the file cannot be used.
        """
        stat = self._stat()
        last = self._rejected or self._seen
        if not always and last is not None and stat == last.stat and stat[0] > SMALL_FILE_BYTES:
            return None if last is self._rejected else _Reading(last, None)
        data = read_bounded(self.path, QUOTA_FILE_BYTES_MAX)
        seen = _Seen(stat, hashlib.sha256(data).digest())
        if self._rejected is not None and seen.digest == self._rejected.digest and not always:
            return None
        if self._seen is not None and seen.digest == self._seen.digest:
            return _Reading(seen, None)
        self._rejected = seen
        return _Reading(seen, read_quotas(data, str(self.path)))

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self.path.stat()
        except OSError:
            return (-1, 0, 0)  # read_bounded says why
        return (stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def _accept(self, reading: _Reading | None) -> None:
        if reading is None:
            return
        self._seen, self._rejected = reading.seen, None
        self._last_success_s, self._last_success_ms = self._wall_time_s(), self._now_ms()
        content = reading.content
        if content is not None:
            self.table = content.table
            self._entries = content.entities
            self._on_table(content.table)
            self._on_connection_rates(content.connection_rates)
        if content is not None or self._lines:
            log.info("quotas_loaded", source=str(self.path), entries=self._entries)
        self._lines = ()

    def _reject(self, problems: ConfigProblems) -> None:
        lines = tuple(problems.lines())
        if lines != self._lines:  # a file that stays wrong is told once
            for line in lines[:PROBLEMS_LOGGED_MAX]:
                log.warning("quotas_rejected", source=str(self.path), problem=line, kept_entries=self._entries)
        self._lines = lines
