"""The process of the fleet's hub: `python -m proxy.workers.hub.main LINK SEGMENT`, started only by the supervisor.

The arguments are numbers of descriptors that the supervisor opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import uvloop

from proxy.app.profiling import profiled
from proxy.base.clock import now_ms, wall_time_s
from proxy.config.kafka_client import kafka_client_settings
from proxy.config.load import GivenConfig
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.config.sections.fleet import Fleet
from proxy.fleet.bus.bus import Bus
from proxy.fleet.bus.directory import DirectoryBus
from proxy.fleet.connections.pending import PendingConnections
from proxy.fleet.hub import Hub, Settings
from proxy.fleet.keys import keys_of
from proxy.fleet.rows import FleetRows
from proxy.fleet.wire import About
from proxy.shared_usage.segment import Segment
from proxy.telemetry import log
from proxy.workers.hub.seat import Seat
from proxy.workers.main import first_message
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

STATUS_S: Final = 0.5
DEAD_AFTER_MS: Final = 10_000
"""Without a supervisor the hub ends when no worker had a heartbeat for this time."""


def main(arguments: list[str]) -> int:
    """Take part in the fleet until the supervisor, or the next hub, ends this process; return the exit code."""
    link = socket.socket(fileno=int(arguments[0]))
    segment = Segment(int(arguments[1]))
    start = first_message(link)
    if start is None:
        return 1
    for sig in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR2):  # sent to the whole process group: the supervisor handles it
        signal.signal(sig, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(start, link, segment))


async def _serve(start: Start, link_socket: socket.socket, segment: Segment) -> int:
    process = HubMain(segment)
    link = await Link.over(link_socket, process.received, _no_answer, process.supervisor_lost.set)
    source = GivenConfig(None if start.config_path is None else Path(start.config_path), start.flags, start.config_text)
    handler = None
    try:
        config = source.load()
        handler = log.start_logging(config.log.level)
        with profiled("hub", lambda: 0, wanted=config.profile):
            await process.run(config, link)
    except ConfigProblems as problems:
        link.send(Failed(source.located(problems.problems).lines()))
        return 2
    finally:
        link.close()
        if handler is not None:
            log.stop_logging(handler)
    return 0


class HubMain:
    """The hub with its link to the supervisor."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._hub: Hub | None = None
        self._connections = PendingConnections()
        self._quotas = self._limits = 0
        self._ended = asyncio.Event()
        self.supervisor_lost = asyncio.Event()

    def received(self, message: AnyMessage) -> None:
        """Handle a message of the supervisor."""
        if isinstance(message, Stop):
            self._ended.set()
        elif isinstance(message, FleetQuotas):
            self._quotas, self._limits = message.number, message.limits
            if self._hub is not None:
                self._hub.quotas, self._hub.limits = message.number, message.limits
        elif isinstance(message, FleetConnections):
            self._connections.add(message.entries)

    async def run(self, config: Config, link: Link) -> None:
        """Take part until the end.

        Raises:
            ConfigProblems: the secret cannot be read.
        """
        seat = Seat(self._segment)
        hub = _hub_of(config, self._segment)
        await seat.take()
        assert self._segment.fleet is not None
        self._segment.enter(self._segment.fleet, now_ms())
        self._hub, hub.quotas, hub.limits, hub.connections = hub, self._quotas, self._limits, self._connections
        hub.on_connections = lambda message, at_ms, is_new: link.send(
            OtherConnections(message.incarnation, at_ms, is_new, message.connections.tobytes())
        )
        works = [hub.run_forever(), self._report_forever(hub, link), seat.until_lost(), self._ended.wait(), self._until_alone()]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._ended.is_set():
                await hub.publish_last()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _report_forever(self, hub: Hub, link: Link) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STATUS_S):
                await hub.joined.wait()
        is_reported = False
        while True:
            if hub.joined.is_set() and not is_reported:
                link.send(FleetJoined())
                is_reported = True
            link.send(FleetState(hub.status(), hub.silent_ms()))
            self._segment.store_heartbeat(self._segment.workers - 1, now_ms())
            await asyncio.sleep(STATUS_S)

    async def _until_alone(self) -> None:
        """Wait until the supervisor and all workers have ended."""
        await self.supervisor_lost.wait()
        workers = range(self._segment.workers - 1)
        while any(now_ms() - self._segment.heartbeat_ms(worker) < DEAD_AFTER_MS for worker in workers):  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(STATUS_S)


def _hub_of(config: Config, segment: Segment) -> Hub:
    """Return the hub of a configuration.

    Raises:
        ConfigProblems: the secret of the fleet cannot be read any more.
    """
    fleet = config.fleet
    assert fleet is not None
    about = About(fleet.member or socket.gethostname(), version("kafka-sluice"), config.enforcement.mode)
    paces = config.quotas.pacing == "paced" or any(config.paced_groups.values())
    settings = Settings(about, fleet.publish_ms, fleet.bytes_per_second_max, config.quotas.paced_burst_ms if paces else None)
    return Hub(_bus_of(config, fleet), FleetRows(segment), keys_of(fleet), settings, now_ms)


def _bus_of(config: Config, fleet: Fleet) -> Bus:
    topic = fleet.topic_name
    if topic is None:
        assert fleet.directory is not None
        return DirectoryBus(fleet.directory, lambda: int(wall_time_s() * 1_000))
    from proxy.fleet.bus.topic import TopicBus  # imported here: a folder needs no Kafka client

    return TopicBus(lambda: kafka_client_settings(config.upstream), topic, create=fleet.create, replication_factor=fleet.replication_factor)


async def _no_answer(_request: Request) -> bytes:
    raise TypeError("the hub answers no request")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
