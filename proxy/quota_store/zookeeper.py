"""Quotas where Kafka's brokers with ZooKeeper keep them: Sluice and brokers read and change the same nodes."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from proxy import log
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import EMPTY, Decide, OnContent, StoreContent, StoreUnavailable
from proxy.quota_store.zookeeper_client import ZookeeperClient
from proxy.quota_store.zookeeper_worker import Told, ZookeeperWorker
from proxy.status import SourceStatus

T = TypeVar("T")

WEDGED_MS: Final = 60_000
WATCH_S: Final = 1.0
ALTER_S: Final = 30.0
MakeClient = Callable[[Callable[[bool], None]], ZookeeperClient]


class ZookeeperStore:
    """Keeps what ZooKeeper last said, and follows it on a thread of its own.

    Args:
        connect: HOST:PORT[,HOST:PORT...][/CHROOT].
        on_content: told of each new content, on the loop's thread.
        auth: `user:password` of ZooKeeper's digest scheme.
        creates: where there are no quotas of Kafka's, room for them is made.
        snapshot: what was last good, for a start without ZooKeeper; without it the start waits for ZooKeeper.
        wedged_ms: a client that brings nothing for so long is left, and another begins.
    """

    def __init__(
        self,
        connect: str,
        on_content: OnContent,
        *,
        now_ms: Callable[[], int],
        wall_time_s: Callable[[], float],
        auth: str | None = None,
        creates: bool = False,
        snapshot: Snapshot | None = None,
        wedged_ms: int = WEDGED_MS,
        make_client: MakeClient | None = None,
    ) -> None:
        self.content: StoreContent = EMPTY
        self.place = f"zookeeper:{connect}"
        self._on_content = on_content
        self._now_ms = now_ms
        self._wall_time_s = wall_time_s
        self._creates = creates
        self._snapshot = snapshot
        self._wedged_ms = wedged_ms
        self._make_client: MakeClient = make_client or (lambda on_connected: ZookeeperClient(connect, on_connected, auth=auth))
        self._loop = asyncio.get_running_loop()
        self._error: str | None = f"{self.place}: has not answered yet"
        self._rejected = 0
        self._problems: list[str] = []
        self._last_success_s = 0.0
        self._last_success_ms = 0
        self._started = asyncio.Event()
        self._worker = self._new_worker(None)

    @property
    def status(self) -> SourceStatus:
        """How it stands, for metrics and readiness."""
        return SourceStatus(
            self.place, len(self.content.quotas), self._last_success_s, self._last_success_ms, self._error, rejected=self._rejected
        )

    async def start(self) -> None:
        """Connect, and read everything. Without a snapshot this waits until ZooKeeper is there: nobody passes without quotas."""
        self._worker.start()
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
        self._worker.look(lambda: self._call(done.set))
        try:
            await asyncio.wait_for(done.wait(), ALTER_S)
        except TimeoutError:
            return False
        return self._error is None

    async def follow_forever(self) -> None:
        """The thread follows; this looks after the thread."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._now_ms() - self._worker.progress_ms > self._wedged_ms:
                self._replace_worker()

    async def alter(self, decide: Decide[T]) -> T:
        """Change nodes as a broker would, each at the version that `decide` saw.

        More than 200 entities are changed in portions, each of them whole.

        Raises:
            StoreUnavailable: ZooKeeper does not answer, does not let Sluice, or somebody else is always faster.
        """
        done: asyncio.Future[T] = self._loop.create_future()

        def answered(answer: Any, problem: Exception | None) -> None:
            self._call(_settle, done, answer, problem)

        self._worker.alter(decide, answered)
        try:
            return await asyncio.wait_for(done, ALTER_S)
        except TimeoutError:
            line = f"{self.place}: no answer in {ALTER_S:.0f} s; whether the change was made shows when it answers again"
            raise StoreUnavailable(line, is_certain=False) from None

    async def close(self) -> None:
        """Leave the thread to itself; it ends soon."""
        self._worker.stop()
        if self._snapshot is not None:
            await self._snapshot.close()

    # --- the thread

    def _new_worker(self, before: ZookeeperWorker | None) -> ZookeeperWorker:
        good = None if before is None else before.tree
        return ZookeeperWorker(self._make_client, self.place, self._told, good, self._now_ms, creates=self._creates)

    def _replace_worker(self) -> None:
        log.warning("zookeeper_client_replaced", source=self.place, silent_ms=self._now_ms() - self._worker.progress_ms)
        self._worker.stop()
        self._worker = self._new_worker(self._worker)
        self._worker.start()

    def _told(self, worker: ZookeeperWorker, told: Told) -> None:
        self._call(self._arrived, worker, told)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have something done on the loop; from any thread."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed

    def _arrived(self, worker: ZookeeperWorker, told: Told) -> None:
        if worker is not self._worker:
            return
        self._tell_problems(told)
        if told.error is not None:
            return
        self._last_success_s, self._last_success_ms = self._wall_time_s(), self._now_ms()
        first = not self._started.is_set()
        if first or told.content != self.content:
            self.content = told.content
            self._on_content(told.content, "start" if first else told.origin)
            log.info("quotas_loaded", source=self.place, entries=len(told.content.quotas))
            if self._snapshot is not None:
                self._snapshot.keep(told.content)
        self._started.set()

    def _tell_problems(self, told: Told) -> None:
        if told.error != self._error and told.error is not None:
            log.warning("quotas_rejected", source=self.place, problem=told.error, kept_entries=len(self.content.quotas))
        for problem in told.problems:
            if problem not in self._problems:
                log.warning("quotas_rejected", source=self.place, problem=problem, kept_entries=len(self.content.quotas))
        self._error, self._rejected, self._problems = told.error, told.rejected, told.problems


def _settle(done: "asyncio.Future[Any]", answer: Any, problem: Exception | None) -> None:
    if done.done():
        return  # nobody waits any more
    if problem is None:
        done.set_result(answer)
    else:
        done.set_exception(problem)
