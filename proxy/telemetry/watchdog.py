"""Measures the lag of the event loop ten times a second. A thread logs the stack of a stalled event loop.

The thread wakes only when the last heartbeat is old: asking the event loop from outside would cost two context switches each time.
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final

from proxy.telemetry.loop_lag import LoopLag

PERIOD_SECONDS: Final = 0.1
STALL_SECONDS: Final = 0.25


class Watchdog:
    """Watches the event loop on which it was started.

    Args:
        lag: receives the measurements.
        clock_ns: monotonic nanoseconds; called by both threads.
        on_stall: receives the stack of the event loop's thread, once per stall, on the watchdog's thread.
        on_heartbeat: called in each heartbeat, on the event loop's thread: work that is due as often needs no timer of its own, and
            does not wake an idle process once more.
    """

    def __init__(
        self,
        lag: LoopLag,
        *,
        clock_ns: Callable[[], int],
        on_stall: Callable[[str], None],
        on_heartbeat: Callable[[], None] | None = None,
        period_seconds: float = PERIOD_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._lag = lag
        self._clock_ns = clock_ns
        self._on_stall = on_stall
        self._on_heartbeat = on_heartbeat
        self._period_seconds = period_seconds
        self._stall_seconds = stall_seconds
        self._due_ns = 0  # when the next heartbeat is due; written by the event loop's thread only
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start; on the event loop's own thread."""
        self._ask(loop)
        self._thread = threading.Thread(target=self._watch, args=(loop, threading.get_ident()), name="sluice-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; on the event loop's own thread. The other thread ends within `stall_seconds`."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end; not on the event loop's thread."""
        if self._thread is not None:
            self._thread.join(timeout)

    # On the loop's thread

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_ns = self._clock_ns() + round(self._period_seconds * 1e9)
        self._timer = loop.call_later(self._period_seconds, self._answer, loop)

    def _answer(self, loop: asyncio.AbstractEventLoop) -> None:
        now_ns = self._clock_ns()
        self._lag.record(max(0, now_ns - self._due_ns) / 1_000_000, now_ns // 1_000_000)
        self._ask(loop)
        if self._on_heartbeat is not None:
            self._on_heartbeat()

    # On its own thread

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        reported_ns = 0
        while not self._stopping.wait(self._seconds_left()):
            due_ns = self._due_ns
            if self._seconds_left() > 0:
                continue
            if loop.is_closed():
                return
            if due_ns != reported_ns:
                reported_ns = due_ns
                self._report(thread_id)
            self._stopping.wait(self._stall_seconds)

    def _seconds_left(self) -> float:
        """Return the time until a missing heartbeat counts as a stall."""
        return max(0.0, (self._due_ns - self._clock_ns()) / 1e9 + self._stall_seconds)

    def _report(self, thread_id: int) -> None:
        self._lag.stalls += 1
        frame = sys._current_frames().get(thread_id)
        if frame is not None:
            self._on_stall("".join(traceback.format_stack(frame)))
