"""Ways to admit the requests of a group, to compare: the window, and the schedule of ADR 12 with four orders of its waiting requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from quota.groups.group import QuotaGroup
from quota.paced_schedule import SECOND_NS, PacedSchedule, cost_ns

MS_NS: Final = 1_000_000
CLAIM_NS: Final = SECOND_NS
"""A member keeps its claim on a share for this long after its last request."""


class Connection:
    """One connection of a client, with one request in flight.

    Attributes:
        member: the number of the member that it belongs to.
        size: bytes of each request.
        pace_ns: time between requests that the client makes; 0: it makes the next one after each answer.
        asked_ns: when the client made the current request.
        client: its principal, and its client-id; used where these are members.
    """

    __slots__ = ("asked_ns", "client", "member", "pace_ns", "size")

    def __init__(self, member: int, size: int, pace_ns: int = 0, client: tuple[int, str] = (0, "")) -> None:
        self.member = member
        self.client = client
        self.size = size
        self.pace_ns = pace_ns
        self.asked_ns = 0


class Admission(Protocol):
    """Decides which request passes. Times are nanoseconds."""

    def join(self, connection: Connection, now_ns: int) -> None:
        """A request of the connection waits from now on."""

    def next(self, now_ns: int) -> Connection | None:
        """Return the connection whose request passes now, charged and no longer waiting; None: none passes."""

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when `next` is worth calling again; None: when something changes."""

    def answered(self, connection: Connection, now_ns: int) -> None:
        """The answer to a request that passed has arrived."""


class ByThrottle:
    """A request passes at once, and is charged at its answer, which throttles its connection. The window works so."""

    def __init__(self, bound: float) -> None:
        self.group = QuotaGroup({}, bound)
        self.until_ns: dict[Connection, int] = {}
        self.waiting: list[Connection] = []

    def join(self, connection: Connection, now_ns: int) -> None:
        """Wait until the throttle of the connection is over."""
        self.waiting.append(connection)

    def next(self, now_ns: int) -> Connection | None:
        """Pass a request whose connection is not throttled."""
        for place, connection in enumerate(self.waiting):
            if self.until_ns.get(connection, 0) <= now_ns:
                return self.waiting.pop(place)
        return None

    def wake_ns(self, now_ns: int) -> int | None:
        """Return the end of the first throttle."""
        return min((self.until_ns.get(connection, 0) for connection in self.waiting), default=None)

    def answered(self, connection: Connection, now_ns: int) -> None:
        """Charge the request and throttle the connection."""
        self.until_ns[connection] = now_ns + self.throttle_ns(connection, now_ns)

    def throttle_ns(self, connection: Connection, now_ns: int) -> int:
        """Charge the request; return the throttle time."""
        return max(0, self.group.record(connection.size, now_ns // MS_NS)) * MS_NS


class ChargedAtAnswer(ByThrottle):
    """The schedule, charged at the answer like the window."""

    def __init__(self, bound: float, burst_ns: int) -> None:
        super().__init__(bound)
        self.bound = bound
        self.schedule = PacedSchedule(burst_ns)

    def throttle_ns(self, connection: Connection, now_ns: int) -> int:
        """Charge the request; return how long the schedule is too far ahead."""
        self.schedule.charge(cost_ns(connection.size, self.bound), now_ns)
        return self.schedule.wait_ns(now_ns)


class AdmittedFirst:
    """The schedule, charged when a request passes. Waiting requests pass in their order."""

    def __init__(self, bound: float, burst_ns: int) -> None:
        self.bound = bound
        self.schedule = PacedSchedule(burst_ns)
        self.waiting: deque[Connection] = deque()

    def join(self, connection: Connection, now_ns: int) -> None:
        """Join the queue."""
        self.waiting.append(connection)

    def next(self, now_ns: int) -> Connection | None:
        """Pass the first request when the schedule allows one."""
        if not self.waiting or self.schedule.wait_ns(now_ns):
            return None
        connection = self.waiting.popleft()
        self.schedule.charge(cost_ns(connection.size, self.bound), now_ns)
        return connection

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when the schedule allows the next request."""
        return now_ns + self.schedule.wait_ns(now_ns) if self.waiting else None

    def answered(self, connection: Connection, now_ns: int) -> None:
        """Do nothing: the request is charged."""


class Member:
    """A member of a group.

    Attributes:
        weight: its part of the group, relative to the others.
        waiting: its waiting requests.
        virtual_ns: its own virtual time.
        claims_until_ns: until when it keeps its claim.
    """

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.waiting: deque[Connection] = deque()
        self.virtual_ns = 0
        self.claims_until_ns = 0


class FairQueue:
    """Start-time fair queueing: the waiting member with the smallest start tag passes when the schedule allows a request."""

    def __init__(self, bound: float, burst_ns: int, weights: Sequence[int]) -> None:
        self.bound = bound
        self.schedule = PacedSchedule(burst_ns)
        self.members = [Member(weight) for weight in weights]
        self.start_ns = 0

    def join(self, connection: Connection, now_ns: int) -> None:
        """Join the queue of the member."""
        self.members[connection.member].waiting.append(connection)

    def next(self, now_ns: int) -> Connection | None:
        """Pass a request of the member with the smallest start tag."""
        waiting = [member for member in self.members if member.waiting]
        if not waiting or self.schedule.wait_ns(now_ns):
            return None
        member = min(waiting, key=lambda one: max(one.virtual_ns, self.start_ns))
        connection = member.waiting.popleft()
        cost = cost_ns(connection.size, self.bound)
        self.start_ns = max(member.virtual_ns, self.start_ns)
        member.virtual_ns = self.start_ns + cost // member.weight
        self.schedule.charge(cost, now_ns)
        return connection

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when the schedule allows the next request."""
        return now_ns + self.schedule.wait_ns(now_ns) if any(member.waiting for member in self.members) else None

    def answered(self, connection: Connection, now_ns: int) -> None:
        """Do nothing: the request is charged."""


class DeficitRoundRobin:
    """Deficit round robin: members that wait get a quantum in turn, and lose what is left of it when they stop waiting."""

    def __init__(self, bound: float, burst_ns: int, weights: Sequence[int], quantum: int = 100_000) -> None:
        self.bound = bound
        self.schedule = PacedSchedule(burst_ns)
        self.members = [Member(weight) for weight in weights]
        self.quantum = quantum
        self.deficits = [0 for _ in weights]
        self.turn = 0

    def join(self, connection: Connection, now_ns: int) -> None:
        """Join the queue of the member."""
        self.members[connection.member].waiting.append(connection)

    def next(self, now_ns: int) -> Connection | None:
        """Pass a request of the member whose turn it is."""
        if not any(member.waiting for member in self.members) or self.schedule.wait_ns(now_ns):
            return None
        while True:
            member = self.members[self.turn]
            if member.waiting and member.waiting[0].size <= self.deficits[self.turn]:
                connection = member.waiting.popleft()
                self.deficits[self.turn] -= connection.size
                self.schedule.charge(cost_ns(connection.size, self.bound), now_ns)
                return connection
            if not member.waiting:
                self.deficits[self.turn] = 0
            self.turn = (self.turn + 1) % len(self.members)
            if self.members[self.turn].waiting:
                self.deficits[self.turn] += self.quantum * self.members[self.turn].weight

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when the schedule allows the next request."""
        return now_ns + self.schedule.wait_ns(now_ns) if any(member.waiting for member in self.members) else None

    def answered(self, connection: Connection, now_ns: int) -> None:
        """Do nothing: the request is charged."""


class MemberSchedules:
    """A schedule for each member, at its share of the bound among the members with a claim, below the schedule of the group.

    A member within its own schedule may use the burst of the group. A member ahead of it passes only what would be lost: when the schedule
    of the group is not ahead of the clock.
    """

    def __init__(self, bound: float, burst_ns: int, weights: Sequence[int]) -> None:
        self.bound = bound
        self.schedule = PacedSchedule(burst_ns)
        self.members = [Member(weight) for weight in weights]

    def join(self, connection: Connection, now_ns: int) -> None:
        """Join the queue of the member, which claims its share."""
        member = self.members[connection.member]
        member.waiting.append(connection)
        member.claims_until_ns = now_ns + CLAIM_NS

    def next(self, now_ns: int) -> Connection | None:
        """Pass a request of the member that is furthest behind, if it is within its schedule or the group's schedule is idle."""
        waiting = [member for member in self.members if member.waiting]
        if not waiting or self.schedule.wait_ns(now_ns):
            return None
        member = min(waiting, key=lambda one: one.virtual_ns)
        if member.virtual_ns > now_ns + self.schedule.burst_ns and self.schedule.lead_ns(now_ns):
            return None
        connection = member.waiting.popleft()
        member.claims_until_ns = now_ns + CLAIM_NS
        cost = cost_ns(connection.size, self.bound)
        claims = sum(one.weight for one in self.members if one.waiting or one.claims_until_ns > now_ns)
        own_cost = cost * claims // member.weight
        member.virtual_ns = min(max(member.virtual_ns, now_ns), now_ns + self.schedule.burst_ns) + own_cost
        self.schedule.charge(cost, now_ns)
        return connection

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when the schedules allow the next request."""
        waiting = [member.virtual_ns for member in self.members if member.waiting]
        if not waiting:
            return None
        own_ns = min(waiting) - self.schedule.burst_ns
        return max(now_ns + self.schedule.wait_ns(now_ns), min(own_ns, now_ns + self.schedule.lead_ns(now_ns)))

    def answered(self, connection: Connection, now_ns: int) -> None:
        """The member keeps its claim until it can send the next request."""
        self.members[connection.member].claims_until_ns = now_ns + CLAIM_NS
