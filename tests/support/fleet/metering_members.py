"""Members of a fleet inside one process that meter: on one clock, while the wall clocks of their machines differ by an hour each."""

import json
from collections.abc import Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from proxy.fleet.bus.bus import Received
from proxy.fleet.clock import Clock as BusClock
from proxy.fleet.hub import HISTORY_MS
from proxy.fleet.own_usage import REPEAT_MS
from tests.support.fleet.fleet_members import KEYS, FleetMember, workers_of
from tests.support.memory.shared_workers import new_segment
from tests.support.metering.metering_workers import Clock, Member, MeteringWorker, Step

HOUR_MS = 3_600_000
LAG_MS = 40
"""Time of a message through the bus."""
PUBLISH_MS = 50
FLEET = "edge"


class MeteringMember(FleetMember):
    """A member whose workers meter."""

    def __init__(
        self,
        directory: Path,
        number: int,
        clock: Clock,
        workers: int = 1,
        level: str = "packed",
        life: int = 0,
        burst_ms: int | None = None,
        changes_pacing: bool = False,
    ) -> None:
        self.name, self.keys, self.lag_ms = "abcd"[number], KEYS, LAG_MS + PUBLISH_MS
        self.segment = new_segment(workers, has_fleet=True)
        self.clock = BusClock(0, 0)
        self.assumes_silence, self.is_cut_off = True, False
        self._time = clock
        incarnation = self.segment.identity
        of_fleet = {"id": "f" * 16, "name": FLEET, "member": self.name, "incarnation": incarnation, "column": workers_of(self.segment)}
        member = Member(self.name, KEYS.digests, number * HOUR_MS, of_fleet)
        paced: dict[str, Any] = {"burst_ms": burst_ms, "changes_pacing": changes_pacing}
        self.metering = [
            MeteringWorker(directory, self.segment, at, clock, life=life, level=level, member=member, **paced) for at in range(workers)
        ]
        self.heard: dict[str, str] = {}
        self.start_hub(clock.now_ms)

    def publish(self, now_ms: int, bus_ms: int = 0) -> list[bytes]:
        """Return the messages of what is new here."""
        for worker in self.metering:
            worker.publish(now_ms)
        self.workers = []
        return super().publish(now_ms, bus_ms)

    def hear(self, data: bytes, now_ms: int, bus_ms: int = 0, *, counts: bool = True) -> bool:
        """Take a message; return whether it was new. `members.record` follows."""
        is_new = super().hear(data, now_ms, bus_ms, counts=counts)
        self.heard |= {f"{peer.incarnation:016x}": peer.about.member for peer in self.members.peers.values() if peer.about}
        return is_new

    def stop(self) -> None:
        """Meter who was heard, then write everything."""
        self.note_fleet()
        for worker in self.metering:
            worker.stop()

    def note_fleet(self) -> None:
        """Meter what is known of the fleet, as a supervisor does."""
        self.metering[0].note_state(json.dumps({"clock_ms": 0, "members": self.heard, "is_cut_off": self.is_cut_off}))

    def assume(self, now_ms: int) -> None:
        """Record what is assumed while this member is cut off."""
        self.members.update(now_ms, self.lag_ms, is_cut_off=True)

    def start_hub_again(self, history: Sequence[bytes]) -> None:
        """Start the hub again after it has died; it reads the messages that it had recorded."""
        now_ms = self._time.now_ms
        self.start_hub(now_ms)
        for data in history:
            message = self.members.read(Received(0, 0, data), now_ms)
            assert message is not None
            self.members.take(message, now_ms, counts=False, clock=self.clock, is_recorded=True)
            self.members.record(now_ms)


class FleetStep(NamedTuple):
    """A step of a worker of a member, or of the member: `cut` it off, `heal` it, or start its `hub` again."""

    member: int
    step: Step


class Fleet:
    """Members that exchange their usage over a bus with a lag. With a burst groups of bytes are paced, or change as in `play`."""

    def __init__(
        self,
        directory: Path,
        members: int = 2,
        workers: int = 1,
        level: str = "packed",
        *,
        burst_ms: int | None = None,
        changes_pacing: bool = False,
    ) -> None:
        self.time = Clock()
        paced: dict[str, Any] = {"burst_ms": burst_ms, "changes_pacing": changes_pacing}
        self.members = [MeteringMember(directory, number, self.time, workers, level, **paced) for number in range(members)]
        self._log: list[tuple[int, MeteringMember, bytes]] = []
        self._read = [0] * members

    def play(self, steps: Sequence[FleetStep]) -> None:
        """Let the members perform the steps."""
        for step in steps:
            self.advance(step.step.after_ms)
            self.take(step)

    def advance(self, time_ms: int) -> None:
        """Let time pass, while workers publish each 10 ms and hubs each 50 ms."""
        end_ms = self.time.now_ms + time_ms
        while self.time.now_ms < end_ms:
            self.time.now_ms = now_ms = min(self.time.now_ms + 10 - self.time.now_ms % 10, end_ms)
            for member in self.members if now_ms % 10 == 0 else ():
                for worker in member.metering:
                    worker.publish(now_ms)
            if now_ms % 10 == 0:
                self._deliver(now_ms)
            if now_ms % PUBLISH_MS == 0:
                self._publish(now_ms)

    def take(self, step: FleetStep) -> None:
        """Perform a step."""
        member, action = self.members[step.member % len(self.members)], step.step
        match action.kind:
            case "cut":
                member.is_cut_off = True
                member.note_fleet()
            case "heal":
                member.is_cut_off = False
                member.note_fleet()
            case "hub":
                log = self._log[: self._read[self.members.index(member)]]
                begin_ms = self.time.now_ms - HISTORY_MS
                member.start_hub_again([data for sent_ms, sender, data in log if sender is not member and sent_ms >= begin_ms])
            case _:
                member.metering[action.worker % len(member.metering)].take(action)

    def stop(self) -> None:
        """Let the last usage arrive, and write the files."""
        self.advance(REPEAT_MS + 1_000)
        for member in self.members:
            member.stop()

    def _publish(self, now_ms: int) -> None:
        for member in self.members:
            if member.is_cut_off:
                member.assume(now_ms)
            else:
                self._log += [(now_ms, member, data) for data in member.publish(now_ms)]

    def _deliver(self, now_ms: int) -> None:
        for at, member in enumerate(self.members):
            if member.is_cut_off:
                continue
            some = list(takewhile(lambda sent: sent[0] + LAG_MS <= now_ms, self._log[self._read[at] :]))
            self._read[at] += len(some)
            for sent_ms, together in groupby(some, itemgetter(0)):
                at_ms, is_young = min(now_ms, sent_ms + LAG_MS), now_ms - sent_ms < member.rows.window_ms
                for _, sender, data in together:
                    if sender is not member:
                        member.hear(data, at_ms, counts=is_young)
                member.members.record(at_ms)
