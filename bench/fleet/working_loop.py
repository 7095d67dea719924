"""An asyncio event loop whose time passes only while this process works, and jumps to the next timer when nothing is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    def time(self) -> float:
        """Return the time in seconds."""
        return time.process_time() + self._idle_s - self._aside_s

    @property
    def worked_s(self) -> float:
        """Processor time in seconds, without that of `aside`."""
        return time.process_time() - self._aside_s

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let no time pass inside the block: its work is that of other processes."""
        begin_s = time.process_time()
        try:
            yield
        finally:
            self._aside_s += time.process_time() - begin_s

    def select(self, timeout: float | None) -> list[Any]:
        """Return no events; let the time jump to the next timer.

        Raises:
            RuntimeError: there is no timer, so nothing will ever happen again.
        """
        if timeout is None:
            raise RuntimeError("nothing is ready, and there is no timer")
        self._idle_s += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop does not sleep in `select`."""
