"""Members of a fleet inside one process, on a clock that the test moves; the test carries their messages."""

from collections.abc import Sequence

import numpy as np

from proxy.fleet.bus.bus import Received
from proxy.fleet.clock import Clock
from proxy.fleet.keys import FleetKeys, fleet_keys
from proxy.fleet.members import Members
from proxy.fleet.own_usage import OwnUsage, in_messages
from proxy.fleet.rows import FleetRows, Reading
from proxy.fleet.wire import About, Message, encoded
from proxy.shared_usage.segment import Segment
from quota.entity import ClientQuotaType
from tests.support.memory.shared_workers import SharedWorker, new_segment

SECRET = b"s" * 32
KEYS = fleet_keys("edge", SECRET)


def workers_of(segment: Segment) -> int:
    """Return the number of workers of a segment with a fleet, which is also the fleet's number."""
    assert segment.fleet is not None
    return segment.fleet


class FleetMember:
    """One member with some workers, each with one group.

    Attributes:
        workers: they record usage of the same group.
        clock: the time of the bus, as the member knows it.
        lag_ms: the lag of the bus; 0: nothing is assumed.
        assumes_silence: whether usage of members that are not heard is assumed.
        is_cut_off: whether the member hears nobody.
        members: the other members, as this one knows them.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        bound: float,
        now_ms: int,
        *,
        keys: FleetKeys = KEYS,
        scope_key: str = "1",
        quota_type: ClientQuotaType = ClientQuotaType.PRODUCE,
    ) -> None:
        self.name = name
        self.keys = keys
        self.segment = new_segment(workers, has_fleet=True)
        self.lag_ms = 0
        self.clock = Clock(0, 0)
        self.assumes_silence = self.is_cut_off = False
        self.settings = {"scope_key": scope_key, "quota_type": quota_type, "fleet_key": keys.digests}
        self.workers = [SharedWorker(self.segment, number, bound, now_ms, **self.settings) for number in range(workers)]
        self.start_hub(now_ms)

    def start_hub(self, now_ms: int) -> None:
        """Start the hub, or start it again after it has died."""
        self.segment.enter(workers_of(self.segment), now_ms)
        self.rows = FleetRows(self.segment)
        self.own = OwnUsage(self.rows)
        self.members = Members(self.rows, self.keys)

    def publish(self, now_ms: int, bus_ms: int = 0) -> list[bytes]:
        """Return the messages of what is new here; `bus_ms` is the time of the bus, 0: not known."""
        for worker in self.workers:
            worker.publish(now_ms)
        throttles = self.members.throttles.changes(self.clock, now_ms)
        members = 1 + len(list(self.members.live(now_ms)))
        queues = self.members.queues.changes(self.reading(), self.clock, now_ms)
        also_named = np.concatenate((throttles["id"], queues["id"])).astype(np.int64)
        names, totals = self.own.changes(self.reading(), 1_000, now_ms, also_named, members=members)
        if self.assumes_silence:
            self.members.update(now_ms, self.lag_ms, is_cut_off=self.is_cut_off)
        else:
            self.members.factors.update(now_ms)
            self.rows.set_others(self.lag_ms, len(list(self.members.live(now_ms))))
        about = About(self.name, "1", "mute")
        messages = [
            Message(self.segment.incarnation, self.rows.next_sequence(), 7, bus_ms, about, *some, throttles, queues=queues)
            for some in in_messages(names, totals)
        ]
        return [encoded(message, self.keys) for message in messages]

    def reading(self) -> Reading:
        """Return what the rows that the fleet shares contain."""
        return self.rows.reading(self.rows.shared_rows())

    def receive(self, data: bytes, now_ms: int, bus_ms: int = 0, *, counts: bool = True) -> bool:
        """Take a message and record it; return whether it was new."""
        is_new = self.hear(data, now_ms, bus_ms, counts=counts)
        self.members.record(now_ms)
        return is_new

    def hear(self, data: bytes, now_ms: int, bus_ms: int = 0, *, counts: bool = True) -> bool:
        """Take a message; return whether it was new. `members.record` follows."""
        message = self.members.read(Received(0, bus_ms, data), now_ms)
        return message is not None and self.members.take(message, now_ms, counts=counts, clock=self.clock)

    def known(self, now_ms: int) -> list[float]:
        """Return what each worker's group knows of all usage."""
        for worker in self.workers:
            worker.publish(now_ms)
        for worker in self.workers:
            worker.group.would_throttle_ms(0, now_ms)
        return [worker.known for worker in self.workers]


def exchange(some: Sequence[FleetMember], now_ms: int) -> None:
    """Let every member receive what the others have to say."""
    messages = [(one, data) for one in some for data in one.publish(now_ms)]
    for sender, data in messages:
        for one in some:
            if one is not sender:
                one.receive(data, now_ms)
