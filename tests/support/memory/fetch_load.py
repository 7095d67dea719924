"""Consumers of one group that always fetch more, before a broker that always has more records, on the fixture's clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.base.close_reason import CloseReason
from proxy.enforcement.mode import AGE_MAX_MS
from tests.support.fleet.fleet_proxies import FleetProxies
from tests.support.frames.kafka_frames import fetch
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, fetched_of
from tests.support.memory.worker_proxies import WorkerProxies

MAX_BYTES_AT = 4 + 8 + 2 + 3 + 4 + 4 + 4  # length, header with client-id "etl", replica id, max_wait_ms, min_bytes


@dataclass
class Fetcher:
    """One connection with one fetch at a time, the next one `pause_ms` after the answer."""

    peer: Peer
    asked: int = 0
    asked_ms: int = 0
    passed_bytes: int = 0
    pause_ms: int = 0
    ready_ms: int = 0


class FetchLoad:
    """Advances the time and runs every consumer and the broker every `step_ms`.

    Args:
        proxy: the fixture that they connect to; several workers get connections in turn.
        connections: the number of connections.
        asks_bytes: `max_bytes` of every fetch.
        batch_bytes: the smallest answer of the broker, even above `asks_bytes`.
        takes_ms: the broker's time for a fetch.
        step_ms: 0: as `takes_ms`.
        broker: returns the broker's time in ms and the size of its answer to a fetch of so many bytes; None: as the other arguments say.
    """

    def __init__(
        self,
        proxy: ProxyFixture | WorkerProxies | FleetProxies,
        connections: int,
        asks_bytes: int,
        *,
        batch_bytes: int = 0,
        takes_ms: int = 5,
        step_ms: int = 0,
        broker: Callable[[int], tuple[int, int]] | None = None,
    ) -> None:
        self._proxy = proxy
        self._asks_bytes = asks_bytes
        self._step_ms = step_ms or takes_ms
        self._broker = broker or (lambda max_bytes: (takes_ms, max(max_bytes, batch_bytes)))
        self._at_broker: list[tuple[int, Fetcher, int]] = []
        self.fetchers = [Fetcher(proxy.connect()) for _ in range(connections)]
        self.passed_bytes = 0
        self.answers = 0
        self.waits_ms: list[int] = []  # from when a fetch is sent until it reaches the broker

    def add(self, peers: Sequence[Peer], pause_ms: int = 0) -> None:
        """Let these connections fetch, too."""
        self.fetchers += [Fetcher(peer, pause_ms=pause_ms) for peer in peers]

    def run(self, seconds: float) -> None:
        """Let them fetch for this long."""
        end_ms = self._proxy.now_ms + int(seconds * 1000)
        while self._proxy.now_ms < end_ms:
            for fetcher in self.fetchers:
                self._move(fetcher)
            self._answer()
            self._proxy.wait(self._step_ms)

    def close(self, fetcher: Fetcher) -> None:
        """Close one of the connections."""
        fetcher.peer.connection.close(CloseReason.CLIENT_CLOSED)
        self.fetchers.remove(fetcher)
        self._at_broker = [one for one in self._at_broker if one[1] is not fetcher]

    @property
    def is_busy(self) -> bool:
        """Whether a fetch is at the broker."""
        return bool(self._at_broker)

    @property
    def oldest_ms(self) -> int:
        """How long the oldest fetch has waited."""
        waiting = [self._proxy.now_ms - one.asked_ms for one in self.fetchers if one.asked and not self._is_at_broker(one)]
        return max([*waiting, 0])

    def _is_at_broker(self, fetcher: Fetcher) -> bool:
        return any(one is fetcher for _, one, _ in self._at_broker)

    def _move(self, fetcher: Fetcher) -> None:
        peer = fetcher.peer
        if peer.client.written and peer.delivered():  # most of the time nothing was
            self.answers += 1
            fetcher.asked = 0
            fetcher.ready_ms = self._proxy.now_ms + fetcher.pause_ms
        if not fetcher.asked and self._proxy.now_ms >= fetcher.ready_ms:
            fetcher.asked, fetcher.asked_ms = self.answers + 1, self._proxy.now_ms
            peer.client.arrive(fetch(fetcher.asked, version=FETCH_VERSION, max_bytes=self._asks_bytes))
        if peer.broker.written:
            request = peer.broker.take()
            self.waits_ms.append(self._proxy.now_ms - fetcher.asked_ms)
            max_bytes = int.from_bytes(request[MAX_BYTES_AT : MAX_BYTES_AT + 4], "big")
            takes_ms, size_bytes = self._broker(max_bytes)
            self._at_broker.append((self._proxy.now_ms + takes_ms, fetcher, size_bytes))

    def _answer(self) -> None:
        now_ms = self._proxy.now_ms
        due = [one for one in self._at_broker if one[0] <= now_ms]
        self._at_broker = [one for one in self._at_broker if one[0] > now_ms]
        for _, fetcher, size in due:
            self.passed_bytes += size
            fetcher.passed_bytes += size
            fetcher.peer.broker.arrive(fetched_of(size, fetcher.asked))


def passed_each_second(proxies: WorkerProxies | FleetProxies, connections: int, asks_bytes: int, seconds: int) -> list[int]:
    """Let this many connections fetch without end; return the bytes passed after each second."""
    with proxies:
        load = FetchLoad(proxies, connections, asks_bytes)
        passed = [0]
        for _ in range(seconds):
            load.run(1)
            passed.append(load.passed_bytes)
            assert load.oldest_ms < AGE_MAX_MS
        return passed


def worst_bytes(passed: list[int], window_s: int, begin_s: int) -> int:
    """Return the largest number of bytes that passed within `window_s`, after the burst until `begin_s`."""
    return max(passed[at] - passed[at - window_s] for at in range(begin_s + window_s, len(passed)))
