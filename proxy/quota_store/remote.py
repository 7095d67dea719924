"""The event loop's side of a remote store; a thread reads and writes the store."""

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
"""Time limit of an alteration; after it the outcome is reported as unknown."""
POLL_TIMEOUT_S: Final = 20.0

Judge = Callable[[StoreContent], tuple[Any, Sequence[StoreChange]]]
Answered = Callable[[Any, Exception | None], None]


class StoreState(NamedTuple):
    """The state of the store, as the thread reports it."""

    content: StoreContent
    origin: Origin
    error: str | None
    """Why the store cannot be read; None: the content is complete."""
    rejected: int
    problems: list[str]
    """Descriptions of some invalid entries."""


class Worker(Protocol):
    """The thread of a store. The event loop never blocks on it."""

    def start(self) -> None:
        """Start the thread."""

    def stop(self) -> None:
        """Request the end of the thread, without waiting."""

    def poll(self, done: Callable[[], None]) -> None:
        """Read the whole store now; `done` is called on the thread."""

    def alter(self, decide: Judge, answered: Answered) -> None:
        """Make the changes of `decide`; `answered` is called on the thread, with an answer or a problem."""


class RemoteStore:
    """Keeps the last valid content. It belongs to the event loop that runs when it is created.

    Args:
        place: name of the store in messages.
        on_content: called with each new content, on the loop's thread.
        now_ms: monotonic clock.
        wall_time_s: wall clock, seconds since the epoch.
        snapshot: file with the last valid content, for a start without the store; None: the start waits for the store.
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
        """State of the store for metrics and readiness."""
        return SourceStatus(
            self.place, len(self.content.quotas), self._last_success_s, self._last_success_ms, self._error, rejected=self._rejected
        )

    async def start(self) -> None:
        """Read the whole store. Without a snapshot, wait until the store responds, since no client is accepted without quotas.

        Raises:
            ConfigProblems: the store does not respond, and the snapshot cannot be used.
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
        """Read the whole store now; True: it was read."""
        done = asyncio.Event()
        self.worker.poll(lambda: self.call(done.set))
        try:
            await asyncio.wait_for(done.wait(), POLL_TIMEOUT_S)
        except TimeoutError:
            return False
        return self._error is None

    async def follow_forever(self) -> None:
        """Wait until cancelled: the thread follows the store."""
        await asyncio.Event().wait()

    async def alter(self, decide: Decide[T]) -> T:
        """Make the changes of `decide`; return its answer when they are made and in force here.

        Raises:
            StoreUnavailable: the changes are not made, or their outcome is unknown.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        self.worker.alter(decide, lambda answer, problem: self.call(_settle, done, answer, problem))
        try:
            return await asyncio.wait_for(done, ALTER_S)
        except TimeoutError:
            line = f"{self.place}: no answer in {ALTER_S:.0f} s; whether the change was made is known when it responds again"
            raise StoreUnavailable(line, is_certain=False) from None

    async def close(self) -> None:
        """Request the end of the thread, and wait for the snapshot to be written."""
        self.worker.stop()
        if self._snapshot is not None:
            await self._snapshot.close()

    # --- from the thread

    def report(self, worker: Worker, state: StoreState) -> None:
        """Report a new state of the store to the event loop; may be called on any thread."""
        self.call(self._arrived, worker, state)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call on the event loop; may be called on any thread."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed

    def _arrived(self, worker: Worker, state: StoreState) -> None:
        if worker is not self.worker:
            return
        self._log_problems(state)
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

    def _log_problems(self, state: StoreState) -> None:
        if state.error != self._error and state.error is not None:
            log.warning("quotas_rejected", source=self.place, problem=state.error, kept_entries=len(self.content.quotas))
        for problem in state.problems:
            if problem not in self._problems:
                log.warning("quotas_rejected", source=self.place, problem=problem, kept_entries=len(self.content.quotas))
        self._error, self._rejected, self._problems = state.error, state.rejected, state.problems


def _settle(done: asyncio.Future[Any], answer: Any, problem: Exception | None) -> None:
    if done.done():
        return  # the caller no longer waits
    if problem is None:
        done.set_result(answer)
    else:
        done.set_exception(problem)
