"""Configures Python's garbage collector, since a full collection stops every connection for its duration.

Objects that exist at startup are never visited again, and collections are rare. Connections have no cycles, so a collector finds
nothing in them, and a full collection with a thousand of them takes about 20 ms. So none runs in idle times either, since
a connection may arrive at any time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

from proxy.base.clock import now_ns
from proxy.telemetry.counters import Counters

THRESHOLDS: Final = (50_000, 20, 50)
REPORT_INTERVAL_S: Final = 1.0
LONG_NS: Final = 20_000_000


class GarbageWatch:
    """Configures the collector, and measures every collection, on any thread.

    Args:
        counters: where collections are counted.
        on_long: called after each collection of 20 ms and more with its generation and duration in ms; from `watch`, on the event loop.
        clock_ns: monotonic nanoseconds.
    """

    def __init__(self, counters: Counters, on_long: Callable[[int, float], None], clock_ns: Callable[[], int] = now_ns) -> None:
        self._counters = counters
        self._on_long = on_long
        self._clock_ns = clock_ns
        self._began_ns = 0
        self._unreported: list[tuple[int, float]] = []

    def start(self) -> None:
        """Freeze the existing objects, make collections rare, and measure each."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self.note)

    def stop(self) -> None:
        """Stop measuring; also valid without `start`."""
        if self.note in gc.callbacks:
            gc.callbacks.remove(self.note)

    async def watch(self) -> None:
        """Report long collections once a second, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            self.report()

    def report(self) -> None:
        """Report the long collections since the last call, outside the collector."""
        unreported, self._unreported = self._unreported, []
        for generation, took_ms in unreported:
            self._on_long(generation, took_ms)

    def note(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector when a collection begins or ends; it must not start another one."""
        if phase == "start":
            self._began_ns = self._clock_ns()
            return
        took_ns = self._clock_ns() - self._began_ns
        self._counters.gc_ns += took_ns
        if took_ns >= LONG_NS:
            self._counters.gc_long += 1
            self._unreported.append((info["generation"], took_ns / 1e6))
