"""The proxies of several workers in one process, on one clock, with one quota over all of them."""

from types import TracebackType
from typing import Any, Self

from proxy.enforcement.paced.factory import PacedGroups
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.workers.asked_bucket import Buckets, asked_buckets
from tests.support.memory.bucket_questions import BucketQuestions
from tests.support.memory.memory_connection import ManualLoop, Peer, ProxyFixture
from tests.support.memory.shared_workers import new_segment


def publish_on_time(usage: SharedUsage, loop: ManualLoop) -> None:
    """Let the loop publish a worker's usage when it is due, as a worker's event loop does."""

    def start_timer(within_ms: int) -> None:
        loop.call_later(within_ms / 1_000, lambda: usage.publish_noted(within_ms, loop.now_ms))

    usage.on_unpublished = start_timer


class WorkerProxies:
    """Workers that share a segment, each with its timer; connections go to them in turn. A single worker has no segment.

    Attributes:
        proxies: one proxy per worker.
        usages: each worker's view of the segment; empty for a single worker.

    Args:
        burst_ms: burst of groups that are paced; None: no group can be.
        paces: whether all groups are paced at first.
    """

    def __init__(self, workers: int, *, burst_ms: int | None = None, paces: bool = True, **settings: Any) -> None:
        self.loop = ManualLoop()
        self.usages: list[SharedUsage] = []
        self.proxies: list[ProxyFixture] = []
        self._connected = 0
        if workers == 1:
            alone = {} if burst_ms is None else {"factories": PacedGroups(burst_ms, paces_others=paces)}
            self.proxies.append(ProxyFixture(loop=self.loop, **alone, **settings))
            return
        segment, buckets = new_segment(workers), Buckets()
        for number in range(workers):
            usage = SharedUsage(segment, number)
            publish_on_time(usage, self.loop)
            self.usages.append(usage)
            make_mutation_group = asked_buckets(BucketQuestions(buckets), usage)
            factories = usage if burst_ms is None else PacedGroups(burst_ms, paces_others=paces, factories=usage)
            self.proxies.append(ProxyFixture(loop=self.loop, factories=factories, make_mutation_group=make_mutation_group, **settings))

    def connect(self) -> Peer:
        """Return a new connection of the next worker."""
        self._connected += 1
        return self.proxies[self._connected % len(self.proxies)].connect()

    @property
    def now_ms(self) -> int:
        """The time in milliseconds."""
        return self.loop.now_ms

    def wait(self, ms: int) -> None:
        """Advance the time in all workers; deadlines on the way fire."""
        self.loop.run_until(self.loop.now_ms + ms)

    def __enter__(self) -> Self:
        """Let the proxies' clock show the time of this fixture."""
        self.proxies[0].__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.proxies[0].__exit__(kind, error, trace)
