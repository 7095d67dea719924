"""Configures Python's garbage collector, since a full collection stops every connection for its duration.

What is there at the start is never looked at again, and looks are rare. Connections are free of cycles; what a collector would find of
them is nothing, and a full look at a thousand of them takes about 20 ms. So there is none in idle moments either, since
a connection may come at any moment.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

from proxy.base.clock import now_ns
from proxy.telemetry.counters import Counters

THRESHOLDS: Final = (50_000, 20, 50)
TELL_S: Final = 1.0
LONG_NS: Final = 20_000_000


class GarbageWatch:
    """Sets the collector up, and times every look that it takes, on whatever thread.

    Args:
        counters: where looks are counted.
        on_long: called after each look of 20 ms and more: its generation, and how many ms it took. Called from `watch`, on the loop.
        clock_ns: monotonic nanoseconds.
    """

    def __init__(self, counters: Counters, on_long: Callable[[int, float], None], clock_ns: Callable[[], int] = now_ns) -> None:
        self._counters = counters
        self._on_long = on_long
        self._clock_ns = clock_ns
        self._began_ns = 0
        self._untold: list[tuple[int, float]] = []

    def start(self) -> None:
        """Freeze what is there, look rarely from now on, and time each look."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self.note)

    def stop(self) -> None:
        """Time no more; also where `start` never was."""
        if self.note in gc.callbacks:
            gc.callbacks.remove(self.note)

    async def watch(self) -> None:
        """Tell of long looks once a second; for ever."""
        while True:
            await asyncio.sleep(TELL_S)
            self.tell()

    def tell(self) -> None:
        """Tell of the long looks since the last time: not from inside the collector."""
        untold, self._untold = self._untold, []
        for generation, took_ms in untold:
            self._on_long(generation, took_ms)

    def note(self, phase: str, info: dict[str, int]) -> None:
        """The collector begins or ends a look; called by it. Nothing here may start another one."""
        if phase == "start":
            self._began_ns = self._clock_ns()
            return
        took_ns = self._clock_ns() - self._began_ns
        self._counters.gc_ns += took_ns
        if took_ns >= LONG_NS:
            self._counters.gc_long += 1
            self._untold.append((info["generation"], took_ns / 1e6))
