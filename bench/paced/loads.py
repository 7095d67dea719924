"""The loads of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from bench.paced.admission import (
    MS_NS,
    Admission,
    AdmittedFirst,
    ByThrottle,
    ChargedAtAnswer,
    Connection,
    DeficitRoundRobin,
    FairQueue,
    MemberSchedules,
)
from bench.paced.simulated import Figures, figures, run, shares
from quota.paced_schedule import SECOND_NS

BOUND: Final = 2e6
BURST_NS: Final = SECOND_NS
CONNECTIONS: Final = (1, 16, 64, 256)
SIZES: Final = (16_000, 100_000, 1_000_000)
SHARE_GOAL: Final = 0.05
"""Largest difference of a member from its part, relative to that part."""
QUEUED_S_MAX: Final = 32
"""Loads with more seconds of the bound in one round of all connections are left out: real clients give up after 30 s."""

CHARGED: Final[dict[str, Callable[[], Admission]]] = {
    "window": lambda: ByThrottle(BOUND),
    "paced, at the answer": lambda: ChargedAtAnswer(BOUND, BURST_NS),
    "paced, before it goes": lambda: AdmittedFirst(BOUND, BURST_NS),
}
ORDERS: Final[dict[str, Callable[[int, Sequence[int]], Admission]]] = {
    "first come": lambda burst_ns, _weights: AdmittedFirst(BOUND, burst_ns),
    "deficit round robin": lambda burst_ns, weights: DeficitRoundRobin(BOUND, burst_ns, weights),
    "start-time fair queue": lambda burst_ns, weights: FairQueue(BOUND, burst_ns, weights),
    "member schedules": lambda burst_ns, weights: MemberSchedules(BOUND, burst_ns, weights),
}


class Clients(NamedTuple):
    """The connections of one member; `pace_ms` 0: each always has more to send."""

    connections: int
    size: int
    pace_ms: int = 0
    weight: int = 1


class MemberLoad(NamedTuple):
    """Members of one group.

    Attributes:
        parts: the max-min part of each member, over the bound.
        burst_ms_min: the smallest burst that the goal is for: the cost of the largest request.
    """

    name: str
    clients: Sequence[Clients]
    parts: Sequence[float]
    burst_ms_min: int = 50


MEMBERS: Final = (
    MemberLoad("1 connection; 16", [Clients(1, 100_000), Clients(16, 100_000)], [1 / 2, 1 / 2]),
    MemberLoad("16 of 10 kB; 16 of 1 MB", [Clients(16, 10_000), Clients(16, 1_000_000)], [1 / 2, 1 / 2], 500),
    MemberLoad("1 of 10 kB; 16 of 1 MB", [Clients(1, 10_000), Clients(16, 1_000_000)], [1 / 2, 1 / 2], 500),
    MemberLoad("1 of 10 kB with weight 3; 16 of 1 MB", [Clients(1, 10_000, weight=3), Clients(16, 1_000_000)], [3 / 4, 1 / 4], 500),
    MemberLoad("0.1 of the bound; 1; 16", [Clients(1, 10_000, 50), Clients(1, 100_000), Clients(16, 100_000)], [0.1, 0.45, 0.45]),
    MemberLoad(
        "five: 1 of 10 kB, 16 of 1 MB, 4 of 100 kB, 64 of 16 kB, 1 of 1 MB",
        [Clients(1, 10_000), Clients(16, 1_000_000), Clients(4, 100_000), Clients(64, 16_000), Clients(1, 1_000_000)],
        [1 / 5] * 5,
        500,
    ),
    MemberLoad("16; an idle one", [Clients(16, 100_000), Clients(0, 100_000)], [1.0, 0.0]),
)
SMALL_BURST_MS: Final = 100


def flow(seconds: int) -> Iterator[tuple[int, int, str, Figures]]:
    """Yield the figures of one member for each number of connections, size of requests, and way to charge."""
    for count in CONNECTIONS:
        for size in SIZES:
            if count * size / BOUND <= QUEUED_S_MAX:
                for name, admission in CHARGED.items():
                    passed = run(admission(), [Connection(0, size) for _ in range(count)], seconds)
                    yield count, size, name, figures(passed, BOUND, seconds)


def members(seconds: int) -> Iterator[tuple[MemberLoad, int, str, list[float]]]:
    """Yield the shares of the members for each load and order, and with a small burst for the order that ADR 12 chooses."""
    for load in MEMBERS:
        for name in ORDERS:
            yield load, BURST_NS // MS_NS, name, member_shares(load, name, BURST_NS, seconds)
        yield load, SMALL_BURST_MS, "member schedules", member_shares(load, "member schedules", SMALL_BURST_MS * MS_NS, seconds)


def member_shares(load: MemberLoad, order: str, burst_ns: int, seconds: int) -> list[float]:
    """Return the share of each member, over the bound."""
    connections = [
        Connection(number, one.size, one.pace_ms * MS_NS) for number, one in enumerate(load.clients) for _ in range(one.connections)
    ]
    admission = ORDERS[order](burst_ns, [one.weight for one in load.clients])
    return shares(run(admission, connections, seconds), BOUND, seconds, len(load.clients))


def are_due(found: Sequence[float], parts: Sequence[float]) -> bool:
    """Whether each member has the part that is due to it, within `SHARE_GOAL`."""
    return all(abs(share - part) <= SHARE_GOAL * part for share, part in zip(found, parts, strict=True))
