"""A group with paced enforcement. Its sensor goes on measuring, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, Self

from proxy.enforcement.groups.child_groups import PendingAbove
from proxy.enforcement.mode import AGE_MAX_MS, INT32_MAX
from proxy.enforcement.paced.line import PacedLine
from proxy.enforcement.paced.member import CLAIM_NS, Below, Member, Path, Weigh
from quota.entity import UNLIMITED
from quota.groups.declared_groups import GROUP_TAG
from quota.groups.group import QuotaGroup
from quota.paced_schedule import BYTES_NS, MS_NS, PacedSchedule, cost_ns, ms_after, rescaled_ns

SIZES_MAX: Final = 32
"""Sizes of requests whose cost is kept."""
CERTAIN: Final = 1.0 - 1e-9
"""So far below a limit a quotient in floating point is certainly below it."""
ROUNDING_NS: Final = 1_000
"""More than the costs of all requests in flight exceed the cost of their sum, since each is rounded up."""
USUAL_ROOM_NS: Final = 4 * MS_NS
"""Half of it is more than the costs of all responses are rounded up by until members are counted again."""
RECENT_MS: Final = 2_000
"""A period. The highest numbers of open fetches, and of members that fetch, of this one or of the one before share the burst."""


class PacedGroup(PendingAbove):
    """A group whose requests pass by a schedule.

    A Produce is charged when it passes. A fetch reserves the most that it may return (`pending`) and is charged when its response
    arrives. A request passes when the schedules of the group and of its parents are at most the burst ahead of the clock, together with
    what is reserved.

    Args:
        burst_ns: the burst of its schedule.
        above: the member of the group above that it is a member of; None: that group.
        weigh: its weight among the members of `above`; None: 1.
        between: the path of a declared group below this one that has no bound of its own.
        rescales: where the group adds itself when its bound changes, so that `rescale` is called.
        below: returns the declared groups with a parent; None: there are none.

    Attributes:
        schedule: when the next request may pass.
        line: the waiting requests and the members; the fetches among them are notified by it (`fetch_queue`).
        declared: the name of a declared group; None: it is none.
        open_fetches: fetches that wait or are in flight.
        usual_period: an object for the time in which requests pass in the usual case. It ends when a member is added or
            forgotten, a request begins to wait, the bound changes, a fetch may request less, or anything is charged in another way.
            None: it has ended.
        usual_until_ms: of fetched bytes: when members, or open fetches, have to be counted again.
        usual_ms, usual_ns: the last millisecond in which a request or a response came in that time, and its beginning.
        usual_end_ns, usual_claim_ns: the end of the burst then, and of the claim of a member.
        usual_total: the weights of members.
        usual_left: the bytes that fetches may reserve in that time, together with `pending` half of what fits.
        usual_fetches: while at most so many fetches are open, a fetch may request as much as one that has passed in that time.
    """

    __slots__ = (
        "_below",
        "_between",
        "_burst_bytes",
        "_charged_by",
        "_cost",
        "_costs",
        "_fetchers",
        "_fetchers_before",
        "_over_bytes",
        "_peak",
        "_peak_before",
        "_peak_since_ms",
        "_period",
        "_rescales",
        "_unchecked_ns",
        "declared",
        "line",
        "open_fetches",
        "schedule",
        "usual_claim_ns",
        "usual_end_ns",
        "usual_fetches",
        "usual_left",
        "usual_ms",
        "usual_ns",
        "usual_period",
        "usual_total",
        "usual_until_ms",
    )

    is_paced = True
    unit_ns = BYTES_NS
    """As in `cost_ns`."""
    processes = 1
    """Processes that admit requests of the group: each may admit a fetch before it knows of those that others admit at this moment."""
    assumed_ns = 0
    """Cost of what other members of a fleet are assumed to have passed that is not known yet."""
    parent: PacedGroup | None
    line: PacedLine

    def __init__(
        self,
        tags: Mapping[str, str],
        bound: float = UNLIMITED,
        parent: PacedGroup | None = None,
        *,
        burst_ns: int,
        above: Member | None = None,
        weigh: Weigh | None = None,
        between: Callable[[str], Path] | None = None,
        rescales: list[PacedGroup] | None = None,
        below: Below | None = None,
        **settings: Any,
    ) -> None:
        self._charged_by: float | None = None  # the bound before a change that `rescale` does not know yet
        self._rescales = [] if rescales is None else rescales
        self._costs: dict[int, int] = {}
        self._cost = 0  # the last one
        self._burst_bytes = 0  # not computed yet
        self.usual_period: object | None = None
        self._unchecked_ns = 0  # the part of the lead that was charged without a check
        self._over_bytes = 0  # the largest response above what was requested, since the schedule was idle
        super().__init__(tags, bound, **settings)
        self.parent = parent
        self.declared = tags.get(GROUP_TAG)
        self._between = between or _nothing_between
        self._below = below
        self.schedule = PacedSchedule(burst_ns)
        self.line = self._new_line(above, weigh)
        self.open_fetches = self._peak = self._peak_before = self._peak_since_ms = 0
        self._fetchers = self._fetchers_before = self._period = 0
        self.usual_ms = self.usual_ns = self.usual_end_ns = self.usual_claim_ns = self.usual_until_ms = 0
        self.usual_fetches = 0
        self.usual_left, self.usual_total = 0.0, 1.0

    def _new_line(self, above: Member | None, weigh: Weigh | None) -> PacedLine:
        """Return the line of the group; overridden where several processes share the group."""
        if above is None and self.parent is not None:
            above = self.parent.line.root
        return PacedLine(self.schedule.burst_ns, Member(self.declared, above, self, weigh or weighs_one))

    @property
    def chain(self) -> Iterator[PacedGroup]:
        """This group and its parents that have a bound."""
        group: PacedGroup | None = self
        while group is not None:
            if group.bound < UNLIMITED:
                yield group
            group = group.parent

    def update_bound(self, bound: float) -> None:
        """Use `bound` from the next request on; `rescale` follows, since this call has no time."""
        before = self.bound
        super().update_bound(bound)
        self._costs.clear()
        self._burst_bytes = 0
        self.usual_period = None
        if self._charged_by is None and before != bound and self.schedule.virtual_ns:
            self._charged_by = before
            self._rescales.append(self)

    def keep_lead(self) -> None:
        """After a change of the bound: keep the lead, which was charged by the bound of before."""
        self._charged_by = None

    def rescale(self, now_ms: int) -> bool:
        """After a change of the bound: let the lead be the time that the new one takes for the same bytes. False: there was no lead."""
        before, self._charged_by = self._charged_by, None
        now_ns = now_ms * MS_NS
        lead_ns = self.schedule.lead_ns(now_ns)
        if before is None or not lead_ns or before == self.bound:
            return False
        new_ns = rescaled_ns(lead_ns, before, self.bound)
        QuotaGroup.record_unchecked(self, 0.0, now_ms)  # as metered, since it may begin a sample
        self.schedule.virtual_ns = now_ns + new_ns
        self.line.root.rescale(new_ns / lead_ns, now_ns)
        self.line.notify_first()
        return True

    def cost_ns(self, amount: int) -> int:
        """Return the cost of a request; requests of one client often have few sizes."""
        cost = self._costs.get(amount)
        if cost is None:
            if len(self._costs) >= SIZES_MAX:
                self._costs.clear()
            cost = cost_ns(amount, self.bound, self.unit_ns)
            if self.bound < UNLIMITED:  # a group without a bound has no short path
                self._costs[amount] = cost
        self._cost = cost
        return cost

    # The usual case of one process: nothing waits, and the group has a bound, no parent, and no levels below this member. Each of these
    # methods does in one step what the general ones do in several. False: nothing was done. What is left to do for further requests in
    # this time is written out where they pass: `UsualRequests`, `FetchAdmission`.

    def passes_at_once(self, member: Member, size: int, cost: int, now_ms: int) -> bool:
        """Charge and record a Produce of a member of this group that certainly passes now, with room for it in the burst."""
        root, schedule, own_ns, now_ns = member.above, self.schedule, member.virtual_ns, now_ms * MS_NS
        virtual_ns, end_ns = schedule.virtual_ns, now_ns + schedule.burst_ns
        after_ns = (virtual_ns if virtual_ns > now_ns else now_ns) + cost
        if root is None or root.waits or member.is_gone or member.level is not None or after_ns > end_ns or own_ns > end_ns:
            return False
        total = self._begin_usual(root, member, now_ms, now_ns, end_ns)
        if total <= 1.0 and (own_ns == virtual_ns or (own_ns <= now_ns and virtual_ns <= now_ns)):
            member.virtual_ns = after_ns  # the same object, by which `UsualRequests` knows the only member
        else:
            member.virtual_ns = (own_ns if own_ns > now_ns else now_ns) + (cost if total <= 1.0 else int(cost * total))
        schedule.virtual_ns = after_ns
        if self._start_ms <= now_ms < self._end_ms:
            self._value += size
            self._last_ms = now_ms
        else:
            self._add(size, now_ms)
        return True

    def reserves_at_once(self, member: Member, most: int, size: int, now_ms: int) -> bool:
        """Reserve `size` bytes for a fetch that certainly passes now and may return the `most` bytes that it requests."""
        cost, now_ns, root, schedule = self._costs.get(size), now_ms * MS_NS, member.above, self.schedule
        if root is None or root.waits or member.is_gone or member.level is not None:
            return False
        fetches, pending, own_ns = self.open_fetches, self._pending, member.virtual_ns
        if self._peak > fetches:
            fetches = self._peak
        others = self._peak_before if self._peak_before > fetches else fetches
        if now_ms - self._peak_since_ms >= RECENT_MS:
            return False
        if member.count_fetches(self._period):
            self._fetchers += 1
            if self._fetchers > self._fetchers_before:
                self.usual_period = None  # the shares of all members are smaller now
        usual_most = self._share_of(member, self._burst_bytes, others or 1)
        if most > usual_most:
            return False
        virtual_ns, has_lead, end_ns = schedule.virtual_ns, own_ns > now_ns, now_ns + schedule.burst_ns
        room_ns = end_ns - (virtual_ns if virtual_ns > now_ns else now_ns)
        fitting = self.bound * room_ns / self.unit_ns
        if (pending or has_lead or virtual_ns > now_ns) and (pending + size > fitting * CERTAIN or own_ns > end_ns):
            return False
        if cost is None:
            cost = self.cost_ns(size)
        if fetches > self.usual_fetches or usual_most < member.usual_most:
            self.usual_period = None  # here, too
        self._peak = self.usual_fetches = fetches
        self._pending = pending + size
        self.open_fetches += 1
        member.open_fetches += 1
        total = self._begin_usual(root, member, now_ms, now_ns, end_ns)
        member.virtual_ns = (own_ns if has_lead else now_ns) + (cost if total <= 1.0 else int(cost * total))
        self.usual_until_ms = min(ms_after(root.count_at_ns), self._peak_since_ms + RECENT_MS)
        member.usual_most, self.usual_left = usual_most, fitting / 2 - self._pending if room_ns > USUAL_ROOM_NS else 0.0
        return True

    def _begin_usual(self, root: Member, member: Member, now_ms: int, now_ns: int, end_ns: int) -> float:
        """A request of a member passes in the usual case, as further ones will until something else happens; return the weights."""
        root.seen_ns = now_ns
        member.claims_until_ns = self.usual_claim_ns = now_ns + CLAIM_NS
        self.usual_ms, self.usual_ns, self.usual_end_ns = now_ms, now_ns, end_ns
        if now_ns >= root.count_at_ns:
            root.share_of(member, now_ns)
        if self.usual_period is None:
            self.usual_period = object()
        self.usual_total = total = root.total
        return total

    def continues(self, now_ms: int) -> bool:
        """Go on with the usual case of fetches in another millisecond. False: members, or open fetches, have to be counted again."""
        if now_ms >= self.usual_until_ms:
            return False
        now_ns = now_ms * MS_NS
        self.usual_ms, self.usual_ns = now_ms, now_ns
        self.usual_end_ns, self.usual_claim_ns = now_ns + self.schedule.burst_ns, now_ns + CLAIM_NS
        self.line.root.seen_ns = now_ns
        return True

    def answers_at_once(self, member: Member, reserved: int, size: int, now_ms: int) -> bool:
        """Charge and record the response to a fetch that had reserved at least its `size`, and was checked with all of that."""
        now_ns, schedule, root = now_ms * MS_NS, self.schedule, self.line.root
        if root.waits or member.above is not root or root.seen_ns >= root.count_at_ns or size > reserved or self.bound >= UNLIMITED:
            return False
        virtual_ns = schedule.virtual_ns
        if virtual_ns > now_ns + schedule.burst_ns:
            return False
        cost = self.cost_ns(size)
        self._unchecked_ns = 0
        self._pending -= reserved
        self.open_fetches -= 1
        member.open_fetches -= 1
        if size < reserved:
            back_ns = self.cost_ns(reserved) - cost
            member.virtual_ns -= back_ns if root.total <= 1.0 else int(back_ns * root.total)
            root.timed = None
        schedule.virtual_ns = (virtual_ns if virtual_ns > now_ns else now_ns) + cost
        if self._start_ms <= now_ms < self._end_ms:
            self._value += size
            self._last_ms = now_ms
        else:
            self._add(size, now_ms)
        return True

    def due_ns(self, now_ns: int, reserved: int = 0) -> int:
        """Return when the schedules of this group and its parents let a request pass.

        Args:
            now_ns: the time, in monotonic nanoseconds.
            reserved: the most bytes that a fetch may return; 0: a Produce, which is charged at once.
        """
        due_ns = 0
        for group in self.chain:
            due_ns = max(due_ns, group.own_due_ns(now_ns, reserved))
        return due_ns

    def member_due_ns(self, member: Member, now_ns: int, reserved: int) -> int:
        """Return when the schedules of the group, its parents and `member` let a request pass; `reserved` as in `due_ns`."""
        return max(self.due_ns(now_ns, reserved), self.line.due_ns(member))

    def own_due_ns(self, now_ns: int, reserved: int) -> int:
        """Return when the schedule of this group alone lets a request pass; the arguments are those of `due_ns`."""
        virtual_ns, burst_ns = self.schedule.virtual_ns, self.schedule.burst_ns
        if self.assumed_ns:
            virtual_ns = max(virtual_ns, now_ns) + self.assumed_ns
        if reserved:  # what is in flight is charged when it arrives, from then on if the schedule is idle
            open_ns = cost_ns(int(self.pending) + min(reserved * self.processes, self.burst_bytes), self.bound, self.unit_ns)
            virtual_ns = max(virtual_ns, now_ns) + (open_ns if self.pending else min(open_ns, burst_ns))
        return virtual_ns - burst_ns

    def path_of(self, declared: str | None, name: Hashable) -> Path:
        """Return the path of a member `name` of this group that is in the declared group `declared`, which may be below this one."""
        between = () if declared is None or declared == self.declared else self._between(declared)
        return (*between, (name, None))

    def charge_members(self, member: Member, size: int, now_ns: int) -> float:
        """Charge the members for a request of `size` bytes: the one of this group, and in each group above the group below it.

        Members of a group are charged at its bound, or at its share of the bound above it if that is less: otherwise they would be within
        their own schedules all the time, and have no order. Return what `member` is charged.
        """
        self.usual_period = None
        cost_ns: float = self.cost_ns(size)
        if self.parent is not None:
            cost_ns = max(cost_ns, self.parent.charge_members(self.line.root, size, now_ns))
        return self.line.charge(member, cost_ns, now_ns)

    def take_back(self, member: Member, reserved: int, size: int) -> float:
        """Let members pay the difference of what a fetch reserved and returned; return what `member` gets back, below 0 if it pays."""
        cost_ns: float = self.cost_ns(reserved) - self.cost_ns(size)
        if self.parent is not None:
            above_ns = self.parent.take_back(self.line.root, reserved, size)
            cost_ns = max(cost_ns, above_ns) if size <= reserved else min(cost_ns, above_ns)
        return self.line.take_back(member, cost_ns)

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
        """The bytes, or the handler time in nanoseconds, of the burst; at least one."""
        if not self._burst_bytes:
            self._burst_bytes = max(1, int(min(self.bound * self.schedule.burst_ns / self.unit_ns, INT32_MAX)))
        return self._burst_bytes

    def age_step_ms(self, read_ms: int) -> int:
        """Return when a request that was read at `read_ms` may pass before its time, in monotonic ms."""
        return max(read_ms, self.last_throttle_round_ms) + AGE_MAX_MS

    def fits_age_step(self, amount: int, read_ms: int, now_ms: int) -> bool:
        """Whether a request that has waited for 25 s may pass before its time: one in 25 s, with no more than the bound passes in them."""
        if now_ms < self.age_step_ms(read_ms):
            return False
        return all(amount * self.unit_ns <= group.bound * AGE_MAX_MS * MS_NS for group in self.chain)

    def refresh(self, now_ms: int) -> None:
        """Learn of other processes, before a request is checked. Overridden by groups that several processes share."""

    def note_charged(self, now_ms: int) -> None:
        """The schedule was charged. Overridden by groups that several processes share."""

    def checked_amount(self, amount: int, reserved: int, now_ms: int) -> int:
        """Return the part of the amount of a response that the schedule admitted; called before the response is recorded.

        That is what its request had reserved. What passed before its time, or exceeded its reservation, moves the schedule on, too. If the
        schedule is too far ahead because of that when the response arrives, nothing of it counts as checked.
        """
        checked = min(amount, reserved)
        for group in self.chain:
            late_ns = group.schedule.wait_ns(now_ms * MS_NS)
            if not late_ns:
                group._unchecked_ns = 0
            elif late_ns <= group._unchecked_ns + ROUNDING_NS:
                checked = 0
        for group in self.chain if checked < amount else ():
            group._unchecked_ns += group.cost_ns(amount - checked)
        return checked

    def units_of(self, amount: float) -> int:
        """Return a recorded amount in the unit that the schedule is charged in: bytes."""
        return int(amount)

    def record(self, amount: float, now_ms: int) -> int:
        """Charge and record an amount that has passed; nothing is throttled by it. The schedule makes the next requests wait."""
        now_ns, size = now_ms * MS_NS, self.units_of(amount)
        group: PacedGroup | None = self
        while group is not None:
            if group.bound < UNLIMITED:
                group.schedule.charge(group.cost_ns(size), now_ns)
            QuotaGroup.record_unchecked(group, amount, now_ms)
            group.usual_period = None
            group.note_charged(now_ms)
            group = group.parent
        return 0

    def record_within(self, amount: float, now_ms: int) -> bool:
        """Return False: what passes is always charged, by `record`."""
        return False

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Charge and record an amount, like `record`."""
        self.record(amount, now_ms)

    def share_bytes(self, member: Member, now_ms: int) -> int:
        """Return the most bytes that one fetch of a member may return now: its share of the burst.

        As far as it is above an equal part of all open fetches, it fits into what nobody has reserved: a member that begins to fetch does
        not wait until fetches of others, which may be open for a second, have returned.
        """
        fetches, self.usual_period = self.open_everywhere, None
        if now_ms - self._peak_since_ms >= RECENT_MS:
            self._peak_before, self._peak, self._peak_since_ms = self._peak, fetches, now_ms
            self._fetchers_before, self._fetchers = self._fetchers, 0
            self._period += 1
        self._peak = max(self._peak, fetches)
        self._fetchers += member.count_fetches(self._period)
        shared, fetches = min(group.burst_bytes for group in self.chain), max(self._peak, self._peak_before, 1)
        room = max(shared // (fetches + self.processes), (shared - int(self.pending)) // self.processes)
        return max(1, min(self._share_of(member, shared, fetches), room))

    def _share_of(self, member: Member, shared: int, fetches: int) -> int:
        """Return the share of one fetch: open fetches have equal parts of one half of the burst, members of the other half.

        By the first half alone, a member with many connections would leave little to the others. By the second half alone, a member that
        fetches all that the others leave would do so by many small fetches.

        Args:
            member: the member; its part of the second half is for its own open fetches.
            shared: bytes of the burst.
            fetches: open fetches of all.
        """
        members, own = max(self._fetchers, self._fetchers_before), max(member.fetches_most, member.fetches_before, 1)
        parts, own_parts = fetches + self.processes, members * own * self.processes + 1  # the further ones are for new fetches
        return shared * (parts + own_parts) // (2 * parts * own_parts)

    def note_over(self, size: int, most: int) -> None:
        """Note the size of a response that has more than the `most` bytes that its fetch requested, if its first batch has."""
        if is_larger_batch(size, most):
            self._over_bytes = max(self._over_bytes, size)

    def over_bytes(self, now_ms: int) -> int:
        """Return the size of the largest such response since the schedule was idle last: a fetch of a new connection may return as much."""
        if self._over_bytes and not self.lead_ms(now_ms):
            self._over_bytes = 0
        return self._over_bytes

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


def is_larger_batch(size: int, most: int) -> bool:
    """Whether a response is larger than the `most` bytes that its fetch requested because its first batch is, and not by its header.

    Other fetches that request less get as large a batch, but a response that was full gets smaller with `most`. A header is rarely more
    than an eighth of a full response, and a first batch that is larger by less than that is no full batch more for anybody.
    """
    return 8 * size > 9 * most


def weighs_one() -> float:
    """Return the weight of a group that is no declared one."""
    return 1.0


def _nothing_between(_declared: str) -> Path:
    return ()
