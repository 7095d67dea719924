"""Paced groups that several processes share: each charges its schedule for what the others have passed.

Usage of other processes is recorded when it is read, as in groups with a window, and moves the schedule on at the time of the record. So a
schedule with the same records has the same lead, to the last nanosecond.

When usage is published and read
    A process that learns of others late passes a part of the burst too much. So as soon as half of the burst is used, a request is checked
    with what is in the row at that moment, and is in the row before the next one is checked. Below it, a process reads the row after
    `SHARE_MS`, or when it has used its share of the half: all processes together cannot reach the burst without knowing of each other. A
    group of fetches always reads, since what they reserve is known to the row only.

In a fleet
    Usage of other members is known after D. Until then c x u is assumed, as for groups with a window (`assumption`), where u is what this
    member used in the last D, with what its fetches in flight reserve. The assumption is not charged: a request waits until the schedule
    and the assumption together are at most the burst ahead. So the schedule is that of the records, and is never behind them. A member that
    passes less than its part records usage of the others a little later (`fleet_part`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from proxy.enforcement.groups.enforced_groups import UNKNOWN, EnforcedGroup
from proxy.enforcement.paced.group import PacedGroup, weighs_one
from proxy.enforcement.paced.member import Member, Weigh
from proxy.enforcement.paced.time_group import PacedTimeGroup
from proxy.shared_usage.assumption import LAG_MS_MAX, NEW_LAGS, NOBODY, Assumption, FleetUsage, is_shared_scope
from proxy.shared_usage.paced.fleet_part import FleetPart
from proxy.shared_usage.paced.fleet_shares import note_used
from proxy.shared_usage.paced.line import SharedLine
from proxy.shared_usage.paced.members import SharedMember
from proxy.shared_usage.paced.words import FETCHES_MAX
from proxy.shared_usage.segment import SCHEDULE
from proxy.shared_usage.shared_groups import SHARE_MS, SharedPending, SharedRounds
from proxy.shared_usage.sharing import Remote, Sharing
from proxy.shared_usage.usage_row import UsageRow, UsageRows
from quota.entity import UNLIMITED
from quota.paced_schedule import MS_NS, cost_ns
from quota.sensor import NEVER_MS

ALWAYS_NS: Final = -1
"""Every check reads the row."""


class PacedSharing(Sharing):
    """The sharing of one paced group.

    Attributes:
        part: the part of this proxy in a fleet; None: there is no fleet.
    """

    __slots__ = ("part",)

    def __init__(self, rows: UsageRows) -> None:
        super().__init__(rows)
        self.part = None if rows.fleet is None else FleetPart()

    def pull(self, group: EnforcedGroup, now_ms: int) -> None:
        """Record and charge what others have published since the last call, in a fleet as far as the part of this proxy requires it."""
        if self.part is not None and self.row is not None and isinstance(group, SharedPacedGroup):
            used = round((group.recorded_total - self.fleet) * self.rows.per_unit)
            self.part.held = 0
            self.part.note_used(group, used, 1 + self.row.elsewhere().others, now_ms)
        super().pull(group, now_ms)

    def publish(self, group: EnforcedGroup, now_ms: int) -> None:
        """Publish this process's usage, the virtual time of the schedule, and the members here."""
        self.answer_bytes = group.fetch_answer_bytes  # its place has another word
        super().publish(group, now_ms)
        row = self.row
        if row is None or not isinstance(group, SharedPacedGroup):
            return
        workers = self.rows.workers
        at = 2 * workers + self.rows.worker
        shown = [group.line.first_word(group.open_fetches, now_ms), SCHEDULE + group.schedule.virtual_ns, group.line.root.word(now_ms)]
        if shown[:2] != self.seen[at : at + workers + 1 : workers]:
            row.publish_waiting(shown[0], shown[1])
        if shown[2] != self.seen[at + 2 * workers]:
            row.publish_answer(shown[2] - 1)
        self.seen[at : at + 2 * workers + 1 : workers] = shown

    def _take_in(self, group: EnforcedGroup, row: UsageRow, used: list[int], now_ms: int) -> None:
        super()._take_in(group, row, used, now_ms)
        if isinstance(group, SharedPacedGroup):
            workers, own = self.rows.workers, self.rows.worker
            words, firsts = used[4 * workers : 5 * workers], used[2 * workers : 3 * workers]
            words[own] = firsts[own] = 0
            if not self.rows.assumes_at_record:
                self.waiting_elsewhere = sum(first & FETCHES_MAX for first in firsts)
            group.line.root.learn(words, firsts, now_ms)

    def _record(self, group: EnforcedGroup, time_ms: int, worker: int, amount: int, source_total: int) -> int:
        """Record usage of another process, and charge the schedule for it."""
        time_ms = super()._record(group, time_ms, worker, amount, source_total)
        if isinstance(group, SharedPacedGroup) and amount > 0 and group.bound < UNLIMITED:
            group.schedule.charge(group.cost_ns(amount), time_ms * MS_NS)
        return time_ms

    def _held_back(self, group: EnforcedGroup, seen: int, total: int, now_ms: int) -> int:
        if self.part is None or not isinstance(group, SharedPacedGroup):
            return 0
        return self.part.hold(group, seen, total, now_ms, is_of_fetches=not self.rows.assumes_at_record)

    def _used_elsewhere_ms(self, row: UsageRow, now_ms: int) -> int:
        """Return the present time: a schedule is charged for what is known."""
        return now_ms

    def _timed(self, group: EnforcedGroup, found: list[Remote], now_ms: int) -> list[Remote]:
        """Let so much of the usage be recorded now that the schedule has the lead that it has in the other processes.

        Slots say in which second something was used, and a schedule that has been ahead of the clock for long is ahead of all of them.
        """
        if not isinstance(group, SharedPacedGroup) or not found:
            return found
        workers = self.rows.workers
        virtual_ns = max(word - SCHEDULE for word in self.seen[3 * workers : 4 * workers])
        left = int(max(0, virtual_ns - now_ms * MS_NS) * min(group.bound, 2.0**53)) // group.unit_ns
        timed: list[Remote] = []
        for remote in reversed(found):
            recent = max(0, min(left, remote.amount))
            left -= recent
            if recent:
                timed.append(remote._replace(time_ms=now_ms, amount=recent))
            if recent != remote.amount:
                timed.append(remote._replace(amount=remote.amount - recent, source_total=remote.source_total - recent))
        timed.reverse()
        return timed

    def hand_over(self, other: Sharing) -> None:
        """Move the row to the group of `other`; for one with a window the words of paced groups become those of windows."""
        row = self.row
        if row is not None and row.is_held() and not isinstance(other, PacedSharing):
            row.publish_waiting(0, 0)
            row.publish_answer(UNKNOWN)
        super().hand_over(other)

    def _release(self, row: UsageRow) -> None:
        if row.is_held():
            row.publish_answer(UNKNOWN)
        super()._release(row)


class SharedPacedGroup(SharedRounds, SharedPending, PacedGroup):
    """A paced group, with or without a parent.

    Attributes:
        line: the waiting requests of this process, and the members of all.
        assumed_ns: cost of what other members of the fleet are assumed to have passed.
        lag_ns: time after which this is known.
    """

    __slots__ = ("_assumption", "_is_unpublished", "_quiet_until_ns", "_sharing", "assumed_ns", "lag_ns")

    line: SharedLine
    _sharing: PacedSharing

    def __init__(
        self, tags: Mapping[str, str], bound: float = UNLIMITED, parent: PacedGroup | None = None, *, rows: UsageRows, **settings: Any
    ) -> None:
        self._sharing = PacedSharing(rows)
        self._quiet_until_ns = ALWAYS_NS
        self._is_unpublished = True
        self._assumption: Assumption | None = None if rows.fleet is None else Assumption()
        self.assumed_ns = self.lag_ns = 0
        PacedGroup.__init__(self, tags, bound, parent, **settings)

    # Overridden methods of the paced group

    def _new_line(self, above: Member | None, weigh: Weigh | None) -> SharedLine:
        rows, name = self._sharing.rows, self.declared
        if above is None and self.parent is not None:
            above = self.parent.line.root
        assert above is None or isinstance(above, SharedMember)
        tag = "" if above is None else above.tag_of(name, is_declared=True)
        return SharedLine(self.schedule.burst_ns, SharedMember(name, rows, self.key, tag, above, self, weigh or weighs_one, self._below))

    def virtual_of(self, worker: int) -> int:
        """Return the latest virtual time of this group and its parents in another process, as it was published."""
        at = 3 * self._sharing.rows.workers + worker
        sharings = [group._sharing for group in self.chain if isinstance(group, SharedPacedGroup)]
        return max((sharing.seen[at] - SCHEDULE for sharing in sharings if sharing.row is not None), default=0)

    @property
    def window_max(self) -> int:
        """What the bound allows in a window, in the unit of totals."""
        return self._sharing.window_max(self)

    @property
    def processes(self) -> int:  # type: ignore[override]
        """Processes that admit requests of the group."""
        return self._sharing.rows.processes

    @property
    def open_everywhere(self) -> int:
        """Fetches that wait or are in flight, in all processes."""
        return self.open_fetches + self._sharing.waiting_elsewhere

    def due_ns(self, now_ns: int, reserved: int = 0) -> int:
        """Return when the schedules let a request pass, or when what is assumed now is known."""
        due_ns = PacedGroup.due_ns(self, now_ns, reserved)
        if self._assumption is None or due_ns <= now_ns:
            return due_ns
        lags_ns = [group.lag_ns for group in self.chain if isinstance(group, SharedPacedGroup) and group.assumed_ns]
        return min(due_ns, now_ns + min(lags_ns)) if lags_ns else due_ns

    def refresh(self, now_ms: int) -> None:
        """Charge what other processes have passed, here and in parents, unless all of them are far from the burst."""
        waits = bool(self.line)
        group: EnforcedGroup | None = self
        while isinstance(group, SharedPacedGroup):
            is_quiet = not waits and group.schedule.virtual_ns + group._cost < group._quiet_until_ns
            if not is_quiet or now_ms >= group._sharing.shared_ms + SHARE_MS:
                group._refresh(now_ms)
            group = group.parent
        if waits:
            self.line.refresh(now_ms)

    def charge_members(self, member: Member, size: int, now_ns: int) -> float:
        """Charge the members for a request of `size` bytes, and publish it to the other members of a fleet."""
        if self._assumption is not None:
            note_used(member, self.line.root, size, now_ns // MS_NS)
        return super().charge_members(member, size, now_ns)

    def take_back(self, member: Member, reserved: int, size: int) -> float:
        """Let members pay the difference of what a fetch reserved and what it returned, and publish it to the other members of a fleet."""
        if self._assumption is not None:
            note_used(member, self.line.root, size - reserved, self.line.top.seen_ns // MS_NS)
        return super().take_back(member, reserved, size)

    def note_charged(self, now_ms: int) -> None:
        """Publish what was charged, at once or within `SHARE_MS`."""
        if self.schedule.virtual_ns >= self._quiet_until_ns and self._sharing.row is not None and self._sharing.row.is_held():
            self._sharing.publish(self, now_ms)
        else:
            self._note_unpublished()

    def checked_amount(self, amount: int, reserved: int, now_ms: int) -> int:
        """Return the part of a response to a request that had reserved what the schedule admitted, before the response is recorded.

        Other processes may have passed something between the request and its response that they did not know to be reserved, as by an age
        step. If the schedule is too far ahead because of that, the response counts as not checked.
        """
        self.refresh(now_ms)
        is_late = any(group.schedule.wait_ns(now_ms * MS_NS) for group in self.chain)
        return 0 if is_late else min(amount, reserved)

    # Overridden methods of the shared group

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Charge and record an amount, like `record`."""
        self.record(amount, now_ms)

    def update_bound(self, bound: float) -> None:
        """Use `bound` from the next request on."""
        super().update_bound(bound)
        self._quiet_until_ns = ALWAYS_NS

    def leave(self) -> None:
        """Publish the remaining usage and stop sharing."""
        super().leave()
        self.line.release()

    def publish(self, now_ms: int) -> None:
        """Publish the usage recorded here. While requests wait that reserve, also check whether other processes have made room for them."""
        sharing = self._sharing
        sharing.noted_ms = NEVER_MS
        self._refresh(now_ms)
        if sharing.row is not None and sharing.row.is_held():
            self._share_throttles(sharing.row, now_ms)
        if self.line and not sharing.rows.assumes_at_record:
            if sharing.made_room:
                sharing.made_room = False
                self.line.notify_first()
            self._note_unpublished()

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which replaces this one and gets the row."""
        super().copy_to(other)
        self.line.release()
        if self._assumption is not None:
            assert other._assumption is not None, "all groups of a fleet assume"
            other._assumption.continue_from(self._assumption)

    def publish_line(self) -> None:
        """Publish that no request waits here any more."""
        if self._sharing.row is not None and self._sharing.row.is_held():
            self._sharing.publish(self, self._sharing.shared_ms)

    def _refresh(self, now_ms: int) -> None:
        sharing = self._sharing
        sharing.shared_ms = now_ms
        sharing.pull(self, now_ms)
        if sharing.part is not None and sharing.part.held and sharing.row is not None:
            self._note_unpublished()  # looks again, and records more of it
        if self._is_unpublished or self.line or not sharing.rows.assumes_at_record:
            sharing.publish(self, now_ms)
            self._is_unpublished = sharing.row is None
        self._narrow()
        if self._assumption is not None:
            self._assume(self._assumption, now_ms)
        elif sharing.rows.assumes_at_record and sharing.row is not None:
            now_ns, schedule = now_ms * MS_NS, self.schedule
            free_ns = schedule.burst_ns // 2 - schedule.lead_ns(now_ns)
            if free_ns > 0:
                self._quiet_until_ns = max(schedule.virtual_ns, now_ns) + free_ns // self.processes

    def _assume(self, assumption: Assumption, now_ms: int) -> None:
        """Set what other members of the fleet are assumed to have passed that is not known yet."""
        sharing, self.assumed_ns = self._sharing, 0
        assumption.factor = assumption.units = 0.0
        factor, lag_ms, others = NOBODY if sharing.row is None else sharing.row.elsewhere()
        lag_ms = min(lag_ms, LAG_MS_MAX)
        if not lag_ms or not others or self.bound >= UNLIMITED:
            return
        used = assumption.recent.used(self.recorded_total - sharing.fleet, 0.0, lag_ms, self._span_ms, now_ms)
        is_new = assumption.recent.is_new(NEW_LAGS * lag_ms, now_ms)
        assumption.factor = others if is_new else factor
        assert sharing.rows.fleet is not None
        there = sharing.seen[sharing.rows.workers + sharing.rows.fleet]
        known = used * sharing.rows.per_unit + sharing.pending - there
        amount = int(max(0.0, known * assumption.factor - there))
        assumption.units = amount * sharing.rows.units
        free_ns = max(0, self.schedule.burst_ns - self.schedule.lead_ns(now_ms * MS_NS))
        self.lag_ns = lag_ms * MS_NS
        most_ns = free_ns + self.lag_ns  # their schedule lets no more pass in D
        passed_ns = max(0, self.lag_ns - self.schedule.burst_ns)  # of D, by the bound, which a burst below D has no room for
        self.assumed_ns = max(0, min(cost_ns(amount, self.bound, self.unit_ns), most_ns) - passed_ns)

    @property
    def fleet_usage(self) -> FleetUsage | None:
        """What is known and assumed about the other members; None: there is no fleet, or it does not share the group."""
        sharing, assumption = self._sharing, self._assumption
        if assumption is None or sharing.row is None or not is_shared_scope(sharing.rows.scope_key):
            return None
        return FleetUsage(sharing.fleet, assumption.units, *sharing.row.elsewhere())

    def _narrow(self) -> None:
        self._quiet_until_ns = ALWAYS_NS

    def _note_unpublished(self, within_ms: int = SHARE_MS) -> None:
        self._is_unpublished = True
        super()._note_unpublished(within_ms)


class SharedPacedTimeGroup(SharedPacedGroup, PacedTimeGroup):
    """A paced group of request time. Totals, and what requests in flight reserve, are in nanoseconds of handler time."""

    __slots__ = ()
