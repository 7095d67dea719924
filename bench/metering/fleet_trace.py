"""Metering directories of the members of a fleet, of any size. Each member has one worker, and a hub that publishes each 50 ms.

Arrivals are those of `bench.metering.workers_trace`, each at a random member. Members take turns in one process, on one clock, and their
messages take 40 ms. The same seed gives the same decisions on every machine.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.metering.trace import Shape
from bench.metering.workers_trace import GROUP_ROWS, Clock, Worker, arrivals_of, play
from metering_format.event_kinds import RECORD
from metering_format.places import FLEET
from proxy.fleet.clock import Clock as BusClock
from proxy.fleet.own_usage import REPEAT_MS
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import SHARE_MS
from tests.support.fleet.fleet_members import KEYS, FleetMember

PUBLISH_MS: Final = 50
LAG_MS: Final = 40
NAME: Final = "bench"


@dataclass(frozen=True, slots=True)
class MadeByMembers:
    """The result.

    Attributes:
        decisions: those of all members, un-records included.
        units: what each member used itself.
        throttled: decisions with a wait.
    """

    decisions: int
    units: dict[str, int]
    throttled: int


class MeteringMember(FleetMember):
    """A member whose worker meters."""

    def __init__(self, directory: Path, shape: Shape, number: int, clock: Clock, bounds: list[float]) -> None:
        self.name, self.keys, self.lag_ms = f"member-{number}", KEYS, LAG_MS + PUBLISH_MS // 2 + SHARE_MS // 2
        self.segment = Segment.create(1, GROUP_ROWS, shape.num_samples, shape.window_ms, has_fleet=True)
        self.assumes_silence, self.is_cut_off, self.workers = True, False, []
        self.clock = BusClock(0, 0)
        incarnation = self.segment.identity
        of_fleet = {"id": "f" * 16, "name": NAME, "member": self.name, "incarnation": incarnation, "column": 1}
        self.worker = Worker(directory, self.segment, 0, clock, bounds, name=self.name, fleet_key=KEYS.digests, settings={FLEET: of_fleet})
        self.start_hub(clock.now_ms)

    def note_fleet(self) -> None:
        """Meter who was heard, as a supervisor does."""
        heard = {f"{peer.incarnation:016x}": peer.about.member for peer in self.members.peers.values() if peer.about}
        self.worker.note_state(json.dumps({"clock_ms": 0, "members": heard, "is_cut_off": False}))


class Bus:
    """Carries the messages of all members."""

    def __init__(self, members: list[MeteringMember]) -> None:
        self._members = members
        self._under_way: deque[tuple[int, MeteringMember, bytes]] = deque()
        self._published_ms = 0

    def advance(self, now_ms: int) -> None:
        """Deliver what has arrived by now, and publish each `PUBLISH_MS`."""
        while self._under_way and self._under_way[0][0] <= now_ms:
            _, sender, data = self._under_way.popleft()
            for member in self._members:
                if member is not sender:
                    member.receive(data, now_ms)
        if now_ms - self._published_ms >= PUBLISH_MS:
            self._published_ms = now_ms
            for member in self._members:
                self._under_way += [(now_ms + LAG_MS, member, data) for data in member.publish(now_ms)]


def make(directory: Path, shape: Shape, count: int) -> MadeByMembers:
    """Let members decide, and write their decisions into an empty directory."""
    columns, bounds = arrivals_of(shape, count)
    clock = Clock()
    members = [MeteringMember(directory, shape, number, clock, bounds) for number in range(count)]
    bus, workers = Bus(members), [member.worker for member in members]
    play(workers, clock, columns, bus.advance)
    _hear_all(members, bus, clock)
    for member in members:
        member.note_fleet()
        member.worker.stop()
    decisions = len(columns[0]) + sum(len(worker.refs) for worker in workers)
    units = {member.name: int(np.sum(member.worker.used)) for member in members}
    return MadeByMembers(decisions, units, sum(worker.throttled for worker in workers))


def _hear_all(members: list[MeteringMember], bus: Bus, clock: Clock) -> None:
    """Let all usage arrive, then let each member use all its groups once more, so that its worker records what has arrived."""
    for after_ms in range(2 * REPEAT_MS // SHARE_MS):
        clock.now_ms += SHARE_MS
        for member in members:
            member.worker.usage.publish_all(clock.now_ms)
        bus.advance(clock.now_ms)
        if after_ms % 10 == 0:
            for member in members:
                member.worker.meter.flush()
    for member in members:
        for ref in member.worker.refs:
            member.worker.decide(ref, 0, RECORD)
        member.worker.usage.publish_all(clock.now_ms)
        member.worker.meter.flush()
