"""Clients far over their quota at several members of a fleet, on virtual time, with the messages of the product on a bus with a lag."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

from bench.fleet.loads import connections_of, jains_index
from quota.groups.group import QuotaGroup
from tests.support.fleet.fleet_members import FleetMember
from tests.support.memory.shared_workers import TAGS

START_MS = 60_000
BOUND = 1e6
REQUEST_BYTES = 20_000
CONNECTIONS = 48
RTT_MS = 5
PUBLISH_MS = 50
SHARE_MS = 10
MOVE_MS = 10_000
BELOW = 0.95
PACED = 10
TRICKLE_MS = 4_000
CUT_S = (90, 120)
"""Beginning and end of a cut of the bus, in seconds."""
NOTICED_MS = 1_250
"""Time after which members notice it."""


class Figures(NamedTuple):
    """Rates in multiples of the bound.

    Attributes:
        long_run: after the first minute; worst: in the 10 s with the highest rate.
        fairness: Jain's index of the bytes of the members.
        needless: part of the throttles that one process would not have imposed; 0: there was no throttle.
        before, during, after: rates before a cut, during it, and from 2 s after it on.
    """

    long_run: float
    worst: float
    fairness: float
    needless: float
    before: float
    during: float
    after: float


class Load(NamedTuple):
    """A load.

    Attributes:
        connections: of each member.
        moves: whether all clients leave their member every 10 s, and connect to the next one at once.
        pause_ms: time between the requests of a connection of each member; empty: the next one after each answer.
    """

    connections: Sequence[int]
    moves: bool = False
    pause_ms: Sequence[float] = ()


def loads(members: int) -> dict[str, Load]:
    """Return the loads by name."""
    return {
        "even": Load(connections_of("even", members, CONNECTIONS)),
        "skewed": Load(connections_of("skewed", members, CONNECTIONS)),
        "moving": Load(connections_of("moving", members, CONNECTIONS), moves=True),
        "below the bound": _below(members),
    }


def _below(members: int) -> Load:
    """Return a load below the bound: one member has 0.95 of it, less what the others trickle, which is a request each 4 s."""
    trickle = (members - 1) * REQUEST_BYTES / (TRICKLE_MS / 1_000)
    pause_ms = 1_000 * REQUEST_BYTES * PACED / (BELOW * BOUND - trickle)
    return Load([PACED] + [1] * (members - 1), pause_ms=[pause_ms] + [TRICKLE_MS] * (members - 1))


@dataclass(eq=False)
class Connection:
    """A connection to a member.

    Attributes:
        until_ms: end of its throttle.
        is_open: whether its client is there. The request that it had sent before it left still passes.
    """

    member: int
    until_ms: int = 0
    is_open: bool = True


class Simulation:
    """Members with one worker each, their bus, and their clients."""

    def __init__(self, members: int, lag_ms: int, load: Load, *, assumes: bool, cut: bool, seed: int) -> None:
        self.cut_ms = [START_MS + at * 1_000 for at in CUT_S] if cut else [0, 0]
        self.random = random.Random(seed)
        self.latency_ms = max(1, lag_ms - PUBLISH_MS)
        self.members = [FleetMember(f"m{number}", 1, BOUND, START_MS) for number in range(members)]
        for member in self.members:
            member.lag_ms = lag_ms if assumes else 0
            member.assumes_silence = True
        self.truth = QuotaGroup(TAGS, BOUND)
        self.load = load
        self.events: list[tuple[int, int, str, int, Any]] = []
        self.connections: list[Connection] = []
        self.order = 0
        self.used: list[tuple[int, int]] = []
        self.throttles = self.needless = 0

    def push(self, at_ms: int, kind: str, member: int, what: Any = None) -> None:
        self.order += 1
        heappush(self.events, (at_ms, self.order, kind, member, what))

    def run(self, seconds: int) -> Figures:
        """Run for this time; return the figures."""
        for number, count in enumerate(self.load.connections):
            for _ in range(count):
                self.push(START_MS + self.random.randrange(RTT_MS), "connect", number)
            self.push(START_MS + self.random.randrange(PUBLISH_MS), "publish", number)
            self.push(START_MS + self.random.randrange(SHARE_MS), "share", number)
        if self.load.moves:
            self.push(START_MS + MOVE_MS, "move", 0)
        while self.events[0][0] < START_MS + seconds * 1_000:
            now_ms, _, kind, number, what = heappop(self.events)
            getattr(self, f"_{kind}")(number, what, now_ms)
        return self._figures(seconds)

    def _connect(self, number: int, _what: Any, now_ms: int) -> None:
        """A client connects; its first request waits until the throttles are known that were left at other members."""
        connection, group = Connection(number), self.members[number].workers[0].group
        self.connections.append(connection)
        is_known = group.departed_until(now_ms) > now_ms
        self.push(now_ms if is_known else max(now_ms, group.throttles_known_ms(now_ms)), "first", number, connection)

    def _first(self, number: int, connection: Connection, now_ms: int) -> None:
        connection.until_ms = self.members[number].workers[0].group.take_throttle(now_ms)
        self.push(max(now_ms, connection.until_ms), "request", number, connection)

    def _move(self, number: int, _what: Any, now_ms: int) -> None:
        """All clients leave a member and their throttles there, and connect to the next one."""
        group, after = self.members[number].workers[0].group, (number + 1) % len(self.members)
        left, self.connections = self.connections, []
        for connection in left:
            connection.is_open = False
            if connection.until_ms > now_ms:
                group.leave_throttle(connection.until_ms, now_ms)
            self.push(now_ms + self.random.randrange(RTT_MS), "connect", after)
        self.push(now_ms + MOVE_MS, "move", after)

    def _request(self, number: int, connection: Connection, now_ms: int) -> None:
        group = self.members[number].workers[0].group
        self.used.append((now_ms - START_MS, number))
        alone_ms = self.truth.record(REQUEST_BYTES, now_ms)
        throttle_ms = group.record(REQUEST_BYTES, now_ms)
        if throttle_ms > 0:
            self.throttles += 1
            self.needless += alone_ms <= 0
            connection.until_ms = now_ms + throttle_ms
        pause_ms = self.load.pause_ms[number] if self.load.pause_ms else RTT_MS
        if connection.is_open:
            at_ms = now_ms + max(0, throttle_ms) + max(1, round(pause_ms * self.random.uniform(0.8, 1.2)))
            self.push(at_ms, "request", number, connection)
        elif throttle_ms > 0:
            group.leave_throttle(connection.until_ms, now_ms)

    def _share(self, number: int, _what: Any, now_ms: int) -> None:
        self.members[number].workers[0].publish(now_ms)
        self.push(now_ms + SHARE_MS, "share", number)

    def _publish(self, number: int, _what: Any, now_ms: int) -> None:
        begin_ms, end_ms = self.cut_ms
        member = self.members[number]
        member.is_cut_off = begin_ms + NOTICED_MS <= now_ms < end_ms
        if member.is_cut_off:
            member.members.update(now_ms, member.lag_ms, is_cut_off=True)
            self.push(now_ms + PUBLISH_MS, "publish", number)
            return
        arrival_ms = now_ms + max(1, round(self.latency_ms * self.random.uniform(0.7, 1.3)))
        for data in member.publish(now_ms):
            if not begin_ms <= now_ms < end_ms:
                self.push(arrival_ms, "arrive", number, data)
        self.push(now_ms + PUBLISH_MS, "publish", number)

    def _arrive(self, number: int, data: Any, now_ms: int) -> None:
        for other, member in enumerate(self.members):
            if other != number:
                member.receive(data, now_ms)

    def _figures(self, seconds: int) -> Figures:
        per_second, by_member = [0.0] * seconds, [0.0] * len(self.members)
        for at_ms, number in self.used:
            per_second[at_ms // 1_000] += REQUEST_BYTES
            by_member[number] += REQUEST_BYTES
        steady = per_second[60:]
        worst = max(sum(steady[at : at + 10]) for at in range(len(steady) - 9))
        begin_s, end_s = CUT_S
        rates = [
            sum(some) / max(1, len(some)) / BOUND for some in (per_second[60:begin_s], per_second[begin_s:end_s], per_second[end_s + 2 :])
        ]
        needless = self.needless / self.throttles if self.throttles else 0.0
        return Figures(sum(steady) / len(steady) / BOUND, worst / 10 / BOUND, jains_index(by_member), needless, *rates)


def simulated(
    members: int, lag_ms: int, name: str, *, assumes: bool = True, cut: bool = False, seconds: int = 240, seed: int = 1
) -> Figures:
    """Return the figures of one simulation."""
    return Simulation(members, lag_ms, loads(members)[name], assumes=assumes, cut=cut, seed=seed).run(seconds)


def lines_of_produce(members: Sequence[int], lags_ms: Sequence[int], seconds: int) -> list[str]:
    """Simulate all loads; return the table in Markdown."""
    head = "| members | lag | load | long run | worst 10 s | Jain's index | needless throttles | cut of 30 s: before, during, after |"
    lines = [head, "|--:|--:|---|--:|--:|--:|--:|---|"]
    for size in (1, *members):
        for lag_ms in lags_ms[: 1 if size == 1 else None]:
            for load in loads(size):
                found = simulated(size, lag_ms, load, seconds=seconds)
                figures = f"{found.long_run:.3f} | {found.worst:.3f} | {found.fairness:.3f} | {found.needless:.1%}"
                cut = simulated(size, lag_ms, load, cut=True, seconds=180)
                figures += f" | {cut.before:.2f}, {cut.during:.2f}, {cut.after:.2f}" if size > 1 else " | "
                lines.append(f"| {size} | {lag_ms} ms | {load} | {figures} |")
                print(lines[-1], flush=True)
    return lines
