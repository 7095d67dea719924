"""The processor time of a hub, and the lag with which it knows what others used, among members with many groups that are used all the time.

The hub is that of the product, on an event loop whose time is its own processor time and the time in which it waits (`WorkingLoop`). The
other members, the workers and the topic are simulated: a message takes `TOPIC_MS`, and the client of a topic takes no processor time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from bench.fleet.working_loop import WorkingLoop
from proxy.fleet.bus.bus import Received, Sent
from proxy.fleet.hub import Hub, Settings
from proxy.fleet.keys import fleet_keys
from proxy.fleet.own_usage import OwnUsage, in_messages
from proxy.fleet.rows import FleetRows
from proxy.fleet.wire import NO_THROTTLES, TOTAL, About, Message, decoded, encoded
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import SHARE_MS
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.workers.start import GROUP_ROWS
from quota.entity import ClientQuotaType

PUBLISH_MS: Final = 50
BYTES_PER_SECOND_MAX: Final = 4 * 1024 * 1024
"""The default of a member."""
TOPIC_MS: Final = 5
"""Time of a message through the topic. `python -m bench.fleet` has 2 to 5 ms at a broker on the same machine."""
START_MS: Final = 1_000_000
WARM_S: Final = 12
"""Time before the measurement, in which the windows fill and all groups are named."""
USED: Final = 200
"""Units that a member uses of each group in `SHARE_MS`."""
RATE: Final = USED * 1_000 // SHARE_MS
FAR_BELOW: Final = 20.0
"""Bound of groups far below it, in multiples of what is used."""
KEYS: Final = fleet_keys("bench", b"s" * 32)


class HubCost(NamedTuple):
    """What the hub of one member costs, and how late it knows what the others used.

    Attributes:
        core: processor time for each second, of one core.
        bytes_per_second: what the hub receives from the others.
        lag_ms: average age of usage when it is in the rows of the hub.
        lag_ms_p99: the age that one part in 100 exceeds.
    """

    core: float
    bytes_per_second: float
    lag_ms: float
    lag_ms_p99: float


class SimulatedMember:
    """A member with one worker and many groups."""

    def __init__(self, groups: int, bound: float) -> None:
        self.segment = Segment.create(2, GROUP_ROWS, 11, 1_000, has_fleet=True)
        self.usage = SharedUsage(self.segment, 0, fleet_key=KEYS.digests)
        make = self.usage.of_scope("1").maker(ClientQuotaType.PRODUCE)
        self.groups = [make({"client-id": f"client-{at}"}, bound) for at in range(groups)]

    def use(self, units: int, now_ms: int) -> None:
        """Record usage of each group, and share it."""
        for group in self.groups:
            group.record_unchecked(units, now_ms)
        self.usage.publish_all(now_ms)


class OtherMembers:
    """The other members. All use the groups in the same way, so one segment has the usage of each of them.

    Args:
        count: their number.
        bound: of each group. The members hear nobody, so it is what one uses where groups are at their bound.
    """

    def __init__(self, count: int, groups: int, bound: float) -> None:
        self._member = SimulatedMember(groups, bound)
        self._abouts = [About(f"m{number}", "1", "mute") for number in range(1, count + 1)]
        self._rows = FleetRows(self._member.segment)
        self._own = OwnUsage(self._rows)
        self._unsigned: list[Message] = []

    def use(self, now_ms: int) -> None:
        """Use all groups for an interval."""
        self._member.use(RATE * PUBLISH_MS // 1_000, now_ms)
        entries_max = BYTES_PER_SECOND_MAX * PUBLISH_MS // 1_000 // TOTAL.itemsize
        names, totals = self._own.changes(self._rows.reading(self._rows.shared_rows()), entries_max, now_ms, members=1 + len(self._abouts))
        parts = in_messages(names, totals) if len(totals) else ()
        self._unsigned = [Message(0, self._rows.next_sequence(), 0, 0, None, *part, NO_THROTTLES) for part in parts]

    def messages(self, number: int) -> list[bytes]:
        """Return what a member publishes of this interval."""
        about = self._abouts[number]
        return [encoded(message._replace(incarnation=1 + number, about=about), KEYS) for message in self._unsigned]


class SimulatedBus:
    """One member's connection to a topic.

    Attributes:
        received_bytes: size of the messages of others.
        on_sent: called with position and bytes of each own message.
    """

    name = "simulated"

    def __init__(self, loop: WorkingLoop) -> None:
        self._loop = loop
        self._positions = count()
        self._arrived: list[Received] = []
        self._is_arrived = asyncio.Event()
        self.received_bytes = 0
        self.on_sent: Callable[[int, bytes], None] = lambda _position, _data: None

    def append(self, data: bytes) -> Sent:
        """Accept a message, which arrives at the member later."""
        sent = Sent(next(self._positions), _now_ms(self._loop))
        self._loop.at(self._loop.time() + TOPIC_MS / 1_000, partial(self._arrive, Received(*sent, data)))
        return sent

    def _arrive(self, message: Received) -> None:
        self._arrived.append(message)
        self._is_arrived.set()

    async def start(self) -> None:
        """See `Bus.start`."""

    async def send(self, data: bytes) -> Sent:
        """See `Bus.send`."""
        sent = self.append(data)
        self.on_sent(sent.position, data)
        await asyncio.sleep(TOPIC_MS / 1_000 / 2)
        return sent

    async def read_from(self, _time_ms: int) -> int:
        """See `Bus.read_from`."""
        return 0

    async def receive(self) -> Sequence[Received]:
        """See `Bus.receive`."""
        await self._is_arrived.wait()
        self._is_arrived.clear()
        arrived, self._arrived = self._arrived, []
        return arrived

    async def stop(self) -> None:
        """See `Bus.stop`."""


class NotedRows(FleetRows):
    """Rows of a hub that say when messages are contained in them.

    Attributes:
        on_read: called with the position of the last message.
    """

    on_read: Callable[[int], None]

    @property
    def read(self) -> tuple[int, int]:
        """See `FleetRows.read`."""
        return super().read

    @read.setter
    def read(self, read: tuple[int, int]) -> None:
        FleetRows.read.__set__(self, read)
        self.on_read(read[1])


class Lags:
    """How old usage is when a hub has recorded it. Own messages come back to the hub as those of others arrive, so they are measured."""

    def __init__(self, loop: WorkingLoop) -> None:
        self._loop = loop
        self._shared_s: list[float] = []
        self._under_way: list[tuple[int, int]] = []  # positions of messages, and the number of shares of usage in each with all before
        self._known = 0
        self.ages_ms: list[float] = []

    def shared(self) -> None:
        """Note that the worker has shared usage, which is half of `SHARE_MS` old."""
        self._shared_s.append(self._loop.time() - SHARE_MS / 2 / 1_000)

    def sent(self, position: int, data: bytes) -> None:
        """Note what an own message contains."""
        with self._loop.aside():
            totals = decoded(data, KEYS).totals["total"]
            if len(totals):
                self._under_way.append((position, int(totals.max()) // USED))

    def read(self, position: int) -> None:
        """Note that all messages up to a position are recorded."""
        with self._loop.aside():
            while self._under_way and self._under_way[0][0] <= position:
                _, shares = self._under_way.pop(0)
                self.ages_ms += [1_000 * (self._loop.time() - at_s) for at_s in self._shared_s[self._known : shares]]
                self._known = shares


class SimulatedFleet:
    """A hub, and other members that use the same groups.

    Args:
        members: number of members, with that of the hub.
        at_bound: whether the groups are at their bound; otherwise they are far below it.
    """

    def __init__(self, loop: WorkingLoop, members: int, groups: int, *, at_bound: bool) -> None:
        bound = members * RATE * (1.0 if at_bound else FAR_BELOW)
        self._loop = loop
        self._member = SimulatedMember(groups, bound)
        self._count = members - 1
        self._others = OtherMembers(self._count, groups, float(RATE) if at_bound else bound)
        rows = NotedRows(self._member.segment)
        self.lags = Lags(loop)
        self.bus = SimulatedBus(loop)
        rows.on_read, self.bus.on_sent = self.lags.read, self.lags.sent
        settings = Settings(About("m0", "1", "mute"), PUBLISH_MS, BYTES_PER_SECOND_MAX)
        self._hub = Hub(self.bus, rows, KEYS, settings, lambda: _now_ms(loop))

    async def run(self, seconds: int) -> HubCost:
        """Let the fleet run; return the figures of this time, which begins after `WARM_S`."""
        tasks = [asyncio.create_task(self._hub.run_forever())]
        self._loop.at(self._loop.time(), partial(self._use, self._loop.time()))
        self._loop.at(self._loop.time(), partial(self._send, 0, self._loop.time()))
        await asyncio.sleep(WARM_S)
        begin_s, worked_s = self._loop.time(), self._loop.worked_s
        self.bus.received_bytes = 0
        self.lags.ages_ms.clear()
        await asyncio.sleep(seconds)
        took_s, worked_s = self._loop.time() - begin_s, self._loop.worked_s - worked_s
        tasks[0].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[0]
        ages_ms = self.lags.ages_ms
        return HubCost(worked_s / took_s, self.bus.received_bytes / took_s, float(np.mean(ages_ms)), float(np.percentile(ages_ms, 99)))

    def _use(self, at_s: float) -> None:
        """Let the worker of the hub's member use all groups, and again after `SHARE_MS`."""
        self._member.use(USED, _now_ms(self._loop))
        self.lags.shared()
        at_s += SHARE_MS / 1_000
        self._loop.at(at_s, partial(self._use, at_s))

    def _send(self, number: int, at_s: float) -> None:
        """Let another member publish, and the next one after a part of `PUBLISH_MS`. All use the groups when the first one publishes."""
        if number == 0:
            self._others.use(_now_ms(self._loop))
        for data in self._others.messages(number):
            self.bus.append(data)
            self.bus.received_bytes += len(data)
        at_s += PUBLISH_MS / 1_000 / self._count
        self._loop.at(at_s, partial(self._send, (number + 1) % self._count, at_s))


def hub_cost(members: int, groups: int, *, at_bound: bool, seconds: int = 20) -> HubCost:
    """Return the cost and the lag of the hub of one of `members`, all of which use the same groups, at their bound or far below it."""
    loop = WorkingLoop()
    try:
        return loop.run_until_complete(SimulatedFleet(loop, members, groups, at_bound=at_bound).run(seconds))
    finally:
        loop.close()


def _now_ms(loop: WorkingLoop) -> int:
    return START_MS + int(loop.time() * 1_000)
