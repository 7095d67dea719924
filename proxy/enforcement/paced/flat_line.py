"""The members and waiting requests of a paced group in several processes: one level of members with equal shares.

An order between groups with the same parent would need one of all processes, so here each group decides for itself. Apart from that the
rules are those of `PacedLine`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator

from proxy.enforcement.paced.member import CLAIM_NS, COUNT_EVERY_NS, IDLE_NS, Connection, Member, Paced, Path, Place, order_of


class FlatLine:
    """The members of one group, and their waiting requests. `len` is the number of these.

    Args:
        burst_ns: the burst of the group.
        group: the group.
    """

    __slots__ = ("_burst_ns", "_claims", "_counted_ns", "_group", "_length", "_members", "_numbers", "root")

    def __init__(self, burst_ns: int, group: Paced) -> None:
        self._burst_ns = burst_ns
        self._group = group
        self.root = Member(None, None, group)
        self._members = self.root.members
        self._length = 0
        self._numbers = 0
        self._claims: float = 1
        self._counted_ns = -COUNT_EVERY_NS

    def __len__(self) -> int:
        return self._length

    def member(self, path: Path, now_ns: int) -> Member:
        """Return the member of a path, by its last name; a member without a claim is forgotten when claims are counted."""
        name = path[-1][0]
        found = self._members.get(name)
        if found is None:
            found = self._members[name] = self._new_member(name, now_ns)
            self._counted_ns = now_ns - COUNT_EVERY_NS
        return found

    def join(
        self,
        member: Member,
        read_ms: int,
        notify: Callable[[], None],
        now_ms: int,
        reserved: int = 0,
        connection: Connection | None = None,
    ) -> Place:
        """Add a request that was read at `read_ms`; `reserved` as in `Place`. Its connection is no member of its own."""
        self._numbers += 1
        place = Place(member, (read_ms, self._numbers), now_ms, notify, reserved)
        insort(member.waiting, place, key=order_of)
        member.waits += 1
        self._length += 1
        return place

    def leave(self, place: Place) -> None:
        """Remove a request. The request that is the first one then is notified."""
        waiting = place.member.waiting
        del waiting[bisect_left(waiting, place.order, key=order_of)]
        place.member.waits -= 1
        self._length -= 1
        self.notify_first()

    def first(self) -> Place | None:
        """Return the request that goes next."""
        firsts = [member for member in self._members.values() if member.waiting]
        if not firsts:
            return None
        return min(firsts, key=lambda member: (member.virtual_ns, member.waiting[0].order)).waiting[0]

    def is_next(self, place: Place, now_ns: int) -> bool:
        """Whether a request is the next one of this group."""
        return self.first() is place

    def has_waiting_beside(self) -> bool:
        """Whether any request waits for this group."""
        return self._length > 0

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

    def due_ns(self, member: Member) -> int:
        """Return when the schedule of a member lets its next request pass, or that of the group is idle."""
        return min(member.virtual_ns - self._burst_ns, self._group.virtual_ns - IDLE_NS)

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
        return Member(name)

    def _forget(self, member: Member) -> None:
        """A member without a claim is forgotten."""

    def _count_claims(self, now_ns: int) -> float:
        return sum(member.has_claim(now_ns) for member in self._members.values())
