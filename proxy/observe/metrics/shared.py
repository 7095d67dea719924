"""Caches the page /metrics for all requests. The renderer is loaded with the first request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from proxy.observe.page_source import PageSource
from proxy.observe.snapshot import Snapshot
from proxy.telemetry.loop_lag import LoopLag

if TYPE_CHECKING:
    from proxy.observe.metrics.exposition import MetricsPage

SHARED_MS: Final = 1_000
"""Time for which all requests of one kind get the same page."""


class SharedMetrics:
    """Renders one page a second with names, and one without.

    Further requests in that second get the same bytes, so a flood of requests costs the event loop little.
    """

    def __init__(self, source: PageSource, lag: LoopLag) -> None:
        self._source = source
        self._lag = lag
        self._page: MetricsPage | None = None
        self._rendered: dict[bool, tuple[int, str, bytes]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def get(self, *, with_names: bool) -> tuple[str, bytes]:
        """Return content type and text of a page that is less than a second old, made in a thread when there is none."""
        async with self._one_at_a_time:
            now_ms = self._source.control.now_ms()
            rendered = self._rendered.get(with_names)
            if rendered is None or now_ms - rendered[0] >= SHARED_MS:
                rendered = (now_ms, *await asyncio.to_thread(self._render, await self._source.snapshot(), with_names))
                self._rendered[with_names] = rendered
            return rendered[1:]

    def _render(self, snapshot: Snapshot, with_names: bool) -> tuple[str, bytes]:
        from proxy.observe.metrics.exposition import CONTENT_TYPE, MetricsPage  # imported here, and in a thread: prometheus_client

        if self._page is None:
            self._page = MetricsPage(self._lag)
        return CONTENT_TYPE, self._page.render(snapshot, with_names=with_names)
