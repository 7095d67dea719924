"""An asyncio event loop whose time passes only while this process works, and jumps to the next timer when nothing is ready.

What other processes do are events of their own (`at`): they take no time of this one, and neither do their timers.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any


class WorkingLoop(asyncio.BaseEventLoop):
    """Its time begins with 0 and is the processor time of this process, with the time in which nothing was ready.

    So what waits for a task that works waits as long as in a process of its own, and other processes of the machine delay nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = self  # an event loop waits in `select`; this one does not
        self._idle_s = 0.0
        self._aside_s = time.process_time()
        self._aside_since_s: float | None = None
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        """Return the time in seconds."""
        return self.worked_s + self._idle_s

    @property
    def worked_s(self) -> float:
        """Processor time in seconds, without that of `aside`."""
        now_s = time.process_time() if self._aside_since_s is None else self._aside_since_s
        return now_s - self._aside_s

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let no time pass inside the block: its work is that of other processes."""
        if self._aside_since_s is not None:
            yield
            return
        self._aside_since_s = time.process_time()
        try:
            yield
        finally:
            self._aside_s += time.process_time() - self._aside_since_s
            self._aside_since_s = None

    def at(self, at_s: float, act: Callable[[], None]) -> None:
        """Let another process act at a time in seconds."""
        heapq.heappush(self._events, (at_s, next(self._numbers), act))

    def select(self, timeout: float | None) -> list[Any]:
        """Return no events; let the time jump to the next timer, or to the first event of another process that makes something ready.

        Raises:
            RuntimeError: there is no timer, so nothing will ever happen again.
        """
        with self.aside():
            end_s = None if timeout is None else self.time() + timeout
            while self._events and (self._events[0][0] <= self.time() or not self._ready):
                if end_s is not None and self._events[0][0] > end_s:
                    break
                at_s, _, act = heapq.heappop(self._events)
                self._idle_s += max(0.0, at_s - self.time())
                act()
            if self._ready:
                return []
            if end_s is None:
                raise RuntimeError("nothing is ready, and there is no timer")
            self._idle_s += max(0.0, end_s - self.time())
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop does not sleep in `select`."""
