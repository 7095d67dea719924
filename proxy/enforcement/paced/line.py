"""The waiting requests of one paced group: which of them goes next.

Each member of the group has a schedule of its own, at its share of the bound among the members with a claim. A member claims its share
while it waits, and for a second after its last request. A member within its own schedule may use the burst of the group. A member ahead of
it passes only what would be lost: while the schedule of the group is idle. Among the waiting members the one that is furthest behind goes
first, and its requests go in the order in which they were read. docs/adr/0012 compares this order with others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from quota.paced_schedule import MS_NS, SECOND_NS

CLAIM_NS: Final = SECOND_NS
IDLE_NS: Final = 5 * MS_NS
"""A schedule counts as idle this long before it is: a timer has a precision of one millisecond, and what it is late would be lost."""
COUNT_EVERY_NS: Final = 50 * MS_NS
"""Claims are counted again after this time."""


class Place:
    """A waiting request.

    Attributes:
        member: the member that it counts for.
        order: the time of its read in ms, and a unique number.
        joined_ms: when it began to wait.
        notify: called when it should be checked again.
    """

    __slots__ = ("joined_ms", "member", "notify", "order")

    def __init__(self, member: Member, order: tuple[int, int], joined_ms: int, notify: Callable[[], None]) -> None:
        self.member = member
        self.order = order
        self.joined_ms = joined_ms
        self.notify = notify


class Member:
    """A member of a group.

    Attributes:
        virtual_ns: the virtual time of its own schedule.
        claims_until_ns: until when it keeps its claim.
        waiting: its waiting requests, in the order of their reads.
    """

    __slots__ = ("claims_until_ns", "virtual_ns", "waiting")

    def __init__(self) -> None:
        self.virtual_ns = 0
        self.claims_until_ns = 0
        self.waiting: list[Place] = []

    def has_claim(self, now_ns: int) -> bool:
        """Whether it has a share of the bound."""
        return bool(self.waiting) or self.claims_until_ns > now_ns


class PacedLine:
    """The members of one group, and their waiting requests. `len` is the number of these.

    Args:
        burst_ns: the burst of the group.
    """

    __slots__ = ("_burst_ns", "_claims", "_counted_ns", "_length", "_members", "_numbers")

    def __init__(self, burst_ns: int) -> None:
        self._burst_ns = burst_ns
        self._members: dict[Hashable, Member] = {}
        self._length = 0
        self._numbers = 0
        self._claims: float = 1
        self._counted_ns = -COUNT_EVERY_NS

    def __len__(self) -> int:
        return self._length

    def member(self, name: Hashable, now_ns: int) -> Member:
        """Return the member called `name`; a member without a claim is forgotten when claims are counted."""
        found = self._members.get(name)
        if found is None:
            found = self._members[name] = self._new_member(name, now_ns)
            self._counted_ns = now_ns - COUNT_EVERY_NS
        return found

    def join(self, member: Member, read_ms: int, notify: Callable[[], None], now_ms: int) -> Place:
        """Add a request that was read at `read_ms`."""
        self._numbers += 1
        place = Place(member, (read_ms, self._numbers), now_ms, notify)
        insort(member.waiting, place, key=_order)
        self._length += 1
        return place

    def leave(self, place: Place) -> None:
        """Remove a request. The request that is the first one then is notified."""
        waiting = place.member.waiting
        del waiting[bisect_left(waiting, place.order, key=_order)]
        self._length -= 1
        self.notify_first()

    def first(self) -> Place | None:
        """Return the request that goes next."""
        firsts = [member for member in self._members.values() if member.waiting]
        if not firsts:
            return None
        return min(firsts, key=lambda member: (member.virtual_ns, member.waiting[0].order)).waiting[0]

    def notify_first(self) -> None:
        """Notify the request that goes next, because it may pass now."""
        first = self.first() if self._length else None
        if first is not None:
            first.notify()

    @property
    def is_shared(self) -> bool:
        """Whether several members had a claim when claims were counted last."""
        return self._claims > 1

    def waiting(self) -> Iterator[tuple[Hashable, int]]:
        """Yield the members with waiting requests, and when the first of these began to wait, in ms."""
        return ((name, member.waiting[0].joined_ms) for name, member in self._members.items() if member.waiting)

    def due_ns(self, member: Member, group_virtual_ns: int) -> int:
        """Return when the schedule of a member lets its next request pass, or that of the group is idle.

        Args:
            group_virtual_ns: virtual time of the group.
        """
        return min(member.virtual_ns - self._burst_ns, group_virtual_ns - IDLE_NS)

    def charge(self, member: Member, cost_ns: int, now_ns: int) -> None:
        """Charge a member for a request that costs the group `cost_ns`."""
        member.claims_until_ns = now_ns + CLAIM_NS
        # never from further ahead than the burst: what nobody else wanted delays it little when the others return
        begin_ns = min(max(member.virtual_ns, now_ns), now_ns + self._burst_ns)
        member.virtual_ns = begin_ns + int(cost_ns * self._number_of_claims(now_ns))

    def take_back(self, member: Member, cost_ns: int) -> None:
        """Take back what a member was charged too much, and notify the request that goes next."""
        member.virtual_ns -= int(cost_ns * self._claims)
        self.notify_first()

    def _number_of_claims(self, now_ns: int) -> float:
        if now_ns - self._counted_ns >= COUNT_EVERY_NS:
            self._counted_ns = now_ns
            gone = [name for name, member in self._members.items() if not member.has_claim(now_ns) and member.virtual_ns <= now_ns]
            for name in gone:
                self._forget(self._members.pop(name))
            self._claims = max(1, self._count_claims(now_ns))
        return self._claims

    # Overridden where several processes share the members

    def _new_member(self, name: Hashable, now_ns: int) -> Member:
        return Member()

    def _forget(self, member: Member) -> None:
        """A member without a claim is forgotten."""

    def _count_claims(self, now_ns: int) -> float:
        return sum(member.has_claim(now_ns) for member in self._members.values())


def _order(place: Place) -> tuple[int, int]:
    return place.order
