"""Hubs exchange entries about connections over the bus, and name members that share them otherwise."""

import asyncio
import random
from collections.abc import AsyncIterator

import numpy as np
import pytest

from proxy.base.clock import now_ms
from proxy.fleet import hub as hub_module
from proxy.fleet.connections import other_members, own_connections, pending
from proxy.fleet.connections.entries import CONNECTION
from proxy.fleet.connections.pending import PendingConnections
from proxy.fleet.hub import Hub, Settings
from proxy.fleet.wire import About
from proxy.workers.messaging.messages import OtherConnections
from tests.support.fleet.connection_members import ConnectionMember, Time
from tests.support.fleet.fleet_members import KEYS, workers_of
from tests.support.fleet.memory_bus import NO_FAULTS, Faults, MemoryBus, MemoryLog
from tests.support.scripted.scripted_sockets import until

LIMIT_MS = 300
"""Time limit of a request to the bus in these tests."""


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
        self.bus = MemoryBus(self.log, limit_ms=LIMIT_MS)
        self.hub = hub = Hub(self.bus, self.rows, KEYS, Settings(About(self.name, "1", "mute"), 10, 1 << 20), now_ms)
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


async def test_what_could_not_be_sent_is_sent_later(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a connection while the bus does not respond is known to the other member after that, without a repetition."""
    monkeypatch.setattr(own_connections, "REPEAT_MS", 3_600_000)
    monkeypatch.setattr(other_members, "STALE_MS", 3_600_000)
    monkeypatch.setattr(hub_module, "RETRY_S", 0.02)
    one, other = HubMember(log, "a"), HubMember(log, "b")
    await asyncio.gather(one.hub.joined.wait(), other.hub.joined.wait())
    assert one.admits()
    one.shared.flush()
    await until(other.refuses)
    one.bus.member.outbound.faults = Faults(loss=1.0)
    one.leave()
    one.shared.flush()
    await until(lambda: one.hub.status().problem is not None)
    one.bus.member.outbound.faults = NO_FAULTS
    await until(lambda: not other.refuses())
    for member in (one, other):
        await member.die()


def test_pending_entries_are_bounded_and_the_last_one_of_a_digest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry replaces an earlier one, also one whose message failed; beyond the bound the oldest is dropped."""
    monkeypatch.setattr(pending, "PENDING_MAX", 3)
    waiting = PendingConnections()

    def entries(*digests: bytes, count: int = 0) -> bytes:
        return np.array([(digest * 16, 0, 0, count) for digest in digests], CONNECTION).tobytes()

    waiting.add(entries(b"a", b"b", b"c", b"d"))
    assert waiting.take(2 * CONNECTION.itemsize)["digest"].tolist() == [b"b" * 16, b"c" * 16]
    waiting.add(entries(b"c", count=5))
    again = waiting.take(1_000)
    assert again["digest"].tolist() == [b"b" * 16, b"c" * 16, b"d" * 16]
    assert again["open"].tolist() == [0, 5, 0]
    waiting.published()
    assert len(waiting.take(1_000)) == len(waiting) == 0


async def test_members_that_share_connections_otherwise_are_named(log: MemoryLog) -> None:
    """The status says which members share connections, and which have the limits of this one."""
    one, alike, other, alone = (HubMember(log, name, limits) for name, limits in (("a", 7), ("b", 7), ("c", 9), ("d", 0)))
    expected = [("a", True, True), ("b", True, True), ("c", True, False), ("d", False, False)]
    await until(lambda: [(seen.member, seen.shares_connections, seen.has_equal_limits) for seen in one.hub.status().members] == expected)
    await until(lambda: [seen.has_equal_limits for seen in alone.hub.status().members] == [True, False, False, False])
    for member in (one, alike, other, alone):
        await member.die()
