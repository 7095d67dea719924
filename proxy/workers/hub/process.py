"""The supervisor's view of the fleet's hub: starts it, starts it again if it dies, and keeps its last report."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.base.clock import now_ms
from proxy.config.load import ConfigSource
from proxy.fleet.status import FleetStatus
from proxy.telemetry import log
from proxy.workers.messaging.link import Link
from proxy.workers.messaging.messages import (
    AnyMessage,
    Failed,
    FleetConnections,
    FleetJoined,
    FleetQuotas,
    FleetState,
    OtherConnections,
    Request,
    Start,
    Stop,
)
from proxy.workers.processes.child import watch_end
from proxy.workers.processes.fork_server import ChildProcess, Spawn

if TYPE_CHECKING:
    from proxy.workers.shared_connections import SharedConnections  # loaded only by a supervisor that shares connections

EARLY_EXIT_MS: Final = 1_000
"""A hub that dies within this time after its start is restarted after the same time."""
JOIN_S: Final = 5.0
"""Time limit for the hub to read the history; then clients are accepted without it."""
END_S: Final = 2.0


class HubProcess:
    """The process of the hub.

    Args:
        source: of the configuration.
        segment: descriptor of the segment of shared usage.
        spawn: starts a process.
        on_report: called with each report of the hub.
        connections: the connections that this member shares; None: it shares none.

    Attributes:
        status: the last report of the hub; None: there was none yet.
        starts: number of starts.
    """

    def __init__(
        self,
        source: ConfigSource,
        segment: int,
        spawn: Spawn,
        on_report: Callable[[FleetStatus], None],
        connections: SharedConnections | None = None,
    ) -> None:
        self._source = source
        self._connections = connections
        self._segment = segment
        self._spawn = spawn
        self._on_report = on_report
        self._process: ChildProcess | None = None
        self._link: Link | None = None
        self._stop_watch = _nothing
        self._started_ms = 0
        self._quotas = FleetQuotas(0, 0)
        self._joined = asyncio.Event()
        self._ended = asyncio.Event()
        self._restarting: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.status: FleetStatus | None = None
        self.starts = 0

    async def start(self) -> None:
        """Start the process.

        Raises:
            OSError: there are not enough descriptors or there is not enough memory.
        """
        here, there = socket.socketpair()
        with here, there:
            process = self._spawn("proxy.workers.hub.main", [there.fileno(), self._segment])
            self._link = link = await Link.over(here.dup(), self._received, _no_answer, lambda: None)
        self._process, self._started_ms = process, now_ms()
        self._ended.clear()
        self.starts += 1
        try:
            self._stop_watch = watch_end(process, lambda: self._has_ended(process))
        except OSError:
            process.kill()
            link.close()
            raise
        path = self._source.path
        link.send(Start(None if path is None else str(path), self._source.text, self._source.flags, -1, []))
        link.send(self._quotas)
        if self._connections is not None:
            self._connections.publish_all()

    async def resume(self) -> None:
        """Start the process again if the hub of another supervisor has taken over, because that supervisor failed."""
        if self._process is not None and self._process.poll() is not None and self._restarting is None:
            await self.start()

    async def joined(self) -> None:
        """Wait until the hub has read what other members used within the window, for at most `JOIN_S`."""
        try:
            async with asyncio.timeout(JOIN_S):
                await self._joined.wait()
        except TimeoutError:
            problem = "it has not answered yet" if self.status is None or self.status.problem is None else self.status.problem
            log.warning("fleet_not_joined", waited_s=JOIN_S, problem=problem)

    def set_quotas(self, quotas: FleetQuotas) -> None:
        """Report the numbers of this member's quotas and limits."""
        self._quotas = quotas
        self._send(quotas)

    def publish_connections(self, entries: bytes) -> None:
        """Publish entries about connections."""
        self._send(FleetConnections(entries))

    def _send(self, message: AnyMessage) -> None:
        if self._link is not None:
            self._link.send(message)

    def _received(self, message: AnyMessage) -> None:
        if isinstance(message, FleetState):
            self.status = message.status
            self._on_report(message.status)
            if self._connections is not None:
                self._connections.heard(message.silent_ms)
        elif isinstance(message, OtherConnections):
            if self._connections is not None:
                self._connections.take(message)
        elif isinstance(message, FleetJoined):
            self._joined.set()
        elif isinstance(message, Failed):
            log.error("fleet_hub_failed", problem="; ".join(message.lines))

    def _has_ended(self, process: ChildProcess) -> None:
        exit_code = process.poll()
        self._ended.set()
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._is_stopping or exit_code == 0:  # 0: the hub of another supervisor has taken over
            return
        log.error("fleet_hub_died", pid=process.pid, exit_code=exit_code)
        self._restart_later(0 if now_ms() - self._started_ms >= EARLY_EXIT_MS else EARLY_EXIT_MS)

    def _restart_later(self, wait_ms: int) -> None:
        self._restarting = asyncio.ensure_future(self._restart(wait_ms))

    async def _restart(self, wait_ms: int) -> None:
        await asyncio.sleep(wait_ms / 1_000)
        self._restarting = None
        try:
            await self.start()
        except OSError as error:  # no free process or descriptor
            log.error("fleet_hub_not_started", limit_key="fleet_hub_not_started", problem=error.strerror or str(error))
            self._restart_later(EARLY_EXIT_MS)

    async def stop(self) -> None:
        """End the process: it publishes what is left, and ends."""
        self._is_stopping = True
        if self._restarting is not None:
            self._restarting.cancel()
        if self._process is None:
            return
        if self._link is not None:
            self._link.send(Stop())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._ended.wait()
        if self._process.poll() is None:
            self._process.kill()
            await self._ended.wait()
        self._stop_watch()


def _nothing() -> None:
    """Do nothing: there is no process to watch."""


async def _no_answer(_request: Request) -> bytes:
    raise TypeError("the hub sends no request")
