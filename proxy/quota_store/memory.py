"""A store in memory: its quotas end with the process."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from proxy.quota_store.store import Decide, Held, OnContent
from proxy.telemetry.status import SourceStatus

T = TypeVar("T")


class MemoryStore(Held):
    """The store that is used where quotas are set through the API and no other store is configured. Only this process writes it."""

    def __init__(self, on_content: OnContent, *, now_ms: Callable[[], int], wall_time_s: Callable[[], float]) -> None:
        super().__init__(on_content)
        self._now_ms = now_ms
        self._wall_time_s = wall_time_s

    @property
    def status(self) -> SourceStatus:
        """Always fresh."""
        return SourceStatus("memory", len(self.content.quotas), self._wall_time_s(), self._now_ms(), None)

    async def start(self) -> None:
        """Begin with nothing."""
        self._on_content(self.content, "start")

    async def reload(self) -> bool:
        """Nothing can have come."""
        return True

    async def follow_forever(self) -> None:
        """Nothing will come."""
        await asyncio.Event().wait()

    async def alter(self, decide: Decide[T]) -> T:
        """Make the changes that `decide` wants."""
        answer, changes = decide(self.content)
        self.make(changes)
        return answer

    async def close(self) -> None:
        """Nothing to let go of."""
