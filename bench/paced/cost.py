"""Processor time of the schedule, beside a record of the window."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator
from typing import Final

from bench.paced.schedule import ReservingSchedule
from quota.groups.group import QuotaGroup
from quota.paced_schedule import SECOND_NS, cost_ns

BOUND: Final = 1e12
"""So large that no request waits."""
SIZE: Final = 16_000
NOW_MS: Final = 1_000_000
NOW_NS: Final = NOW_MS * 1_000_000
OPEN: Final = (1, 16, 256)
REPEATS: Final = 9
CALLS: Final = 20_000


def costs() -> Iterator[tuple[str, float]]:
    """Yield each operation with its nanoseconds, the lowest of several rounds."""
    group = QuotaGroup({}, BOUND)
    group.record(SIZE, NOW_MS)
    yield "window: record on the short path", _nanoseconds(lambda: group.record(SIZE, NOW_MS))
    schedule, cost = ReservingSchedule(SECOND_NS), cost_ns(SIZE, BOUND)
    yield "cost of a size", _nanoseconds(lambda: cost_ns(SIZE, BOUND))
    yield "schedule: wait and charge, with a known cost", _nanoseconds(lambda: schedule.wait_ns(NOW_NS) or schedule.charge(cost, NOW_NS))
    for count in OPEN:
        yield f"schedule: wait, reserve and correct, with {count} open fetches", _nanoseconds(_fetch(count, cost))


def _fetch(count: int, cost: int) -> Callable[[], object]:
    """Return a function that lets a fetch pass and the oldest of `count` fetches be answered."""
    schedule = ReservingSchedule(SECOND_NS)
    reservations = [schedule.reserve(cost, NOW_NS) for _ in range(count)]

    def fetch() -> None:
        schedule.correct(reservations.pop(0), cost // 2)
        schedule.wait_ns(NOW_NS)
        reservations.append(schedule.reserve(cost, NOW_NS))

    return fetch


def _nanoseconds(operation: Callable[[], object]) -> float:
    return min(timeit.repeat(operation, timer=time.process_time, number=CALLS, repeat=REPEATS)) / CALLS * 1e9
