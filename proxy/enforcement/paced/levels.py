"""The levels below a principal: its client-ids, and the connections of each, with equal shares.

They are made when requests of several connections of a principal wait, and dropped when only one of these has a claim. Until then nothing
below the principal is charged.

The rules are those of all members, with three differences, because clients choose how many connections and client-ids they have:

* No check and no charge looks at all members. Each level has a clock, which is ahead of the real one by `back_ns`. Virtual times are those
  of this clock, so one addition brings all members of the level back. Waiting members are sorted by them, and members with a claim are
  in the order in which their claims end.
* A new member begins with a lead of the burst, so more connections and client-ids have no more bursts.
* A member that departs leaves its lead to the next new member. So a client that connects again, or goes on under another client-id, waits
  as long as before.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Final, Generic, TypeVar

from proxy.enforcement.paced.member import BLOCKED_MAX, CLAIM_NS, IDLE_NS, Connection, Member, Order, Place

DEPARTED_MAX: Final = 64
"""Leads of departed members that wait for one new member each. If there are more, the shortest one is for all new members."""
_Kind = TypeVar("_Kind", bound="EqualMember")


class EqualMember(Member):
    """A client-id or a connection. Its virtual time is one of the clock of its level.

    Attributes:
        siblings: the members of its level, with itself.
        order: that of the request with which it began to wait.
        factor: how many times the cost it was charged last.
    """

    __slots__ = ("factor", "siblings")

    def __init__(self, name: str, above: Member, siblings: EqualMembers[Any], begin_ns: int) -> None:
        super().__init__(name, above)
        self.siblings = siblings
        self.factor = 1
        self.virtual_ns = begin_ns

    def charge(self, cost_ns: float, now_ns: int, burst_ns: int) -> float:
        """Charge it for a request that costs the one above it `cost_ns`; return what it is charged."""
        return self.siblings.charge(self, cost_ns, now_ns, burst_ns)

    def take_back(self, cost_ns: float, now_ns: int) -> float:
        """Take back a part of what it was charged, which cost the one above it `cost_ns`; return what it gets back."""
        cost_ns *= self.factor
        self.siblings.move(self, self.virtual_ns - int(cost_ns))
        return cost_ns

    def due_ns(self, burst_ns: int) -> int:
        """Return when its own schedule lets a request pass, or the one above it is idle."""
        assert self.above is not None
        return min(self.virtual_ns - self.siblings.back_ns - burst_ns, self.above.idle_ns())

    def idle_ns(self) -> int:
        """Return when its schedule, or one above it, is idle."""
        assert self.above is not None
        return min(self.virtual_ns - self.siblings.back_ns - IDLE_NS, self.above.idle_ns())


class EqualMembers(Generic[_Kind]):
    """The members of one level, which share equally.

    Attributes:
        back_ns: how far the clock of the level is ahead of the real one.
        waiting: those that wait, with virtual time and order; sorted.
    """

    __slots__ = ("_claims", "_departed", "_for_all_ns", "back_ns", "waiting")

    def __init__(self) -> None:
        self.back_ns = 0
        self.waiting: list[tuple[int, Order, _Kind]] = []
        self._claims: dict[_Kind, None] = {}  # in the order in which the claims end
        self._departed: list[int] = []
        self._for_all_ns = 0

    def begin_ns(self, now_ns: int, lead_ns: int) -> int:
        """Return the virtual time of a new member: with this lead, or with the longest one that a member has left that has departed."""
        return max(now_ns + self.back_ns + lead_ns, self._for_all_ns, self._departed.pop() if self._departed else 0)

    def depart(self, member: _Kind) -> None:
        """Remove a member that does not wait, and keep its lead."""
        self._claims.pop(member, None)
        insort(self._departed, member.virtual_ns)
        if len(self._departed) > DEPARTED_MAX:
            self._for_all_ns = max(self._for_all_ns, self._departed.pop(0))

    def has_debts(self, now_ns: int, burst_ns: int) -> bool:
        """Whether a lead of a departed member would delay a new one."""
        return max(self._for_all_ns, self._departed[-1] if self._departed else 0) > now_ns + self.back_ns + burst_ns

    def clear(self) -> None:
        """Forget the members, because the level is dropped."""
        self._claims.clear()

    def claims(self, now_ns: int) -> int:
        """Return the number of members with a claim."""
        claims = self._claims
        while claims:
            first = next(iter(claims))
            if first.claims_until_ns > now_ns:
                break
            del claims[first]
            if first.waits:
                self._claim(first, now_ns)
        return len(claims)

    def _claim(self, member: _Kind, now_ns: int) -> None:
        member.claims_until_ns = now_ns + CLAIM_NS
        self._claims.pop(member, None)
        self._claims[member] = None

    def wait(self, member: _Kind, order: Order, now_ns: int) -> None:
        """A request of a member waits, which had none."""
        self._claim(member, now_ns)
        member.order = order
        insort(self.waiting, (member.virtual_ns, order, member))

    def wait_no_more(self, member: _Kind) -> None:
        """No request of a member waits any more."""
        del self.waiting[bisect_left(self.waiting, (member.virtual_ns, member.order))]

    def move(self, member: _Kind, virtual_ns: int) -> None:
        """Change the virtual time of a member."""
        if member.waits:
            self.wait_no_more(member)
            insort(self.waiting, (virtual_ns, member.order, member))
        member.virtual_ns = virtual_ns

    def charge(self, member: _Kind, cost_ns: float, now_ns: int, burst_ns: int) -> float:
        """Charge a member, never from further ahead than the burst: the others are brought back by as much as the first one that waits."""
        self._claim(member, now_ns)
        member.factor = self.claims(now_ns)
        cost_ns *= member.factor
        latest_ns = now_ns + self.back_ns + burst_ns
        begin_ns = max(member.virtual_ns, latest_ns - burst_ns)
        if begin_ns > latest_ns:
            first_ns = min(begin_ns, self.waiting[0][0]) if self.waiting else begin_ns
            self.back_ns += max(0, first_ns - latest_ns)
            begin_ns = max(first_ns, latest_ns)
        self.move(member, begin_ns + int(cost_ns))
        return cost_ns

    def rescale(self, ratio: float, now_ns: int) -> None:
        """Multiply the leads of its members that wait or have a claim."""
        now_ns += self.back_ns
        for member in self._claims:
            if member.virtual_ns > now_ns:
                self.move(member, now_ns + int((member.virtual_ns - now_ns) * ratio))


class ConnectionMember(EqualMember):
    """A connection.

    Attributes:
        client: the client-id that it has.
        place: its waiting request.
    """

    __slots__ = ("client", "place")

    def __init__(self, client: ClientIdMember, begin_ns: int) -> None:
        super().__init__("", client, client.connections, begin_ns)
        self.client = client
        self.place: Place | None = None
        client.open += 1

    def charge(self, cost_ns: float, now_ns: int, burst_ns: int) -> float:
        """Charge it, and drop the levels if no other connection has a claim."""
        cost_ns = super().charge(cost_ns, now_ns, burst_ns)
        self.client.ids.drop_if_single(self.client, now_ns)
        return cost_ns

    def depart(self) -> None:
        """The connection has ended, or goes on under another client-id."""
        client = self.client
        client.connections.depart(self)
        client.open -= 1
        if not client.open:
            client.ids.forget(client)


class ClientIdMember(EqualMember):
    """A client-id.

    Attributes:
        ids: the client-ids of the same principal.
        connections: its connections.
        open: number of these.
    """

    __slots__ = ("connections", "ids", "open")

    def __init__(self, name: str, principal: Member, ids: ClientIdLevel, begin_ns: int) -> None:
        super().__init__(name, principal, ids.clients, begin_ns)
        self.ids = ids
        self.connections = EqualMembers[ConnectionMember]()
        self.open = 0


class ClientIdLevel:
    """The client-ids of one principal, and their connections.

    Args:
        principal: the principal, with its waiting requests.
        burst_ns: the burst of the group.
        now_ns: the time.

    Attributes:
        clients: the client-ids.
    """

    __slots__ = ("_begins_with_ns", "_burst_ns", "_by_name", "_principal", "clients")

    def __init__(self, principal: Member, burst_ns: int, now_ns: int) -> None:
        self._principal = principal
        self._burst_ns = burst_ns
        self._begins_with_ns = min(max(0, principal.virtual_ns - now_ns), burst_ns)  # those that wait now have the lead of the principal
        self._by_name: dict[str, ClientIdMember] = {}
        self.clients = EqualMembers[ClientIdMember]()
        for place in principal.waiting:
            self.join(place, now_ns)
        self._begins_with_ns = burst_ns

    def of(self, connection: Connection, now_ns: int) -> ConnectionMember:
        """Return the member that a connection is."""
        found, name = connection.member, connection.client_id
        if isinstance(found, ConnectionMember) and found.client.ids is self and found.client.name == name:
            return found
        if found is not None:
            found.depart()
        client, lead_ns = self._by_name.get(name), self._begins_with_ns
        if client is None:
            begin_ns = self.clients.begin_ns(now_ns, lead_ns)
            client = self._by_name[name] = ClientIdMember(name, self._principal, self, begin_ns)
        connection.member = made = ConnectionMember(client, client.connections.begin_ns(now_ns, lead_ns))
        return made

    def forget(self, client: ClientIdMember) -> None:
        """The last connection of a client-id has departed."""
        self.clients.depart(client)
        self._by_name.pop(str(client.name), None)

    def join(self, place: Place, now_ns: int) -> None:
        """A request of the principal waits from now on."""
        assert place.connection is not None
        member = place.charged = self.of(place.connection, now_ns)
        client, member.place = member.client, place
        client.connections.wait(member, place.order, now_ns)
        member.waits = 1
        if not client.waits:
            self.clients.wait(client, place.order, now_ns)
        client.waits += 1

    def leave(self, place: Place) -> None:
        """It does not wait any more."""
        member = place.charged
        assert isinstance(member, ConnectionMember)
        client, member.place = member.client, None
        client.connections.wait_no_more(member)
        member.waits = 0
        if client.waits == 1:
            self.clients.wait_no_more(client)
        client.waits -= 1

    def soonest(self, now_ns: int) -> tuple[int, Place]:
        """Return when the first of the waiting requests may pass, and which one that is."""
        idle_ns, burst_ns = self._principal.idle_ns(), self._burst_ns
        found: tuple[int, Place] | None = None
        for virtual_ns, _, client in self.clients.waiting[:BLOCKED_MAX]:
            first_ns, _, member = client.connections.waiting[0]
            assert member.place is not None
            client_ns = virtual_ns - self.clients.back_ns
            own_ns = min(first_ns - client.connections.back_ns - burst_ns, client_ns - IDLE_NS)
            due_ns = max(now_ns, min(idle_ns, max(client_ns - burst_ns, own_ns)))
            if found is None or due_ns < found[0]:
                found = due_ns, member.place
            if found[0] <= max(now_ns, client_ns - burst_ns):
                break
        assert found is not None
        return found

    def drop_if_single(self, client: ClientIdMember, now_ns: int) -> None:
        """Drop the levels if the connection that is charged is the only one with a claim, and no lead is kept for new ones."""
        clients, connections, principal, burst_ns = self.clients, client.connections, self._principal, self._burst_ns
        if principal.waits > 1 or clients.claims(now_ns) > 1 or connections.claims(now_ns) > 1:
            return
        if clients.has_debts(now_ns, burst_ns) or connections.has_debts(now_ns, burst_ns):
            return
        principal.level = None
        for one in self._by_name.values():
            one.connections.clear()
        clients.clear()
        self._by_name.clear()

    def rescale(self, ratio: float, now_ns: int) -> None:
        """Multiply the leads of all members, because the bound of the group has changed."""
        self.clients.rescale(ratio, now_ns)
        for client in self._by_name.values():
            client.connections.rescale(ratio, now_ns)
