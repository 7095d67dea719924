"""The health of the process: lag of its event loop, stalls, garbage collection, and uncaught exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from proxy.base.clock import now_ns
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from proxy.telemetry.garbage import GarbageWatch
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.watchdog import Watchdog


class ProcessWatch:
    """Watches one process and logs problems.

    Args:
        on_heartbeat: called ten times a second, with the measurement of the lag.

    Attributes:
        lag: of the event loop.
    """

    def __init__(self, counters: Counters, on_heartbeat: Callable[[], None] | None = None) -> None:
        self.lag = LoopLag()
        self._counters = counters
        self._garbage = GarbageWatch(counters, _log_garbage)
        self._watchdog = Watchdog(self.lag, clock_ns=now_ns, on_stall=_log_stall, on_heartbeat=on_heartbeat)

    def start(self) -> None:
        """Begin to watch the running event loop."""
        self._watchdog.start(asyncio.get_running_loop())
        self._garbage.start()

    async def watch(self) -> None:
        """Log long garbage collections, until cancelled."""
        await self._garbage.watch()

    def stop(self) -> None:
        """Stop watching."""
        self._watchdog.stop()
        self._garbage.stop()

    def log_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an uncaught exception: the loop's exception handler. Exceptions that ended a connection are counted there."""
        if not context.get("counted"):
            self._counters.internal_errors += 1
        log.error("internal_error", limit_key="internal_error", message=str(context.get("message")), exception=context.get("exception"))


def _log_stall(stack: str) -> None:
    log.warning("loop_stalled", limit_key="loop_stalled", stack=log.Stack(stack))


def _log_garbage(generation: int, took_ms: float) -> None:
    log.warning("gc_pause", limit_key="gc_pause", generation=generation, took_ms=round(took_ms, 1))
