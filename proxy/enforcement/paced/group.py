"""A group with paced enforcement. Its sensor goes on measuring, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from proxy.enforcement.groups.child_groups import PendingAbove
from proxy.enforcement.mode import AGE_MAX_MS, INT32_MAX
from proxy.enforcement.paced.line import PacedLine
from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup
from quota.paced_schedule import MS_NS, SECOND_NS, PacedSchedule, cost_ns, ms_after

NOTHING: Final = -1, 0
RECENT_MS: Final = 2_000
"""The highest number of open fetches of this time, or of the time before, shares the burst."""


class PacedGroup(PendingAbove):
    """A group whose requests pass by a schedule.

    A Produce is charged when it passes. A fetch reserves the most that it may return (`pending`) and is charged when its response
    arrives. A request passes when the schedules of the group and of its parents are at most the burst ahead of the clock, together with
    what is reserved.

    Attributes:
        schedule: when the next request may pass.
        line: the waiting requests and the members; the fetches among them are notified by it (`fetch_queue`).
        open_fetches: fetches that wait or are in flight.
    """

    __slots__ = ("_cost", "_last_size", "_peak", "_peak_before", "_peak_since_ms", "line", "open_fetches", "schedule")

    is_paced = True
    processes = 1
    """Processes that admit requests of the group: each may admit a fetch before it knows of those that others admit at this moment."""
    assumed_ns = 0
    """Cost of what other members of a fleet are assumed to have passed that is not known yet."""
    parent: PacedGroup | None

    def __init__(
        self, tags: Mapping[str, str], bound: float = UNLIMITED, parent: PacedGroup | None = None, *, burst_ns: int, **settings: Any
    ) -> None:
        super().__init__(tags, bound, **settings)
        self.parent = parent
        self.schedule = PacedSchedule(burst_ns)
        self.line = PacedLine(burst_ns)
        self._last_size, self._cost = NOTHING
        self.open_fetches = self._peak = self._peak_before = self._peak_since_ms = 0

    @property
    def chain(self) -> Iterator[PacedGroup]:
        """This group and its parents that have a bound."""
        group: PacedGroup | None = self
        while group is not None:
            if group.bound < UNLIMITED:
                yield group
            group = group.parent

    def update_bound(self, bound: float) -> None:
        """Use `bound` from the next request on. The schedule keeps its lead, which was charged by the bound of before."""
        super().update_bound(bound)
        self._last_size, self._cost = NOTHING

    def cost_ns(self, amount: int) -> int:
        """Return the cost of a request; requests of one client often have one size."""
        if amount != self._last_size:
            self._last_size, self._cost = amount, cost_ns(amount, self.bound)
        return self._cost

    def due_ns(self, now_ns: int, reserved: int = 0) -> int:
        """Return when the schedules of this group and its parents let a request pass.

        Args:
            now_ns: the time, in monotonic nanoseconds.
            reserved: the most bytes that a fetch may return; 0: a Produce, which is charged at once.
        """
        due_ns = 0
        for group in self.chain:
            virtual_ns = group.schedule.virtual_ns
            if group.assumed_ns:
                virtual_ns = max(virtual_ns, now_ns) + group.assumed_ns
            if reserved:  # what is in flight is charged when it arrives, from then on if the schedule is idle
                open_ns = cost_ns(int(group.pending) + min(reserved * group.processes, group.burst_bytes), group.bound)
                virtual_ns = max(virtual_ns, now_ns) + (open_ns if group.pending else min(open_ns, group.schedule.burst_ns))
            due_ns = max(due_ns, virtual_ns - group.schedule.burst_ns)
        return due_ns

    @property
    def virtual_ns(self) -> int:
        """The latest virtual time of this group and its parents."""
        return max((group.schedule.virtual_ns for group in self.chain), default=0)

    def wait_ms(self, now_ms: int) -> int:
        """Return how long the schedules let no further request pass."""
        now_ns = now_ms * MS_NS
        return ms_after(max((group.schedule.wait_ns(now_ns) for group in self.chain), default=0))

    def lead_ms(self, now_ms: int) -> int:
        """Return how far the schedule of this group is ahead of the clock."""
        return self.schedule.lead_ns(now_ms * MS_NS) // MS_NS

    @property
    def burst_bytes(self) -> int:
        """The bytes of the burst; at least one."""
        return max(1, int(min(self.bound * self.schedule.burst_ns / SECOND_NS, INT32_MAX)))

    def fits_age_step(self, amount: int, read_ms: int, now_ms: int) -> bool:
        """Whether a request that has waited for 25 s may pass before its time: one in 25 s, with no more than the bound passes in them."""
        if now_ms - max(read_ms, self.last_throttle_round_ms) < AGE_MAX_MS:
            return False
        return all(amount <= group.bound * AGE_MAX_MS / 1_000 for group in self.chain)

    def refresh(self, now_ms: int) -> None:
        """Learn of other processes, before a request is checked. Overridden by groups that several processes share."""

    def note_charged(self, now_ms: int) -> None:
        """The schedule was charged. Overridden by groups that several processes share."""

    def checked_bytes(self, amount: int, reserved: int, now_ms: int) -> int:
        """Return the part of a response to a fetch that the schedule admitted: what it had reserved."""
        return min(amount, reserved)

    def record(self, amount: float, now_ms: int) -> int:
        """Charge and record an amount that has passed; nothing is throttled by it. The schedule makes the next requests wait."""
        now_ns, size = now_ms * MS_NS, int(amount)
        group: PacedGroup | None = self
        while group is not None:
            if group.bound < UNLIMITED:
                group.schedule.charge(group.cost_ns(size), now_ns)
            QuotaGroup.record_unchecked(group, amount, now_ms)
            group.note_charged(now_ms)
            group = group.parent
        return 0

    def record_within(self, amount: float, now_ms: int) -> bool:
        """Return False: what passes is always charged, by `record`."""
        return False

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Charge and record an amount, like `record`."""
        self.record(amount, now_ms)

    def share_bytes(self, now_ms: int) -> int:
        """Return the most bytes that one fetch may return now: its share of the burst among open fetches and processes."""
        fetches = self.open_everywhere
        if now_ms - self._peak_since_ms >= RECENT_MS:
            self._peak_before, self._peak, self._peak_since_ms = self._peak, fetches, now_ms
        self._peak = max(self._peak, fetches)
        shared = min(group.burst_bytes for group in self.chain)
        return max(1, shared // (max(self._peak, self._peak_before, 1) + self.processes))

    @property
    def open_everywhere(self) -> int:
        """Fetches that wait or are in flight, in all processes."""
        return self.open_fetches

    def note_waiting(self, now_ms: int) -> None:
        """Requests wait: the group is throttled at least until the next one may pass."""
        self.throttled_until_ms = max(self.throttled_until_ms, now_ms + max(1, self.wait_ms(now_ms)))

    def note_wait(self, waited_ms: int) -> None:
        """Count the wait of a request that passes."""
        self.throttle_count += 1
        self.throttle_ms_total += waited_ms

    def is_idle(self, longer_than_ms: int, now_ms: int) -> bool:
        """Whether nothing was recorded for longer than this, nothing waits, and the schedule is idle."""
        return super().is_idle(longer_than_ms, now_ms) and not self.line and not self.open_fetches and not self.lead_ms(now_ms)

    def like(self) -> dict[str, Any]:
        """Return the settings for another group that measures in the same way."""
        return super().like() | {"burst_ns": self.schedule.burst_ns}

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which replaces this one; a group with a window continues the sensor only."""
        super().copy_to(other)
        if isinstance(other, PacedGroup):
            other.schedule.virtual_ns = self.schedule.virtual_ns
