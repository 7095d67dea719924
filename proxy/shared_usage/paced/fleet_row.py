"""The usage of a declared group below a paced one over the members of a fleet.

Each worker adds to a row what it charges the group, and the hub publishes it as it publishes the usage of a group with a bound. What the
other proxies have used is charged here by one of the workers: the first one that notes it as taken. Two workers that read it at the same
time charge it to the same virtual time, of which one counts.

The row also has the virtual time of the part of the group that this proxy passes, one over all of its workers: each publishes it when it
has charged it, and the newest one counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.shared_usage.paced.rows import MemberRow
from proxy.shared_usage.segment import SCHEDULE
from proxy.shared_usage.usage_row import UsageRow, UsageRows
from quota.groups.group import GroupKey
from quota.paced_schedule import MS_NS

USAGE: Final = "usage of "
"""Begins the name of this row among the members of a group."""
LATE_MS: Final = 1_000
"""Time after which what others have used meanwhile is not all charged."""


class Taken(NamedTuple):
    """What the other members of the fleet have used.

    Attributes:
        amount: what no worker had taken yet, in the unit of totals.
        used: since the last look of this worker.
        is_late: whether that was long ago.
    """

    amount: int
    used: int
    is_late: bool


NOTHING: Final = Taken(0, 0, is_late=False)


class FleetRow:
    """The row of one declared group.

    Args:
        rows: the rows of the quota type and scope.
        key: the key of the group with a bound that it is below.
        tag: its name among all members of this group.

    Attributes:
        window_max: what it may use in a window at its share, as it was published last.
        members: number of members of the fleet that are heard, with this one.
        cost_ns: what it was charged at once for usage elsewhere lately.
        free_ms: when this proxy has passed, or could pass, requests of it last, as far as this worker knows.
        virtual_ns: the virtual time of the part of this proxy, at an equal part of the share of the group.
    """

    __slots__ = ("_looked_ms", "_row", "_rows", "_seen", "_total", "cost_ns", "free_ms", "members", "virtual_ns", "window_max")

    def __init__(self, rows: UsageRows, key: GroupKey, tag: str) -> None:
        self._rows = rows
        self._row = MemberRow(rows, key, f"{USAGE}{tag}", is_of_fleet=True)
        self._looked_ms = self._total = self.window_max = self.virtual_ns = self.free_ms = 0
        self._seen: list[int] = []
        self.members = 1
        self.cost_ns = 0

    def add(self, amount: int, now_ms: int) -> None:
        """Publish what was charged here, in bytes or in nanoseconds of handler time; less than 0: what was charged too much.

        Without a row, the other members do not learn of it.
        """
        row = self._held(now_ms)
        if row is not None:
            row.publish_more(amount, now_ms)

    def note_window_max(self, amount: int, now_ms: int) -> None:
        """Publish what the group may use in a window, so that the hub knows which usage matters at other members."""
        row = self._held(now_ms)
        if row is not None and amount != self.window_max:
            self.window_max = amount
            row.publish_window_max(amount)

    def taken(self, recent_ms: int, now_ms: int) -> Taken:
        """Take what the other members have used and no worker has taken yet.

        When the last call was long ago, only what was used in the last `recent_ms` counts.
        """
        row, fleet = self._held(now_ms), self._rows.fleet
        if row is None or fleet is None:
            return NOTHING
        self.members = 1 + row.elsewhere().others
        total = row.used()[fleet]
        amount, used, self._total = row.take_elsewhere(), total - self._total, total
        is_late, self._looked_ms = now_ms - self._looked_ms > LATE_MS, now_ms
        if used and is_late:
            since_ms = now_ms - recent_ms - self._rows.slot_ms
            recent = sum(part for start_ms, part in row.sums(fleet) if start_ms > since_ms)
            amount, used = min(amount, recent), min(used, recent)
        return Taken(amount, used, is_late)

    def sync(self, now_ms: int) -> None:
        """Take over the virtual time that other workers have published since the last call."""
        row = self._held(now_ms)
        if row is None:
            return
        workers = self._rows.workers
        virtual = row.used()[3 * workers : 4 * workers]
        if virtual != self._seen:
            before = self._seen or [0] * workers
            changed = [word for worker, word in enumerate(virtual) if word != before[worker] and worker != self._rows.worker and word]
            if changed:
                self.virtual_ns, self.free_ms = max(changed) - SCHEDULE, now_ms
            self._seen = virtual

    def charge(self, cost_ns: float, now_ns: int, burst_ns: int) -> None:
        """Charge the part of this proxy for a request that the group is charged `cost_ns` for, never from further ahead than the burst."""
        self.free_ms = now_ns // MS_NS
        self.sync(self.free_ms)
        self.virtual_ns = min(max(self.virtual_ns, now_ns), now_ns + burst_ns) + int(cost_ns * self.members)
        self._publish(self.free_ms)

    def take_back(self, cost_ns: float, now_ns: int) -> None:
        """Take back a part of what it was charged, for which the group gets back `cost_ns`."""
        self.sync(now_ns // MS_NS)
        self.virtual_ns -= int(cost_ns * self.members)
        self._publish(now_ns // MS_NS)

    def release(self) -> None:
        """Stop using the row."""
        self._row.release()

    def _publish(self, now_ms: int) -> None:
        row = self._held(now_ms)
        if row is not None:
            row.publish_waiting(0, SCHEDULE + self.virtual_ns)

    def _held(self, now_ms: int) -> UsageRow | None:
        row = self._row.held()
        if row is not None and row.scope_key == self._rows.scope_key:
            return row
        self._row.release()
        self.window_max, self._total, self._seen = 0, 0, []
        return self._row.claim(now_ms)
