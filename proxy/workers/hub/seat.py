"""Only one hub writes the fleet's cells of a segment: the newest one, as soon as the one before has stopped."""

from __future__ import annotations

import asyncio
import fcntl
import secrets
from typing import Final

from proxy.shared_usage.file_lock import HUB_AT
from proxy.shared_usage.segment import FLEET_HUB_AT, Segment

POLL_S: Final = 0.02


class Seat:
    """This process's claim to be the hub of a segment. The kernel releases the lock when its holder ends."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._number = secrets.randbits(62) + 1

    async def take(self) -> None:
        """Let the present hub stop, and wait until it has."""
        self._segment.words[FLEET_HUB_AT] = self._number
        while True:
            try:
                fcntl.lockf(self._segment.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, HUB_AT)
            except (BlockingIOError, PermissionError):
                await asyncio.sleep(POLL_S)
            else:
                return

    async def until_lost(self) -> None:
        """Wait until another process wants to be the hub."""
        while self._segment.words[FLEET_HUB_AT] == self._number:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(POLL_S)
