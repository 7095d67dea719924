"""Several processes that enforce one schedule: workers, and members of a fleet. Each admits by what it knows of the others.

A process charges its schedule for what the others passed when it learns of it. In a fleet it also assumes what it cannot know yet: c times
what it passed itself in the last D, where c is what the others used for each own byte in the last seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from bench.paced.admission import CLAIM_NS, MS_NS, Connection
from bench.paced.loads import BOUND, BURST_NS, Clients
from bench.paced.simulated import STEADY_S, Passed, run, shares
from quota.paced_schedule import SECOND_NS, PacedSchedule, cost_ns

PUBLISH_NS: Final = 50 * MS_NS
HALF_LIFE_NS: Final = 3 * SECOND_NS
BURSTS_MS: Final = (100, 250, 500)
"""Further bursts of proxies. One that is shorter than D has no room for what the others pass in D, so less of that is assumed."""
SILENCE_NS: Final = 11 * SECOND_NS
"""After this time without usage, a process knows nothing about the others for 2 D, and assumes that each uses as much as itself."""
Known = Callable[[int], int]
"""Returns when the others know what passed at a time in ns."""


class Arrangement(NamedTuple):
    """How processes learn of each other.

    Attributes:
        known: when usage is known to the others.
        lag_ns: D, for which own usage is assumed c times; 0: nothing is assumed.
        shares_members: whether members have one schedule over all processes, and not one in each.
        is_chosen: whether the product does so.
        burst_ns: the burst of all of them.
    """

    name: str
    processes: int
    known: Known
    lag_ns: int = 0
    shares_members: bool = True
    is_chosen: bool = False
    burst_ns: int = BURST_NS


class _Member:
    def __init__(self) -> None:
        self.waiting: deque[Connection] = deque()
        self.virtual_ns = 0
        self.claims_until_ns = 0

    def has_claim(self, now_ns: int) -> bool:
        return bool(self.waiting) or self.claims_until_ns > now_ns


class _Process:
    """One process: its schedule, its members, and what it knows of the others."""

    def __init__(self, members: int, burst_ns: int) -> None:
        self.schedule = PacedSchedule(burst_ns)
        self.members = [_Member() for _ in range(members)]
        self.recent: deque[tuple[int, int]] = deque()
        self.own = self.others = 0.0
        self.weighed_ns = 0
        self.used_ns = self.first_ns = -SILENCE_NS

    def weigh(self, now_ns: int, own: int = 0, others: int = 0) -> None:
        """Add to the two sums whose weights halve every 3 s."""
        left = 0.5 ** ((now_ns - self.weighed_ns) / HALF_LIFE_NS)
        self.own, self.others, self.weighed_ns = self.own * left + own, self.others * left + others, now_ns

    def assumed_ns(self, lag_ns: int, others: int, now_ns: int) -> int:
        """Return what the others are assumed to have passed that is not known yet."""
        while self.recent and self.recent[0][0] <= now_ns - lag_ns:
            self.recent.popleft()
        is_new = now_ns - self.used_ns >= SILENCE_NS or now_ns - self.first_ns < 2 * lag_ns
        factor = others if is_new or not self.own else min(self.others / self.own, others)
        return int(factor * sum(cost for _, cost in self.recent))


class Processes:
    """Admits the requests of connections that are spread over processes in turn."""

    def __init__(self, arrangement: Arrangement, members: int) -> None:
        self.how = arrangement
        self.processes = [_Process(members, arrangement.burst_ns) for _ in range(arrangement.processes)]
        self.place: dict[Connection, int] = {}
        self.under_way: list[tuple[int, int, int, int, int]] = []
        self.turn = 0

    def join(self, connection: Connection, now_ns: int) -> None:
        """Let a request wait at its process."""
        at = self.place.setdefault(connection, len(self.place) % len(self.processes))
        member = self.processes[at].members[connection.member]
        member.waiting.append(connection)
        member.claims_until_ns = now_ns + CLAIM_NS

    def answered(self, connection: Connection, now_ns: int) -> None:
        """The member keeps its claim."""
        self.processes[self.place[connection]].members[connection.member].claims_until_ns = now_ns + CLAIM_NS

    def next(self, now_ns: int) -> Connection | None:
        """Pass a request at one process; all have their turn to be the first."""
        self._learn(now_ns)
        self.turn += 1
        for step in range(len(self.processes)):
            at = (self.turn + step) % len(self.processes)
            due = self._due_ns(self.processes[at], now_ns)
            if due is not None and due[0] <= now_ns:
                return self._pass(at, due[1], now_ns)
        return None

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when a process lets its next request pass, or learns of others."""
        dues = [due[0] for process in self.processes if (due := self._due_ns(process, now_ns)) is not None]
        if not dues:
            return None
        return min([*dues, *(known[0] for known in self.under_way[:1])])

    def _due_ns(self, process: _Process, now_ns: int) -> tuple[int, int] | None:
        waiting = [at for at, member in enumerate(process.members) if member.waiting]
        if not waiting:
            return None
        first = min(waiting, key=lambda at: process.members[at].virtual_ns)
        virtual_ns, burst_ns = process.schedule.virtual_ns, self.how.burst_ns
        own_ns = min(process.members[first].virtual_ns - burst_ns, virtual_ns)
        assumed_ns = process.assumed_ns(self.how.lag_ns, len(self.processes) - 1, now_ns) if self.how.lag_ns else 0
        assumed_ns = max(0, assumed_ns - max(0, self.how.lag_ns - burst_ns))
        return max(max(virtual_ns, now_ns) + assumed_ns - burst_ns if assumed_ns else virtual_ns - burst_ns, own_ns), first

    def _pass(self, at: int, member: int, now_ns: int) -> Connection:
        process = self.processes[at]
        connection = process.members[member].waiting.popleft()
        cost = cost_ns(connection.size, BOUND)
        process.schedule.charge(cost, now_ns)
        process.recent.append((now_ns, cost))
        process.first_ns = now_ns if now_ns - process.used_ns >= SILENCE_NS else process.first_ns
        process.used_ns = now_ns
        process.weigh(now_ns, own=cost)
        process.members[member].claims_until_ns = now_ns + CLAIM_NS
        self._charge_member(process, member, cost, now_ns)
        known_ns = self.how.known(now_ns)
        for other in range(len(self.processes)):
            if other != at:
                heappush(self.under_way, (known_ns, len(self.under_way) + now_ns, other, member, cost))
        return connection

    def _charge_member(self, process: _Process, number: int, cost: int, now_ns: int) -> None:
        own = [process] if not self.how.shares_members else self.processes
        claims = sum(any(one.members[at].has_claim(now_ns) for one in own) for at in range(len(process.members)))
        member = process.members[number]
        member.virtual_ns = min(max(member.virtual_ns, now_ns), now_ns + self.how.burst_ns) + cost * max(1, claims)

    def _learn(self, now_ns: int) -> None:
        while self.under_way and self.under_way[0][0] <= now_ns:
            _, _, at, member, cost = heappop(self.under_way)
            process = self.processes[at]
            process.schedule.charge(cost, now_ns)
            process.weigh(now_ns, others=cost)
            if self.how.shares_members:
                self._charge_member(process, member, cost, now_ns)


class ProcessFigures(NamedTuple):
    """Figures of a run.

    Attributes:
        long_run: bytes from second 10 on, over bound x time.
        worst_second: the most bytes that passed in one second from second 10 on, over the bound.
        beyond_ms: as in `FetchFigures`, over all processes.
    """

    long_run: float
    worst_second: float
    beyond_ms: float


def _at_once(now_ns: int) -> int:
    return now_ns


def _after(lag_ns: int) -> Known:
    """Known after a time between the lag and half of it, by the ms in which it passed."""
    return lambda now_ns: now_ns + lag_ns // 2 + (now_ns // MS_NS * 7919) % (lag_ns // 2)


def _by_bus(lag_ns: int) -> Known:
    """Published at the next of the times at which a member publishes, and known after the lag of the bus."""
    return lambda now_ns: -(-now_ns // PUBLISH_NS) * PUBLISH_NS + lag_ns


def _arrangements() -> Iterator[Arrangement]:
    for count in (2, 4):
        yield Arrangement(f"{count} workers, at once", count, _at_once, is_chosen=True)
        yield Arrangement(f"{count} workers, after 10 to 20 ms", count, _after(20 * MS_NS))
    for lag_ms in (50, 250):
        for count in (2, 4):
            name = f"{count} proxies, D of {lag_ms} ms"
            known = _by_bus(lag_ms * MS_NS - PUBLISH_NS // 2)
            yield Arrangement(name, count, known)
            yield Arrangement(f"{name}, 1 + c", count, known, lag_ms * MS_NS, is_chosen=True)
            for burst_ms in BURSTS_MS:
                its = f"{name}, 1 + c, burst of {burst_ms} ms"
                yield Arrangement(its, count, known, lag_ms * MS_NS, is_chosen=True, burst_ns=burst_ms * MS_NS)


ARRANGEMENTS: Final = tuple(_arrangements())
FLOWS: Final = ((16, 16_000), (64, 16_000), (16, 100_000))
"""Connections, and the size of their requests in bytes."""
TOGETHER: Final = (
    ("1 connection; 16 (100 kB)", (Clients(1, 100_000), Clients(16, 100_000))),
    ("1 of 10 kB; 16 of 1 MB", (Clients(1, 10_000), Clients(16, 1_000_000))),
)


def process_flow(seconds: int) -> Iterator[tuple[Arrangement, int, int, ProcessFigures]]:
    """Yield the figures of one member with greedy connections for each arrangement."""
    for how in ARRANGEMENTS:
        for count, size in FLOWS:
            passed = run(Processes(how, 1), [Connection(0, size) for _ in range(count)], seconds)
            yield how, count, size, process_figures(passed, seconds, how.burst_ns)


def process_shares(seconds: int) -> Iterator[tuple[str, str, list[float]]]:
    """Yield the shares of two members whose connections are spread over two workers, with schedules of members in each and over both."""
    for name, clients in TOGETHER:
        for order, shares_members in (("in each worker", False), ("over both workers", True)):
            how = Arrangement(order, 2, _at_once, shares_members=shares_members)
            connections = [Connection(number, one.size) for number, one in enumerate(clients) for _ in range(one.connections)]
            yield name, order, shares(run(Processes(how, len(clients)), connections, seconds), BOUND, seconds, len(clients))


def process_figures(passed: Sequence[Passed], seconds: int, burst_ns: int = BURST_NS) -> ProcessFigures:
    """Return the figures of what passed at all processes together."""
    whole, beyond_ns = PacedSchedule(burst_ns), 0
    per_second = [0] * seconds
    for one in passed:
        beyond_ns = max(beyond_ns, whole.lead_ns(one.at_ns) - burst_ns)
        whole.charge(cost_ns(one.size, BOUND), one.at_ns)
        per_second[one.at_ns // SECOND_NS] += one.size
    steady = [size / BOUND for size in per_second[STEADY_S:]]
    return ProcessFigures(sum(steady) / len(steady), max(steady), beyond_ns / 1e6)
