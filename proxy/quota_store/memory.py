"""The store in memory: its quotas are lost when the process ends."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from proxy.quota_store.store import ContentHolder, Decide, OnContent
from proxy.telemetry.status import SourceStatus

T = TypeVar("T")


class MemoryStore(ContentHolder):
    """The store for quotas set through the API if no other store is configured. Only this process writes it."""

    def __init__(self, on_content: OnContent, *, now_ms: Callable[[], int], wall_time_s: Callable[[], float]) -> None:
        super().__init__(on_content)
        self._now_ms = now_ms
        self._wall_time_s = wall_time_s

    @property
    def status(self) -> SourceStatus:
        """State of the store for metrics and readiness: always up to date."""
        return SourceStatus("memory", len(self.content.quotas), self._wall_time_s(), self._now_ms(), None)

    async def start(self) -> None:
        """Do nothing: the store starts empty."""
        self._on_content(self.content, "start")

    async def reload(self) -> bool:
        """Return True: no other program changes the content."""
        return True

    async def follow_forever(self) -> None:
        """Wait until cancelled: no other program changes the content."""
        await asyncio.Event().wait()

    async def alter(self, decide: Decide[T]) -> T:
        """Make the changes of `decide`; return its answer."""
        answer, changes = decide(self.content)
        self.make(changes)
        return answer

    async def close(self) -> None:
        """Do nothing: the store holds no resources."""
