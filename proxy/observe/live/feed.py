"""One snapshot a second for all viewers of the live page, none without viewers, and the history that is kept in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from proxy.observe.live.brokers import RecentLatencies, brokers_of
from proxy.observe.live.head import Rates, head_of
from proxy.observe.live.history import GROUPS_MAX, History
from proxy.observe.live.limits import HISTORY_BYTES_MAX, VIEWER_BYTES_MAX, VIEWERS_MAX
from proxy.observe.live.table import LiveTable
from proxy.observe.page_source import PageSource
from proxy.observe.rows.live_rows import LiveQuery
from proxy.observe.snapshot import process_figures
from proxy.telemetry import log
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import IpRate

PERIOD_S: Final = 1.0
GROUPS_SHOWN_MAX: Final = 10_000
IPS_SHOWN_MAX: Final = 20
IPS_SHARED_MS: Final = 5_000
"""Computing the rates of addresses takes some milliseconds on the event loop."""
_ALL: Final = LiveQuery(GROUPS_SHOWN_MAX, waited_only=False)
_WAITED: Final = LiveQuery(GROUPS_MAX, waited_only=True)


class TooManyViewersError(Exception):
    """As many viewers as are allowed watch already."""


class Viewer:
    """One reader of the events. It gets everything first, and again after it missed an event, so it needs no queue."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed
        self._seen: int | None = None

    async def next_event(self) -> bytes:
        """Wait for the next event, and return it."""
        self._seen, event = await self._feed.event_after(self._seen)
        return event

    def leave(self) -> None:
        """Stop viewing."""
        self._feed.leave(self)


class LiveFeed:
    """Makes events while there are viewers, and a point of the history every five seconds.

    Attributes:
        history: the history of groups.
        table: the state that viewers know.
    """

    def __init__(self, source: PageSource, lag: LoopLag) -> None:
        self._source = source
        self._lag = lag
        self.history = History()
        self.table = LiveTable()
        self._rates = Rates()
        self._latencies = RecentLatencies()
        self._viewers: set[Viewer] = set()
        self._one_at_a_time = asyncio.Lock()
        self._published = asyncio.Event()
        self._made_ms: int | None = None
        self._changes = b""
        self._everything: tuple[int, bytes] | None = None
        self._ips: Sequence[IpRate] = ()
        self._ips_ms: int | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await self.work()
            except Exception as error:  # noqa: BLE001 - a bug of ours ends neither the page nor the process
                self._source.control.counters.internal_errors += 1
                log.error("live_page_failed", limit_key="live_page", problem=f"{type(error).__name__}: {error}")

    async def work(self) -> None:
        """Make an event if there are viewers; else forget what only viewers need, and make a point of the history if one is due."""
        async with self._one_at_a_time:
            if self._viewers:
                await self._publish()
                self._count_bytes()
                return
            self.table.clear()
            self._made_ms, self._changes, self._everything = None, b"", None
            if self.history.is_due(self._source.control.now_ms()):
                groups = await self._source.live_groups(_WAITED)
                await asyncio.to_thread(self.history.record, groups.rows, self._source.control.now_ms())
        self._count_bytes()

    def join(self) -> Viewer:
        """Return a new viewer.

        Raises:
            TooManyViewersError: there are 16 already.
        """
        if len(self._viewers) >= VIEWERS_MAX:
            raise TooManyViewersError
        viewer = Viewer(self)
        self._viewers.add(viewer)
        self._count_bytes()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._viewers.discard(viewer)
        self._count_bytes()

    async def event_after(self, seen: int | None) -> tuple[int, bytes]:
        """Return the number of an event with its text: the one after `seen`, or everything when that one is gone."""
        while seen is not None and seen == self.table.seq:
            await self._published.wait()
        async with self._one_at_a_time:
            now_ms = self._source.control.now_ms()
            if self._made_ms is None or now_ms - self._made_ms > 2_000 * PERIOD_S:
                await self._publish()
            seq = self.table.seq
            if seen == seq - 1:
                return seq, self._changes
            if self._everything is None or self._everything[0] != seq:
                self._everything = (seq, await asyncio.to_thread(self.table.everything))
            return self._everything

    async def _publish(self) -> None:
        source, now_ms = self._source, self._source.control.now_ms()
        figures = await source.figures()
        groups = await source.live_groups(_ALL)
        head = head_of(source.control, figures, process_figures(self._lag), self._rates, self._busiest_ips(now_ms))

        def made() -> bytes:
            counted = figures.counters
            latencies = self._latencies.of(counted.latencies.by_broker(), now_ms)
            head["brokers"] = brokers_of(groups.rows, counted.brokers_reached, latencies, now_ms)
            if self.history.is_due(now_ms):
                self.history.record(groups.rows, now_ms)
            return self.table.update(groups, head, self.history.waited_ms_a_minute())

        self._changes = await asyncio.to_thread(made)
        self._everything, self._made_ms = None, now_ms
        published, self._published = self._published, asyncio.Event()
        published.set()

    def _busiest_ips(self, now_ms: int) -> Sequence[IpRate]:
        if self._ips_ms is None or now_ms - self._ips_ms >= IPS_SHARED_MS:
            self._ips_ms, self._ips = now_ms, self._source.control.busiest_ips(IPS_SHOWN_MAX)
        return self._ips

    def _count_bytes(self) -> None:
        """Report the bytes to the budget of the process."""
        kept = len(self.history) * (HISTORY_BYTES_MAX // GROUPS_MAX)
        self._source.control.counters.live_page_bytes = kept + len(self._viewers) * VIEWER_BYTES_MAX
