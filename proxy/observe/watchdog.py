"""A thread that asks the event loop for a sign of life, measures how late it comes, and shows where a stalled loop hangs."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final

from proxy.observe.loop_lag import LoopLag

PERIOD_SECONDS: Final = 0.1
STALL_SECONDS: Final = 0.25


class Watchdog:
    """Watches the loop it was started on.

    Args:
        lag: where the measurements go.
        clock_ns: monotonic nanoseconds; asked by both threads.
        on_stall: gets the stack of the loop's thread, once per stall, on the watchdog's thread.
    """

    def __init__(
        self,
        lag: LoopLag,
        *,
        clock_ns: Callable[[], int],
        on_stall: Callable[[str], None],
        period_seconds: float = PERIOD_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._lag = lag
        self._clock_ns = clock_ns
        self._on_stall = on_stall
        self._period_seconds = period_seconds
        self._stall_seconds = stall_seconds
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; on the loop's own thread."""
        self._thread = threading.Thread(target=self._watch, args=(loop, threading.get_ident()), name="sluice-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; the thread is gone when this returns, or within `stall_seconds` when the loop is what calls."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end; not on the loop's thread."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        while not self._stopping.wait(self._period_seconds):
            answered = threading.Event()
            asked_ns = self._clock_ns()
            try:
                loop.call_soon_threadsafe(self._answer, asked_ns, answered)
            except RuntimeError:  # the loop is closed
                return
            if not answered.wait(self._stall_seconds):
                self._report(thread_id)
                self._wait_out(answered)

    def _answer(self, asked_ns: int, answered: threading.Event) -> None:
        now_ns = self._clock_ns()
        self._lag.record((now_ns - asked_ns) / 1_000_000, now_ns // 1_000_000)
        answered.set()

    def _report(self, thread_id: int) -> None:
        if self._stopping.is_set():
            return
        self._lag.stalls += 1
        frame = sys._current_frames().get(thread_id)
        if frame is not None:
            self._on_stall("".join(traceback.format_stack(frame)))

    def _wait_out(self, answered: threading.Event) -> None:
        while not answered.wait(self._stall_seconds):
            if self._stopping.is_set():
                return
