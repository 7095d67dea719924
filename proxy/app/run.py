"""The process: an event loop, signals, and one `App`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import uvloop

from proxy.app.app import App
from proxy.app.profiling import profiled
from proxy.base.service_manager import notify
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.telemetry import log

SWITCH_INTERVAL_S = 0.0005
"""Switch interval of threads: a computing thread yields to the event loop within this time. Python's default is 5 ms."""


class RunningProxy(Protocol):
    """An `App`, or a supervisor of workers."""

    @property
    def requests(self) -> int:
        """Number of requests forwarded so far by this process."""

    async def start(self) -> None:
        """Start serving.

        Raises:
            ConfigProblems: the quotas are invalid.
            StartError: an address cannot be bound.
        """

    async def reload(self) -> bool:
        """Apply the current configuration; False: it is invalid."""

    async def drain(self) -> None:
        """Stop accepting, and forward the responses in flight."""

    async def stop(self) -> None:
        """Close all connections and end all tasks now."""

    def upgrade(self) -> None:
        """Start an upgrade: a new version is to replace this process. A process without a supervisor refuses."""

    def log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an uncaught exception."""


MakeProxy = Callable[[Config, ConfigSource, Callable[[], None]], Awaitable[RunningProxy]]
"""Creates a proxy on the running event loop; the proxy may call the third argument to be drained, as at SIGTERM."""


async def make_app(config: Config, source: ConfigSource, _terminate: Callable[[], None]) -> RunningProxy:
    """Create a Sluice of one process."""
    return App(config, source)


def run(config: Config, source: ConfigSource, make: MakeProxy = make_app, process: str = "") -> int:
    """Run until a signal ends the process; return the exit code.

    Args:
        process: the name of this process among several.

    Raises:
        ConfigProblems: the configuration or the quotas are invalid.
        StartError: an address cannot be bound.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, source, make, process))


async def _serve(config: Config, source: ConfigSource, make: MakeProxy, process: str) -> int:
    loop = asyncio.get_running_loop()
    terminated, ended = asyncio.Event(), asyncio.Event()

    def terminate() -> None:
        (ended if terminated.is_set() else terminated).set()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    loop.add_signal_handler(signal.SIGINT, terminate)
    app = await make(config, source, terminated.set)
    loop.set_exception_handler(app.log_exception)
    reloads: set[asyncio.Task[bool]] = set()

    def reload() -> None:
        task = asyncio.ensure_future(app.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_signal_handler(signal.SIGUSR2, app.upgrade)
    try:
        if not await _started(app, terminated):
            log.info("terminated")
            return 0
        notify("READY=1")
        with profiled(process, lambda: app.requests, wanted=config.profile):
            await terminated.wait()
            drained, second = asyncio.ensure_future(app.drain()), asyncio.ensure_future(ended.wait())
            await asyncio.wait({drained, second}, return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, second):
            task.cancel()
        return 0
    finally:
        await app.stop()


async def _started(app: RunningProxy, terminated: asyncio.Event) -> bool:
    """Start the proxy; False: a signal came first, while the start waited for the quota store.

    Raises:
        ConfigProblems, StartError: the proxy cannot start.
    """
    starting, stopping = asyncio.ensure_future(app.start()), asyncio.ensure_future(terminated.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False
    starting.result()
    return True
