"""Request time under the schedule of ADR 12: what a request reserves, whose handler time is known after its response."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from bench.paced.simulated import JITTER_NS, RTT_NS, STEADY_S
from quota.paced_schedule import HANDLER_TIME_NS, SECOND_NS, PacedSchedule, cost_ns

PERCENT: Final = 1.0
BURST_NS: Final = SECOND_NS
NO_ESTIMATE_NS: Final = 250_000
"""What is assumed of a request before the first response of its connection."""
SPREAD: Final = 0.1
"""Standard deviation of the logarithm of handler times."""
POLL_NS: Final = SECOND_NS // 2
CHOSEN: Final = "a quarter more than the last one"
RESERVES: Final = {"nothing": 0.0, "the last handler time of its connection": 1.0, CHOSEN: 1.25, "twice the last one": 2.0}
"""What a request reserves, over the handler time of its connection's last request."""


class TimeLoad(NamedTuple):
    """Connections of one group with one request in flight each.

    Attributes:
        handler_ns: the median handler time of the requests of each connection.
        polls: how many of them wait at the broker for 500 ms.
    """

    name: str
    handler_ns: tuple[int, ...]
    polls: int = 0


LOADS: Final = (
    TimeLoad("1 of 0.25 ms", (250_000,)),
    TimeLoad("16 of 0.25 ms", (250_000,) * 16),
    TimeLoad("256 of 0.25 ms", (250_000,) * 256),
    TimeLoad("16 of 0.25 ms, 4 of 4 ms", (250_000,) * 16 + (4_000_000,) * 4),
    TimeLoad("16 of 0.25 ms, 64 that wait for records", (250_000,) * 80, 64),
)


class TimeFigures(NamedTuple):
    """Figures of a run.

    Attributes:
        long_run: handler time from second 10 on, over bound x time.
        beyond_ms: the most that responses were charged beyond bound x (span + burst) in any span, the last one of the span not counted, in
            milliseconds of the bound.
        unchecked: part of the handler time that no reservation covered.
    """

    long_run: float
    beyond_ms: float
    unchecked: float


class _Asker:
    __slots__ = ("handler_ns", "last_ns", "poll_ns", "reserved_ns")

    def __init__(self, handler_ns: int, poll_ns: int) -> None:
        self.handler_ns, self.poll_ns = handler_ns, poll_ns
        self.last_ns = NO_ESTIMATE_NS
        self.reserved_ns: int | None = None  # in flight


def time_run(load: TimeLoad, reserves: float, seconds: int, seed: int = 1) -> TimeFigures:
    """Let the connections of a load ask for `seconds`; each reserves `reserves` times its last handler time."""
    chance, order = random.Random(seed), 0
    schedule = PacedSchedule(BURST_NS)
    events: list[tuple[int, int, _Asker | None]] = []
    waiting: deque[_Asker] = deque()
    pending_ns = steady_ns = beyond_ns = charged_ns = unchecked_ns = 0

    def due_ns(reserved_ns: int, now_ns: int) -> int:
        if not reserves:
            return schedule.virtual_ns - BURST_NS
        open_ns = cost_ns(pending_ns + reserved_ns, PERCENT, HANDLER_TIME_NS)
        return max(schedule.virtual_ns, now_ns) + (open_ns if pending_ns else min(open_ns, BURST_NS)) - BURST_NS

    for at, handler_ns in enumerate(load.handler_ns):
        order += 1
        heappush(events, (chance.randrange(RTT_NS), order, _Asker(handler_ns, POLL_NS if at < load.polls else 0)))
    wake_ns = -1
    while events[0][0] < seconds * SECOND_NS:
        now_ns, _, asker = heappop(events)
        if asker is not None:
            if asker.reserved_ns is not None:
                took_ns = int(asker.handler_ns * chance.lognormvariate(0.0, SPREAD))
                pending_ns -= asker.reserved_ns
                beyond_ns = max(beyond_ns, schedule.lead_ns(now_ns) - BURST_NS)
                schedule.charge(cost_ns(took_ns, PERCENT, HANDLER_TIME_NS), now_ns)
                steady_ns += took_ns if now_ns >= STEADY_S * SECOND_NS else 0
                charged_ns, unchecked_ns = charged_ns + took_ns, unchecked_ns + max(0, took_ns - asker.reserved_ns)
                asker.last_ns, asker.reserved_ns = took_ns, None
            waiting.append(asker)
        while waiting and due_ns(int(waiting[0].last_ns * reserves), now_ns) <= now_ns:
            first = waiting.popleft()
            first.reserved_ns = int(first.last_ns * reserves)
            pending_ns += first.reserved_ns
            order += 1
            heappush(events, (now_ns + RTT_NS + chance.randrange(JITTER_NS) + first.poll_ns, order, first))
        first_due_ns = due_ns(int(waiting[0].last_ns * reserves), now_ns) if waiting else 0
        if waiting and not now_ns < wake_ns <= first_due_ns:
            order, wake_ns = order + 1, first_due_ns
            heappush(events, (wake_ns, order, None))
    bound_ns = PERCENT / 100 * SECOND_NS * (seconds - STEADY_S)
    return TimeFigures(steady_ns / bound_ns, beyond_ns / 1e6, unchecked_ns / max(charged_ns, 1))


def handler_times(seconds: int) -> Iterator[tuple[TimeLoad, str, TimeFigures]]:
    """Yield the figures of each load and each way to reserve."""
    for load in LOADS:
        for name, reserves in RESERVES.items():
            yield load, name, time_run(load, reserves, seconds)
