"""The hub of a member: it joins, publishes, records, and takes part again after each problem of the bus."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator

import pytest

from proxy.base.clock import now_ms
from proxy.fleet import hub as hub_module
from proxy.fleet import own_usage as own_usage_module
from proxy.fleet.hub import SILENT, Hub, Settings
from proxy.fleet.keys import FleetKeys, fleet_keys
from proxy.fleet.wire import About
from tests.support.fleet import memory_bus
from tests.support.fleet.fleet_members import KEYS, FleetMember, workers_of
from tests.support.fleet.memory_bus import MemoryBus, MemoryLog
from tests.support.scripted.scripted_sockets import until

BOUND = 1_000.0
LIMIT_MS = 300
"""Time limit of a request to the bus in these tests."""


class Member(FleetMember):
    """A member with a running hub."""

    def __init__(self, log: MemoryLog, name: str, quotas: int = 1, *, keys: FleetKeys = KEYS, paced_burst_ms: int | None = None) -> None:
        super().__init__(name, 1, BOUND, now_ms(), keys=keys)
        self.log = log
        self.settings = Settings(About(self.name, "1", "mute"), 10, 1 << 20, paced_burst_ms)
        self.quotas = quotas
        self.run()

    def run(self) -> None:
        """Start the hub."""
        self.segment.enter(workers_of(self.segment), now_ms())
        self.bus = MemoryBus(self.log, limit_ms=LIMIT_MS)
        self.hub = Hub(self.bus, self.rows, self.keys, self.settings, now_ms)
        self.hub.quotas = self.quotas
        self.task = asyncio.ensure_future(self.hub.run_forever())

    async def die(self) -> None:
        """End the hub without a last message."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def use(self, amount: float) -> None:
        """Record usage of the member's group, and publish it to the hub."""
        self.workers[0].record(amount, now_ms())
        self.workers[0].publish(now_ms())

    def knows(self, amount: float) -> bool:
        """Whether the member's group contains this usage of all members."""
        return self.known(now_ms()) == [amount]

    def names(self) -> list[str]:
        """Return the names of the members."""
        return [one.member for one in self.hub.status().members]


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryLog]:
    """A bus without faults, on the real clock."""
    monkeypatch.setattr(hub_module, "RETRY_S", 0.02)
    monkeypatch.setattr(hub_module, "HEARTBEAT_MS", 50)
    monkeypatch.setattr(hub_module, "CUT_OFF_MS", 200)
    monkeypatch.setattr(hub_module, "EXPIRE_MS", 50)
    monkeypatch.setattr(hub_module, "WATCH_S", 0.05)
    log = MemoryLog(random.Random(1), now_ms)
    following = asyncio.ensure_future(log.run_forever())
    yield log
    following.cancel()


async def test_members_meet_and_share(log: MemoryLog) -> None:
    """Members name each other, see whether their quotas are equal, measure the lag, and share usage in both directions."""
    one, other, third = Member(log, "a"), Member(log, "b"), Member(log, "c", quotas=2)
    await until(lambda: one.names() == ["a", "b", "c"] and third.names() == ["c", "a", "b"])
    await until(lambda: [peer.has_equal_quotas for peer in one.hub.status().members] == [True, True, False])
    one.use(300.0)
    other.use(20.0)
    await until(lambda: one.knows(320.0) and other.knows(320.0) and third.knows(320.0))
    status = one.hub.status()
    assert status.problem is None
    assert not status.is_cut_off
    assert status.lag_ms is not None
    for member in (one, other, third):
        await member.die()


async def test_messages_of_another_fleet_in_the_topic_are_counted(log: MemoryLog) -> None:
    """Fleets with other names may use one topic: a member reports how many messages of them it saw, and does not name their members."""
    one, stranger = Member(log, "a"), Member(log, "x", keys=fleet_keys("other", b"s" * 32))
    await until(lambda: one.hub.status().of_other_fleets > 0 and stranger.hub.status().of_other_fleets > 0)
    assert (one.names(), stranger.names()) == (["a"], ["x"])
    assert one.hub.status().forged == 0
    for member in (one, stranger):
        await member.die()


@pytest.mark.parametrize(("paced_burst_ms", "is_reported"), [(9, True), (60_000, False), (None, False)])
async def test_a_burst_that_ends_before_others_are_known_is_reported_once(
    log: MemoryLog, caplog: pytest.LogCaptureFixture, paced_burst_ms: int | None, is_reported: bool
) -> None:
    """A warning names the burst of paced groups if usage of other members becomes known later: here after 10 ms and the lag."""
    caplog.set_level(logging.WARNING, logger="sluice")
    member = Member(log, "a", paced_burst_ms=paced_burst_ms)
    await member.hub.joined.wait()
    sent = len(log.messages)
    await until(lambda: len(log.messages) > sent + 3 and member.hub.status().lag_ms is not None)
    await member.die()
    found = [record for record in caplog.records if record.getMessage() == "fleet_burst_short"]
    assert [record.fields["burst_ms"] for record in found] == [paced_burst_ms] * is_reported


async def test_a_member_that_starts_begins_with_the_last_window(log: MemoryLog) -> None:
    """A member that starts later counts what others used within the window before its start, and nothing of before."""
    one = Member(log, "a")
    await one.hub.joined.wait()
    one.use(700.0)
    await until(lambda: len(log.messages) > 2)
    sent = len(log.messages)
    late = Member(log, "b")
    await late.hub.joined.wait()
    late.use(1.0)
    assert late.knows(701.0)
    log.messages[:] = [message._replace(time_ms=message.time_ms - 12_000) for message in log.messages[:sent]]
    later = Member(log, "c")
    await later.hub.joined.wait()
    later.use(1.0)
    assert later.known(now_ms()) in ([1.0], [2.0])  # what the second member used may be known already
    for member in (one, late, later):
        await member.die()


async def test_a_hub_that_dies_is_continued_by_the_next_one(log: MemoryLog) -> None:
    """What others use while a member has no hub is recorded once, when the next hub has read the bus; own usage follows, too."""
    one, other = Member(log, "a"), Member(log, "b")
    one.use(10.0)
    await until(lambda: other.knows(10.0))
    await other.die()
    one.use(200.0)
    other.use(3_000.0)
    await until(lambda: one.names() == ["a", "b"])
    other.run()
    await until(lambda: other.knows(3_210.0))
    other.use(1.0)
    await until(lambda: one.knows(3_211.0))
    for member in (one, other):
        await member.die()


async def test_a_member_that_is_cut_off_says_so_and_catches_up(log: MemoryLog) -> None:
    """A member whose messages do not come back is cut off; after the cut both sides record what the other used meanwhile."""
    one, other = Member(log, "a"), Member(log, "b")
    one.use(10.0)
    await until(lambda: other.knows(10.0))
    other.bus.member.cut()
    one.use(200.0)
    other.use(3_000.0)
    await until(lambda: other.hub.status().is_cut_off and other.hub.status().problem is not None)
    assert not one.hub.status().is_cut_off
    other.bus.member.heal()
    await until(lambda: one.knows(3_210.0) and other.knows(3_210.0))
    await until(lambda: not other.hub.status().is_cut_off)
    assert other.hub.status().cut_off_ms > 0
    for member in (one, other):
        await member.die()


async def test_own_messages_that_do_not_come_back_are_reported(log: MemoryLog) -> None:
    """A bus that accepts messages and delivers none counts as a cut, too."""
    one = Member(log, "a")
    await until(lambda: not one.hub.status().is_cut_off)
    log.readers.clear()
    await until(lambda: one.hub.status().problem == SILENT and one.hub.status().is_cut_off)
    await one.die()


async def test_a_log_that_is_made_anew_loses_nothing(log: MemoryLog) -> None:
    """After the log was deleted and made again, members take part in it, and totals are equal."""
    one, other = Member(log, "a"), Member(log, "b")
    one.use(10.0)
    await until(lambda: other.knows(10.0))
    log.make_anew()
    one.use(200.0)
    other.use(3_000.0)
    await until(lambda: one.knows(3_210.0) and other.knows(3_210.0))
    for member in (one, other):
        await member.die()


async def test_what_is_in_no_log_any_more_is_sent_again(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is deleted before a member has read the last usage of another one, and has grown when it reads again: it knows that usage."""
    monkeypatch.setattr(own_usage_module, "REPEAT_MS", 20)
    one, other = Member(log, "a"), Member(log, "b")
    one.use(10.0)
    other.use(1.0)
    await until(lambda: one.knows(11.0) and other.knows(11.0))
    one.bus.member.cut(outbound=False)
    other.use(2_999.0)
    sent = len(log.messages)
    await until(lambda: len(log.messages) > sent + 10)
    log.make_anew()
    await until(lambda: len(log.messages) > sent)
    one.bus.member.heal()
    await until(lambda: one.knows(3_010.0) and other.knows(3_010.0))
    for member in (one, other):
        await member.die()


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
async def test_the_clock_of_the_bus_may_step(log: MemoryLog, monkeypatch: pytest.MonkeyPatch, step_ms: int) -> None:
    """After the clock of the bus has stepped, members share usage as before, and a hub that starts then continues."""
    one, other = Member(log, "a"), Member(log, "b")
    one.use(10.0)
    await until(lambda: other.knows(10.0))
    monkeypatch.setattr(memory_bus, "EPOCH_MS", memory_bus.EPOCH_MS + step_ms)
    one.use(200.0)
    await until(lambda: other.knows(210.0))
    other.use(3_000.0)
    await until(lambda: one.knows(3_210.0))
    await other.die()
    other.run()
    one.use(5.0)
    await until(lambda: other.knows(3_215.0))
    for member in (one, other):
        await member.die()


async def test_the_last_message_contains_what_was_not_published(log: MemoryLog) -> None:
    """A hub that ends in order publishes what its workers used last."""
    one, other = Member(log, "a"), Member(log, "b")
    await until(lambda: one.names() == ["a", "b"] and other.names() == ["b", "a"])
    await one.die()
    await one.bus.start()
    one.use(44.0)
    await one.hub.publish_last()
    await until(lambda: other.knows(44.0))
    await other.die()
