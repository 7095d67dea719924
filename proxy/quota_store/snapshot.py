"""The last valid content in a quota file, for a start while the store does not respond."""

import asyncio
from pathlib import Path
from typing import Final

from proxy.quota_store.file.quota_text import QuotaText, altered
from proxy.quota_store.file.store import read_quota_file
from proxy.quota_store.file.write import write_whole
from proxy.quota_store.store import EMPTY, StoreContent
from proxy.telemetry import log

WAIT_S: Final = 10.0
"""Time that a start waits for the store before it uses the snapshot."""
_HEAD: Final = "# Written by Sluice: what its store held last, for a start while that does not answer. Edits are lost.\n\n"


class Snapshot:
    """Writes content to the file at `path` in the background, one write at a time."""

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        self.path = path
        self.wait_s = wait_s
        self._wanted: StoreContent | None = None
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> StoreContent:
        """Return the content of the file.

        Raises:
            ConfigProblems: the file is missing or invalid.
        """
        return read_quota_file(self.path, any_sign=True)

    def keep(self, content: StoreContent) -> None:
        """Write `content` in the background; a later call before the write replaces it."""
        self._wanted = content
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def close(self) -> None:
        """Wait until the newest content is written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        while self._wanted is not None:
            content, self._wanted = self._wanted, None
            try:
                await asyncio.to_thread(self._put, content)
            except OSError as error:
                log.warning("snapshot_not_written", limit_key="snapshot_not_written", path=str(self.path), problem=error.strerror)

    def _put(self, content: StoreContent) -> None:
        text = str(altered(QuotaText(_HEAD, {}), EMPTY, content))
        if not self.path.exists():
            self.path.touch(0o600)
        write_whole(self.path, text.encode())
