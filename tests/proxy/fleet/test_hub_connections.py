"""Hubs exchange entries about connections over the bus, and name members that share them otherwise."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from proxy.base.clock import now_ms
from proxy.fleet import hub as hub_module
from proxy.fleet.hub import Hub, Settings
from proxy.fleet.wire import About
from proxy.workers.messaging.messages import OtherConnections
from tests.support.fleet.connection_members import ConnectionMember, Time
from tests.support.fleet.fleet_members import KEYS, workers_of
from tests.support.fleet.memory_bus import MemoryBus, MemoryLog
from tests.support.scripted.scripted_sockets import until


class RealTime(Time):
    """The clock of this process."""

    def __call__(self) -> int:
        """Return the time in monotonic ms."""
        return now_ms()


class HubMember(ConnectionMember):
    """A member with a running hub, in whose place it publishes and hears."""

    def __init__(self, log: MemoryLog, name: str, limits: int = 1) -> None:
        super().__init__(name, RealTime())
        self.log = log
        self.limits = limits
        self.limit(count=1)
        self.run()

    def run(self) -> None:
        """Start the hub."""
        self.segment.enter(workers_of(self.segment), now_ms())
        self.hub = hub = Hub(MemoryBus(self.log), self.rows, KEYS, Settings(About(self.name, "1", "mute"), 10, 1 << 20), now_ms)
        hub.limits, hub.connections = self.limits, self.pending
        hub.on_connections = lambda message, at_ms, is_new: self.shared.take(
            OtherConnections(message.incarnation, at_ms, is_new, message.connections.tobytes())
        )
        self.task = asyncio.ensure_future(hub.run_forever())
        self.shared.publish_all()

    def refuses(self) -> bool:
        """Publish what has changed, and let a client connect for a moment; return whether it is refused."""
        self.shared.heard(self.hub.silent_ms())
        is_admitted = self.admits()
        if is_admitted:
            self.leave()
        self.shared.flush()
        return not is_admitted

    async def die(self) -> None:
        """End the hub without a last message."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryLog]:
    """A bus without faults, on the real clock."""
    monkeypatch.setattr(hub_module, "HEARTBEAT_MS", 50)
    log = MemoryLog(random.Random(1), now_ms)
    following = asyncio.ensure_future(log.run_forever())
    yield log
    following.cancel()


async def test_open_connections_travel_over_the_bus(log: MemoryLog) -> None:
    """An address at its limit is refused at the other member, at one that starts later, and at one whose hub is started again."""
    one, other = HubMember(log, "a"), HubMember(log, "b")
    await asyncio.gather(one.hub.joined.wait(), other.hub.joined.wait())
    assert one.admits()
    one.shared.flush()
    await until(other.refuses)
    late = HubMember(log, "c")
    await until(late.refuses)
    await one.die()
    one.leave()
    one.shared.flush()
    one.run()
    one.shared.flush()
    await until(lambda: not other.refuses())
    for member in (one, other, late):
        await member.die()


async def test_members_that_share_connections_otherwise_are_named(log: MemoryLog) -> None:
    """The status says which members share connections, and which have the limits of this one."""
    one, alike, other, alone = (HubMember(log, name, limits) for name, limits in (("a", 7), ("b", 7), ("c", 9), ("d", 0)))
    expected = [("a", True, True), ("b", True, True), ("c", True, False), ("d", False, False)]
    await until(lambda: [(seen.member, seen.shares_connections, seen.has_equal_limits) for seen in one.hub.status().members] == expected)
    await until(lambda: [seen.has_equal_limits for seen in alone.hub.status().members] == [True, False, False, False])
    for member in (one, alike, other, alone):
        await member.die()
