"""Clients far over their quota at several members of a fleet, on virtual time, with the messages of the product on a bus with a lag."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

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
HEARTBEAT_MS = 1_000


class Figures(NamedTuple):
    """Rates in multiples of the bound.

    Attributes:
        long_run: after the first minute; worst: in the 10 s with the highest rate.
        fairness: Jain's index of the bytes of the members.
        needless: part of the throttles that one process would not have imposed.
    """

    long_run: float
    worst: float
    fairness: float
    needless: float


class Load(NamedTuple):
    """A load: connections of each member, and whether a member is active at a time in ms."""

    connections: Sequence[int]
    is_active: Callable[[int, int], bool] = lambda _now_ms, _member: True


def loads(members: int) -> dict[str, Load]:
    """Return the loads by name."""
    each = CONNECTIONS // members
    skewed = [max(1, CONNECTIONS - members + 1)] + [1] * (members - 1)
    return {
        "even": Load([each] * members),
        "skewed": Load(skewed),
        "moving": Load([CONNECTIONS] * members, lambda now_ms, member: now_ms // MOVE_MS % members == member),
    }


class Simulation:
    """Members with one worker each, their bus, and their clients."""

    def __init__(self, members: int, lag_ms: int, load: Load, *, assumes: bool, seed: int) -> None:
        self.random = random.Random(seed)
        self.latency_ms = max(1, lag_ms - PUBLISH_MS)
        self.members = [FleetMember(f"m{number}", 1, BOUND, START_MS) for number in range(members)]
        for member in self.members:
            member.lag_ms = lag_ms if assumes else 0
        self.truth = QuotaGroup(TAGS, BOUND)
        self.load = load
        self.events: list[tuple[int, int, str, int, Any]] = []
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
                self.push(START_MS + self.random.randrange(RTT_MS), "request", number)
            self.push(START_MS + self.random.randrange(PUBLISH_MS), "publish", number)
            self.push(START_MS + self.random.randrange(SHARE_MS), "share", number)
        while self.events[0][0] < START_MS + seconds * 1_000:
            now_ms, _, kind, number, what = heappop(self.events)
            getattr(self, f"_{kind}")(number, what, now_ms)
        return self._figures(seconds)

    def _request(self, number: int, _what: Any, now_ms: int) -> None:
        if not self.load.is_active(now_ms - START_MS, number):
            self.push(now_ms + 20, "request", number)
            return
        self.used.append((now_ms - START_MS, number))
        alone_ms = self.truth.record(REQUEST_BYTES, now_ms)
        throttle_ms = self.members[number].workers[0].group.record(REQUEST_BYTES, now_ms)
        if throttle_ms > 0:
            self.throttles += 1
            self.needless += alone_ms <= 0
        self.push(now_ms + throttle_ms + RTT_MS + self.random.randrange(-1, 2), "request", number)

    def _share(self, number: int, _what: Any, now_ms: int) -> None:
        self.members[number].workers[0].publish(now_ms)
        self.push(now_ms + SHARE_MS, "share", number)

    def _publish(self, number: int, _what: Any, now_ms: int) -> None:
        arrival_ms = now_ms + max(1, round(self.latency_ms * self.random.uniform(0.7, 1.3)))
        for data in self.members[number].publish(now_ms):
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
        fairness = sum(by_member) ** 2 / (len(by_member) * sum(one * one for one in by_member))
        return Figures(
            sum(steady) / len(steady) / BOUND, worst / 10 / BOUND, fairness, self.needless / self.throttles if self.throttles else 0.0
        )


def simulated(members: int, lag_ms: int, name: str, *, assumes: bool = True, seconds: int = 240, seed: int = 1) -> Figures:
    """Return the figures of one simulation."""
    return Simulation(members, lag_ms, loads(members)[name], assumes=assumes, seed=seed).run(seconds)
