"""Python's garbage collector, kept out of the way: a full look at all objects stops every connection for as long as it takes.

What is there at the start is never looked at again, looks are rare, and a full one is made while nothing else happens, so that it is
not due when something does. Connections are free of cycles; what a collector would find of them is nothing.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

from proxy.clock import now_ns
from proxy.counters import Counters

THRESHOLDS: Final = (50_000, 20, 50)
IDLE_S: Final = 10.0
IDLE_REQUESTS: Final = 10
"""In `IDLE_S`; so many disturb nobody."""
LONG_NS: Final = 20_000_000


class GarbageWatch:
    """Sets the collector up, collects in idle moments, and times every look that it takes, on whatever thread.

    Args:
        counters: where looks are counted.
        on_long: told of each look of 20 ms and more: its generation, and how many ms it took. Called from `watch`, on the loop.
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

    async def watch(self, requests: Callable[[], int]) -> None:
        """Collect whenever `requests`, a count that grows, hardly grew for 10 s; for ever."""
        before = requests()
        while True:
            await asyncio.sleep(IDLE_S)
            now = requests()
            self.turn(idle=now - before <= IDLE_REQUESTS)
            before = now

    def turn(self, *, idle: bool) -> None:
        """Collect, if there may be anything, and tell of long looks."""
        _, young, old = gc.get_count()
        if idle and (young or old):
            gc.collect()
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
