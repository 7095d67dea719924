"""The cost of a hub on virtual time, without that of the client of the bus: members with many groups that use them all the time."""

from __future__ import annotations

import time
from typing import NamedTuple

from proxy.fleet.bus.bus import Received
from proxy.fleet.clock import Clock
from proxy.fleet.hub import PAUSE_MS, PAUSE_MS_MAX, UPDATE_S
from proxy.fleet.keys import fleet_keys
from proxy.fleet.members import Members
from proxy.fleet.own_usage import OwnUsage, in_messages
from proxy.fleet.rows import FleetRows
from proxy.fleet.wire import About, Message, encoded
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.workers.start import GROUP_ROWS
from quota.entity import ClientQuotaType

PUBLISH_MS = 50
UPDATES = round(UPDATE_S * 1_000 / PUBLISH_MS)
START_MS = 1_000_000
WARM = 240
"""Intervals before the measurement, in which the windows fill."""
USED = 1_000.0
"""Units that a member uses of each group in an interval."""
FAR_BELOW = 20.0
"""Bound of groups far below it, in multiples of what is used."""
CLOCK = Clock(0, 0)
KEYS = fleet_keys("bench", b"s" * 32)


class HubCost(NamedTuple):
    """The cost of one member's hub.

    Attributes:
        core: processor time for each second of the fleet, of one core.
        bytes_per_second: what the hub receives.
    """

    core: float
    bytes_per_second: float


class SimulatedMember:
    """A member with one worker and many groups."""

    def __init__(self, number: int, groups: int, bound: float) -> None:
        self.segment = Segment.create(2, GROUP_ROWS, 11, 1_000, has_fleet=True)
        self.usage = SharedUsage(self.segment, 0, fleet_key=KEYS.digests)
        make = self.usage.of_scope("1").maker(ClientQuotaType.PRODUCE)
        self.groups = [make({"client-id": f"client-{at}"}, bound) for at in range(groups)]
        self.rows = FleetRows(self.segment)
        self.own = OwnUsage(self.rows)
        self.members = Members(self.rows, KEYS)
        self.about = About(f"m{number}", "1", "mute")

    def use(self, now_ms: int) -> None:
        """Record usage of each group."""
        for group in self.groups:
            group.record_unchecked(USED, now_ms)
        self.usage.publish_all(now_ms)

    def publish(self, now_ms: int) -> list[bytes]:
        """Return the messages of this interval."""
        names, totals = self.own.changes(1_000_000, now_ms, members=1 + len(self.members.peers))
        throttles = self.members.throttles.changes(CLOCK, now_ms)
        queues = self.members.queues.changes(CLOCK, now_ms)
        if not len(totals):
            return []
        return [
            encoded(Message(self.segment.incarnation, self.rows.next_sequence(), 0, 0, self.about, *some, throttles, queues=queues), KEYS)
            for some in in_messages(names, totals)
        ]


def hub_cost(members: int, groups: int, *, at_bound: bool, seconds: int = 20) -> HubCost:
    """Return the cost of the hub of one of `members`, all of which use the same groups, at their bound or far below it."""
    bound = USED * 1_000 / PUBLISH_MS * (1.0 if at_bound else FAR_BELOW)
    own = SimulatedMember(0, groups, bound * members)
    others = [SimulatedMember(number, groups, bound) for number in range(1, members)]  # each knows only its own usage
    pause_ms = min(PAUSE_MS_MAX, PAUSE_MS * len(others))
    together = max(1, len(others) * pause_ms // PUBLISH_MS)  # messages that arrive during a pause
    spent_s = 0.0
    size = position = 0
    for at in range(-WARM, seconds * 1_000 // PUBLISH_MS):
        if at == 0:  # all groups are named
            spent_s, size = 0.0, 0
        now_ms = START_MS + at * PUBLISH_MS
        own.use(now_ms)
        messages = []
        for other in others:
            other.use(now_ms)
            messages += other.publish(now_ms)
        size += sum(map(len, messages))
        begin_s = time.process_time()
        for data in messages:
            position += 1
            message = own.members.read(Received(position, now_ms, data), now_ms)
            assert message is not None
            own.members.take(message, now_ms, counts=True, clock=CLOCK)
            if position % together == 0:
                own.members.record(now_ms)
        if at % UPDATES == 0:
            own.members.update(now_ms, 100, is_cut_off=False)
        own.publish(now_ms)
        spent_s += time.process_time() - begin_s
    return HubCost(spent_s / seconds, size / seconds)
