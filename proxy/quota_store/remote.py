"""The event loop's side of a store on other machines, which a thread reads and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import EMPTY, Decide, OnContent, Origin, StoreChange, StoreContent, StoreUnavailable
from proxy.telemetry import log
from proxy.telemetry.status import SourceStatus

T = TypeVar("T")

ALTER_S: Final = 45.0
"""A hang guard: after it the outcome is reported as unknown."""
LOOK_S: Final = 20.0

Judge = Callable[[StoreContent], tuple[Any, Sequence[StoreChange]]]
Answered = Callable[[Any, Exception | None], None]


class StoreState(NamedTuple):
    """The state of the store, as the thread sees it."""

    content: StoreContent
    origin: Origin
    error: str | None
    """Why nothing can be read, or None: everything that is there is known."""
    rejected: int
    problems: list[str]
    """Some of what makes no sense there."""


class Worker(Protocol):
    """The thread. The event loop never waits for it."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End soon."""

    def look(self, done: Callable[[], None]) -> None:
        """Read everything now; `done` is called on the thread."""

    def alter(self, decide: Judge, answered: Answered) -> None:
        """Make a change; `answered` is called on the thread, with an answer or a problem."""


class RemoteStore:
    """Keeps the last good content. Belongs to the loop that it is made on.

    Args:
        place: the name of the store in messages.
        on_content: called with each new content, on the loop's thread.
        snapshot: the last good content, for a start without the store; without a snapshot the start waits.
    """

    worker: Worker

    def __init__(
        self,
        place: str,
        on_content: OnContent,
        *,
        now_ms: Callable[[], int],
        wall_time_s: Callable[[], float],
        snapshot: Snapshot | None = None,
    ) -> None:
        self.content: StoreContent = EMPTY
        self.place = place
        self._on_content = on_content
        self._now_ms = now_ms
        self._wall_time_s = wall_time_s
        self._snapshot = snapshot
        self._loop = asyncio.get_running_loop()
        self._error: str | None = f"{place}: is not read yet"
        self._rejected = 0
        self._problems: list[str] = []
        self._last_success_s = 0.0
        self._last_success_ms = 0
        self._started = asyncio.Event()

    @property
    def status(self) -> SourceStatus:
        """How it stands, for metrics and readiness."""
        return SourceStatus(
            self.place, len(self.content.quotas), self._last_success_s, self._last_success_ms, self._error, rejected=self._rejected
        )

    async def start(self) -> None:
        """Read everything. Without a snapshot this waits until the store is there: no client is accepted without quotas.

        Raises:
            ConfigProblems: the store does not answer, and there is no snapshot that could be used.
        """
        self.worker.start()
        if self._snapshot is None:
            await self._started.wait()
            return
        try:
            await asyncio.wait_for(self._started.wait(), self._snapshot.wait_s)
        except TimeoutError:
            self.content = await asyncio.to_thread(self._snapshot.load)
            log.warning("quotas_from_snapshot", source=self.place, path=str(self._snapshot.path), entries=len(self.content.quotas))
            self._on_content(self.content, "start")
            self._started.set()

    async def reload(self) -> bool:
        """Read everything now; True when it was possible."""
        done = asyncio.Event()
        self.worker.look(lambda: self.call(done.set))
        try:
            await asyncio.wait_for(done.wait(), LOOK_S)
        except TimeoutError:
            return False
        return self._error is None

    async def follow_forever(self) -> None:
        """The thread follows."""
        await asyncio.Event().wait()

    async def alter(self, decide: Decide[T]) -> T:
        """Make the changes that `decide` wants.

        Raises:
            StoreUnavailable: they are not made, or the outcome is unknown.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        self.worker.alter(decide, lambda answer, problem: self.call(_settle, done, answer, problem))
        try:
            return await asyncio.wait_for(done, ALTER_S)
        except TimeoutError:
            line = f"{self.place}: no answer in {ALTER_S:.0f} s; whether the change was made shows when it answers again"
            raise StoreUnavailable(line, is_certain=False) from None

    async def close(self) -> None:
        """Leave the thread to itself; it ends soon."""
        self.worker.stop()
        if self._snapshot is not None:
            await self._snapshot.close()

    # --- from the thread

    def tell(self, worker: Worker, state: StoreState) -> None:
        """Take note of how it stands; from any thread."""
        self.call(self._arrived, worker, state)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have something done on the loop; from any thread."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed

    def _arrived(self, worker: Worker, state: StoreState) -> None:
        if worker is not self.worker:
            return
        self._tell_problems(state)
        if state.error is not None:
            return
        self._last_success_s, self._last_success_ms = self._wall_time_s(), self._now_ms()
        first = not self._started.is_set()
        if first or state.content != self.content:
            self.content = state.content
            self._on_content(state.content, "start" if first else state.origin)
            log.info("quotas_loaded", source=self.place, entries=len(state.content.quotas))
            if self._snapshot is not None:
                self._snapshot.keep(state.content)
        self._started.set()

    def _tell_problems(self, state: StoreState) -> None:
        if state.error != self._error and state.error is not None:
            log.warning("quotas_rejected", source=self.place, problem=state.error, kept_entries=len(self.content.quotas))
        for problem in state.problems:
            if problem not in self._problems:
                log.warning("quotas_rejected", source=self.place, problem=problem, kept_entries=len(self.content.quotas))
        self._error, self._rejected, self._problems = state.error, state.rejected, state.problems


def _settle(done: asyncio.Future[Any], answer: Any, problem: Exception | None) -> None:
    if done.done():
        return  # no caller waits any more
    if problem is None:
        done.set_result(answer)
    else:
        done.set_exception(problem)
