"""The waiting requests of paced groups: which of them goes next.

Each member of a group has a schedule of its own, at its share of the bound: its weight over the weights of all members with a claim. A
member claims its share while it waits, and for a second after its last request. A member within its own schedule may use the burst of the
group. A member ahead of it passes only what would be lost: while the schedule above it is idle. Among the members that may pass, the one
that is furthest behind goes first, and its requests in the order in which they were read. docs/adr/0012 compares this order with others.

Members are a tree: a group is a member of the group above it, and a declared group without a bound of its own is a member with members.
Below a principal, or an address without a known user, client-ids are members, and below them connections (`levels`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from proxy.enforcement.paced.levels import ClientIdLevel
from proxy.enforcement.paced.member import Connection, Member, Path, Place
from quota.paced_schedule import MS_NS


class PacedLine:
    """The members of one group, and their waiting requests. `len` is the number of these.

    Args:
        burst_ns: the burst of the group.
        root: the group, as a member of the one above it.
    """

    __slots__ = ("_burst_ns", "root", "top")

    def __init__(self, burst_ns: int, root: Member) -> None:
        self._burst_ns = burst_ns
        self.root = root
        self.top = root
        while self.top.above is not None:
            self.top = self.top.above

    def __len__(self) -> int:
        return self.root.waits

    def member(self, path: Path, now_ns: int) -> Member:
        """Return the member of a path, for a request of it."""
        return self.at(path, now_ns)

    def at(self, path: Path, now_ns: int) -> Member:
        """Return the member of a path."""
        member = self.root
        for name, weigh in path:
            member = member.member(name, weigh, now_ns)
        return member

    def join(
        self,
        member: Member,
        read_ms: int,
        notify: Callable[[], None],
        now_ms: int,
        reserved: int = 0,
        connection: Connection | None = None,
    ) -> Place:
        """Add a request that was read at `read_ms`; `reserved` and `connection` as in `Place`.

        When requests of several connections of a member wait, these and their client-ids become members, too.
        """
        self.top.joined += 1
        place = Place(member, (read_ms, self.top.joined), now_ms, notify, reserved, connection)
        if member.level is None and member.waiting and connection is not None:
            member.level = ClientIdLevel(member, self._burst_ns, now_ms * MS_NS)
        member.join(place)
        if member.level is not None:
            member.level.join(place, now_ms * MS_NS)
        for one in member.path:
            one.waits += 1
            if one.group is not None:
                one.group.usual_period = None
        return place

    def leave(self, place: Place) -> None:
        """Remove a request. The request that is the next one then is notified."""
        place.member.leave(place)
        if place.member.level is not None:
            place.member.level.leave(place)
        for one in place.member.path:
            one.waits -= 1
        self.notify_first()

    def is_next(self, place: Place, now_ns: int) -> bool:
        """Whether a request is the next one of this group and of all groups beside it. If not, the next one is notified."""
        self.top.seen_ns = now_ns
        first = self._first()
        if first is not place and first is not self.top.timed:
            first.notify()
        self.top.timed = first
        return first is place

    def _first(self) -> Place:
        return self.top.soonest(self.top.seen_ns, self._burst_ns)[1]

    @property
    def is_shared(self) -> bool:
        """Whether several members had a claim when claims were counted last, with equal shares."""
        return self.root.is_shared_equally

    def waiting(self) -> Iterator[tuple[Hashable, int]]:
        """Yield the members with waiting requests, and when the first of these began to wait, in ms."""
        return ((name, member.waiting[0].joined_ms) for name, member in self.root.members.items() if member.waiting)

    def has_waiting_beside(self) -> bool:
        """Whether any request waits for this group, or for a group with the same topmost parent."""
        return self.top.waits > 0

    def notify_first(self) -> None:
        """Notify the request that goes next, because it may pass now."""
        self.top.timed = first = self._first() if self.top.waits else None
        if first is not None:
            first.notify()

    def due_ns(self, member: Member) -> int:
        """Return when the schedules of a member and of those above it let its next request pass."""
        due_ns = member.due_ns(self._burst_ns)
        above = member.above
        while above is not None:
            if above.above is not None:
                due_ns = max(due_ns, above.due_ns(self._burst_ns))
            above = above.above
        return due_ns

    def charge(self, member: Member, cost_ns: float, now_ns: int) -> float:
        """Charge a member, and those above it in this group, for a request that costs the group `cost_ns`; return what it is charged.

        Args:
            member: as `Place.charged`.
        """
        self.top.seen_ns = now_ns
        return self._charge(member, cost_ns, now_ns)

    def _charge(self, member: Member, cost_ns: float, now_ns: int) -> float:
        above = member.above
        assert above is not None
        if above.group is None:
            cost_ns = self._charge(above, cost_ns, now_ns)
        return member.charge(cost_ns, now_ns, self._burst_ns)

    def take_back(self, member: Member, cost_ns: float) -> float:
        """Take back what a member was charged too much, or charge the rest if that is below 0, and notify the request that goes next.

        Return what the member gets back.
        """
        cost_ns = self._take_back(member, cost_ns)
        self.notify_first()
        return cost_ns

    def _take_back(self, member: Member, cost_ns: float) -> float:
        above = member.above
        assert above is not None
        if above.group is None:
            cost_ns = self._take_back(above, cost_ns)
        return member.take_back(cost_ns, self.top.seen_ns)
