"""Clients on virtual time, and the figures of a run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from bench.paced.admission import Admission, Connection
from quota.paced_schedule import SECOND_NS

RTT_NS: Final = 5_000_000
JITTER_NS: Final = 1_000_000
STEADY_S: Final = 10
"""Figures begin at this second."""


class Passed(NamedTuple):
    """A request that passed: when, its bytes, its member, and the time from the client's request to the answer."""

    at_ns: int
    size: int
    member: int
    latency_ns: int


class Figures(NamedTuple):
    """Figures from second 10 on.

    Attributes:
        long_run: bytes over bound x time.
        whole_run: the same from second 0 on, so the burst is included.
        seconds_even: part of the seconds with 0.9 to 1.1 of the bound.
        worst_second: bytes of the second with the most, over the bound.
        gap_p99_ms, gap_max_ms: time in which a busy client gets nothing.
        latency_p50_ms, latency_p99_ms: from request to answer.
    """

    long_run: float
    whole_run: float
    seconds_even: float
    worst_second: float
    gap_p99_ms: float
    gap_max_ms: float
    latency_p50_ms: float
    latency_p99_ms: float


def run(admission: Admission, connections: Sequence[Connection], seconds: int, seed: int = 1) -> list[Passed]:
    """Let clients send for `seconds`; return what passed."""
    jitter, order, passed = random.Random(seed), 0, list[Passed]()
    events: list[tuple[int, int, str, Connection | None]] = []

    def push(at_ns: int, kind: str, connection: Connection | None) -> None:
        nonlocal order
        order += 1
        heappush(events, (at_ns, order, kind, connection))

    for connection in connections:
        connection.asked_ns = jitter.randrange(max(RTT_NS, connection.pace_ns))
        push(connection.asked_ns, "request", connection)
    wake_ns: int | None = None
    while events and events[0][0] < seconds * SECOND_NS:
        now_ns, _, kind, one = heappop(events)
        if kind == "wake":
            wake_ns = None if wake_ns == now_ns else wake_ns
        elif one is not None and kind == "request":
            admission.join(one, now_ns)
        elif one is not None:
            admission.answered(one, now_ns)
            one.asked_ns = max(now_ns, one.asked_ns + one.pace_ns)
            push(one.asked_ns, "request", one)
        while (chosen := admission.next(now_ns)) is not None:
            answer_ns = now_ns + RTT_NS + jitter.randrange(JITTER_NS)
            passed.append(Passed(now_ns, chosen.size, chosen.member, answer_ns - chosen.asked_ns))
            push(answer_ns, "answer", chosen)
        due_ns = admission.wake_ns(now_ns)
        if due_ns is not None and (wake_ns is None or due_ns < wake_ns):
            wake_ns = max(due_ns, now_ns + 1)
            push(wake_ns, "wake", None)
    return passed


def figures(passed: Sequence[Passed], bound: float, seconds: int) -> Figures:
    """Return the figures of a run."""
    per_second = [0] * seconds
    for one in passed:
        per_second[one.at_ns // SECOND_NS] += one.size
    steady = [one for one in passed if one.at_ns >= STEADY_S * SECOND_NS]
    rates = [size / bound for size in per_second[STEADY_S:]]
    times = [one.at_ns for one in steady]
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    latencies = sorted(one.latency_ns for one in steady)
    return Figures(
        sum(rates) / len(rates),
        sum(per_second) / seconds / bound,
        sum(0.9 <= rate <= 1.1 for rate in rates) / len(rates),
        max(rates),
        *(at / 1e6 for at in (_quantile(gaps, 0.99), gaps[-1], _quantile(latencies, 0.5), _quantile(latencies, 0.99))),
    )


def shares(passed: Sequence[Passed], bound: float, seconds: int, members: int) -> list[float]:
    """Return the bytes of each member from second 10 on, over bound x time."""
    used = [0] * members
    for one in passed:
        if one.at_ns >= STEADY_S * SECOND_NS:
            used[one.member] += one.size
    return [size / (bound * (seconds - STEADY_S)) for size in used]


def _quantile(values: Sequence[int], part: float) -> int:
    return values[min(len(values) - 1, int(part * len(values)))]
