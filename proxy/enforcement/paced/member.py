"""A member of a paced group, its schedule and its waiting requests; and what the levels below a member have in common."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Protocol

from quota.paced_schedule import MS_NS, SECOND_NS

CLAIM_NS: Final = SECOND_NS
IDLE_NS: Final = 5 * MS_NS
"""A schedule counts as idle this long before it is: a timer has a precision of one millisecond, and what it is late would be lost."""
COUNT_EVERY_NS: Final = 50 * MS_NS
"""Claims are counted again after this time."""
BLOCKED_MAX: Final = 16
"""Waiting members that are looked at for one with a request that may pass. It is rare that so many may pass and their connections not."""
Order = tuple[int, int]
"""The time of a read in ms, and a unique number."""
Weigh = Callable[[], float]
"""Returns the weight of a declared group, which a reload may change."""
Path = tuple[tuple[Hashable, Weigh | None], ...]
"""Names of a member and of the members above it in its group, the topmost first; without a weight it is 1."""
Below = Callable[[str], tuple[tuple[str, Weigh], ...]]
"""Returns the declared groups with a parent, each with its weight."""


class Paced(Protocol):
    """The part of a paced group that its members need.

    Attributes:
        usual_period: ended when a member is added or forgotten.
    """

    usual_period: object | None

    @property
    def virtual_ns(self) -> int:
        """The latest virtual time of the group and of its parents."""

    def own_due_ns(self, now_ns: int, reserved: int) -> int:
        """Return when the schedule of the group alone lets a request pass; `reserved` as in `Place`."""

    def cost_ns(self, amount: int) -> int:
        """Return the cost of an amount at the bound of the group."""


class Connection:
    """A connection in one line of waiting requests.

    Attributes:
        client_id: the client-id of its last request.
        member: its member in the levels below a principal; None: it has not been in one.
    """

    __slots__ = ("client_id", "member")

    def __init__(self) -> None:
        self.client_id = ""
        self.member: Departs | None = None

    def end(self) -> None:
        """The connection has ended."""
        if self.member is not None:
            self.member.depart()
            self.member = None


class Place:
    """A waiting request.

    Attributes:
        member: the member of the group that it counts for.
        charged: what its cost is charged to: a connection in the levels below `member`, or `member` where it has none.
        connection: its connection; None: of a line without such levels.
        order: the time of its read in ms, and a unique number.
        joined_ms: when it began to wait.
        notify: called when it should be checked again.
        reserved: the most bytes that a fetch may return, at its last check; 0: a Produce.
    """

    __slots__ = ("charged", "connection", "joined_ms", "member", "notify", "order", "reserved")

    def __init__(
        self,
        member: Member,
        order: tuple[int, int],
        joined_ms: int,
        notify: Callable[[], None],
        reserved: int,
        connection: Connection | None = None,
    ) -> None:
        self.member = self.charged = member
        self.connection = connection
        self.order = order
        self.joined_ms = joined_ms
        self.notify = notify
        self.reserved = reserved


class Level(Protocol):
    """The client-ids of a member and their connections, as far as their member needs them."""

    def of(self, connection: Connection, now_ns: int) -> Member:
        """Return the member that a connection is."""

    def join(self, place: Place, now_ns: int) -> None:
        """A request of the member waits from now on."""

    def leave(self, place: Place) -> None:
        """It does not wait any more."""

    def soonest(self, now_ns: int) -> tuple[int, Place]:
        """Return when the first of the waiting requests may pass, and which one that is."""

    def rescale(self, ratio: float, now_ns: int) -> None:
        """Multiply the leads of all members, because the bound of the group has changed."""


class Departs(Protocol):
    """A connection as a member of a client-id."""

    def depart(self) -> None:
        """The connection has ended, or goes on under another client-id."""


class Member:
    """A member of a group, or a group.

    Attributes:
        above: the member or group that this one is a member of; None: a group without a parent.
        group: the group, if it is one.
        virtual_ns: the virtual time of its own schedule, at its share of the bound above.
        claims_until_ns: until when it keeps its claim.
        waiting: its own waiting requests, in the order of their reads.
        waits: number of waiting requests of it and of its members.
        order: the order of its first waiting request.
        in_order: its members with requests of their own that wait, with virtual time and order; sorted.
        weight: its weight among the members of `above`.
        timed: of a group without a parent: the waiting request that goes next, which has a timer. The others are notified.
        seen_ns: of a group without a parent: the time of its last check or charge.
        joined: of a group without a parent: number of requests that have waited for it, or for a group below it.
        members: its own members, by name.
        declared: those that are declared groups, whose number the configuration limits.
        total: the weights of those with a claim, when they were counted last.
        count_at_ns: when they are counted again.
        is_gone: it was forgotten, so another object has its name when it returns.
        open_fetches: fetches of it that wait or are in flight.
        fetches_most: their highest number in the period of its group in which it fetched last.
        usual_most: the most bytes that each could request when one passed in the usual case last.
        level: the client-ids that share what it gets; None: all its waiting requests are of one connection.
    """

    __slots__ = (
        "above",
        "claims_until_ns",
        "count_at_ns",
        "declared",
        "fetches_before",
        "fetches_most",
        "fetches_period",
        "group",
        "in_order",
        "is_gone",
        "joined",
        "level",
        "members",
        "name",
        "open_fetches",
        "order",
        "seen_ns",
        "timed",
        "total",
        "usual_most",
        "virtual_ns",
        "waiting",
        "waits",
        "weigh",
        "weight",
    )

    def __init__(self, name: Hashable, above: Member | None = None, group: Paced | None = None, weigh: Weigh | None = None) -> None:
        self.name = name
        self.above = above
        self.group = group
        self.weigh = weigh
        self.weight = 1.0 if weigh is None else weigh()
        self.virtual_ns = 0
        self.claims_until_ns = 0
        self.waiting: list[Place] = []
        self.waits = 0
        self.order: Order = (0, 0)
        self.in_order: list[tuple[int, Order, Member]] = []
        if above is not None and group is not None:
            above.enter(self)
        self.timed: Place | None = None
        self.seen_ns = 0
        self.joined = 0
        self.members: dict[Hashable, Member] = {}
        self.declared: dict[Hashable, Member] = {}
        self.level: Level | None = None
        self.total = 1.0
        self.count_at_ns = 0
        self.is_gone = False
        self.open_fetches = self.fetches_most = self.fetches_before = self.fetches_period = self.usual_most = 0

    def member(self, name: Hashable, weigh: Weigh | None, now_ns: int) -> Member:
        """Return the member called `name`; one that is no declared group and has no claim is forgotten when claims are counted."""
        found = self.members.get(name)
        if found is None:
            found = self.members[name] = self.new_member(name, weigh)
            if weigh is not None:
                self.declared[name] = found
            self.count_at_ns = now_ns
            if self.group is not None:
                self.group.usual_period = None
        return found

    def enter(self, member: Member) -> None:
        """Add a group as a member, in place of an earlier one of this name."""
        self.members[member.name] = self.declared[member.name] = member

    def has_claim(self, now_ns: int) -> bool:
        """Whether it has a share of the bound."""
        return self.waits > 0 or self.claims_until_ns > now_ns

    def is_idle(self, now_ns: int) -> bool:
        """Whether it may be forgotten: it is no declared group, has no claim and no open fetch, and its schedule is idle."""
        return self.weigh is None and not self.open_fetches and not self.has_claim(now_ns) and self.virtual_ns <= now_ns

    def count_fetches(self, period: int) -> bool:
        """Count its open fetches in a period of its group; return whether it fetches for the first time in it."""
        is_first = self.fetches_period != period
        if is_first:
            self.fetches_before = self.fetches_most if self.fetches_period == period - 1 else 0
            self.fetches_most, self.fetches_period = 0, period
        self.fetches_most = max(self.fetches_most, self.open_fetches)
        return is_first

    def share_of(self, member: Member, now_ns: int) -> float:
        """Return how many times the cost a member is charged: the weights of all members with a claim over its own."""
        if now_ns >= self.count_at_ns:
            self.count_at_ns = now_ns + COUNT_EVERY_NS
            for name in [name for name, one in self.members.items() if one.is_idle(now_ns)]:
                self.forget(name)
            for one in self.declared.values():
                one.weight = 1.0 if one.weigh is None else one.weigh()
            self.total = self.count_weights(now_ns)
        return max(1.0, self.total / member.weight)

    # Overridden where several processes share the members

    def new_member(self, name: Hashable, weigh: Weigh | None) -> Member:
        """Return a new member of it."""
        return Member(name, self, weigh=weigh)

    def forget(self, name: Hashable) -> None:
        """Forget a member without a claim."""
        self.members.pop(name).is_gone = True
        if self.group is not None:
            self.group.usual_period = None

    def count_weights(self, now_ns: int) -> float:
        """Return the weights of its members with a claim."""
        return sum(one.weight for one in self.members.values() if one.has_claim(now_ns))

    @property
    def is_shared_equally(self) -> bool:
        """Whether several members had a claim when claims were counted last, and none of them is a declared group."""
        return not self.declared and self.total > 1.0

    def rescale(self, ratio: float, now_ns: int) -> None:
        """Multiply the leads of its members, because the bound of the group has changed."""
        for one in self.members.values():
            if one.virtual_ns > now_ns:
                one.move(now_ns + int((one.virtual_ns - now_ns) * ratio))
            if one.group is None:
                one.rescale(ratio, now_ns)
            if one.level is not None:
                one.level.rescale(ratio, now_ns)

    def bring_back(self, by_ns: int, latest_ns: int) -> None:
        """Bring the schedules of members that are later than `latest_ns` back by as much as one of them, so that their order remains."""
        for one in self.members.values():
            if one.virtual_ns > latest_ns:
                one.virtual_ns = max(latest_ns, one.virtual_ns - by_ns)
        self.in_order = sorted((one.virtual_ns, order, one) for _, order, one in self.in_order)

    def join(self, place: Place) -> None:
        """A request of its own waits from now on."""
        self._leave_order()
        insort(self.waiting, place, key=order_of)
        self._enter_order()

    def leave(self, place: Place) -> None:
        """It does not wait any more."""
        self._leave_order()
        del self.waiting[bisect_left(self.waiting, place.order, key=order_of)]
        self._enter_order()

    def move(self, virtual_ns: int) -> None:
        """Change its virtual time."""
        self._leave_order()
        self.virtual_ns = virtual_ns
        self._enter_order()

    def _enter_order(self) -> None:
        if self.waiting and self.above is not None:
            self.order = self.waiting[0].order
            insort(self.above.in_order, (self.virtual_ns, self.order, self))

    def _leave_order(self) -> None:
        if self.waiting and self.above is not None:
            del self.above.in_order[bisect_left(self.above.in_order, (self.virtual_ns, self.order))]

    def charge(self, cost_ns: float, now_ns: int, burst_ns: int) -> float:
        """Charge it for a request that costs the one above it `cost_ns`; return what it is charged."""
        above = self.above
        assert above is not None
        self.claims_until_ns = now_ns + CLAIM_NS
        cost_ns *= above.share_of(self, now_ns)
        begin_ns, latest_ns = max(self.virtual_ns, now_ns), now_ns + burst_ns
        if begin_ns > latest_ns:  # what nobody else wanted delays it little when the others return
            above.bring_back(begin_ns - latest_ns, latest_ns)
            begin_ns = latest_ns
        self.move(begin_ns + int(cost_ns))
        return cost_ns

    def take_back(self, cost_ns: float, now_ns: int) -> float:
        """Take back a part of what it was charged, which cost the one above it `cost_ns`; return what it gets back."""
        assert self.above is not None
        cost_ns *= self.above.share_of(self, now_ns)
        self.move(self.virtual_ns - int(cost_ns))
        return cost_ns

    def due_ns(self, burst_ns: int) -> int:
        """Return when its own schedule lets a request pass, or the one above it is idle."""
        return 0 if self.above is None else min(self.virtual_ns - burst_ns, self.above.idle_ns())

    @property
    def order_ns(self) -> int:
        """The time by which it goes before other members that may pass. Overridden where proxies share the members."""
        return self.virtual_ns

    def idle_ns(self) -> int:
        """Return when its schedule is idle; what would be lost above it is lost below it, too."""
        if self.group is not None or self.above is None:
            return (self.virtual_ns if self.group is None else self.group.virtual_ns) - IDLE_NS
        return min(self.virtual_ns - IDLE_NS, self.above.idle_ns())

    def soonest(self, now_ns: int, burst_ns: int) -> tuple[int, Place]:
        """Return when the first of its waiting requests, and of those of its members, may pass, and which one that is.

        Of those that may pass now, it is that of the member that is furthest behind. The schedule of this group is not considered.
        """
        if self.level is not None:
            return self.level.soonest(now_ns)
        if self.waiting:
            return now_ns, self.waiting[0]
        found = self._first_in_order(now_ns, burst_ns)
        for one in self.declared.values():
            if one.waits:
                due_ns, place = one.soonest(now_ns, burst_ns)
                due_ns = max(due_ns, one.due_ns(burst_ns), now_ns)
                if one.group is not None:
                    due_ns = max(due_ns, one.group.own_due_ns(now_ns, place.reserved))
                key = due_ns, one.order_ns, place.order, place
                if found is None or key < found:
                    found = key
        assert found is not None
        return found[0], found[3]

    def _first_in_order(self, now_ns: int, burst_ns: int) -> tuple[int, int, Order, Place] | None:
        """Return when the first request of its members that are no declared groups may pass, what orders it, and which one that is.

        None of them may pass before one that is further behind, unless that one has levels, by which no connection of it may pass yet.
        """
        found: tuple[int, int, Order, Place] | None = None
        for virtual_ns, order, one in self.in_order[:BLOCKED_MAX]:
            own_ns = max(now_ns, one.due_ns(burst_ns))
            if found is not None and found[0] <= own_ns:
                break
            due_ns, place = one.soonest(now_ns, burst_ns)
            due_ns = max(due_ns, own_ns)
            if found is None or due_ns < found[0]:
                found = due_ns, virtual_ns, order, place
        return found

    @property
    def path(self) -> Iterator[Member]:
        """This member, and all above it."""
        member: Member | None = self
        while member is not None:
            yield member
            member = member.above


def order_of(place: Place) -> Order:
    """Return the order of a waiting request."""
    return place.order
