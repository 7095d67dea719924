"""Processor time of the schedule, beside a record of the window."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from bench.paced.schedule import ReservingSchedule
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.group import PacedGroup
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from quota.groups.group import QuotaGroup
from quota.paced_schedule import MS_NS, SECOND_NS, cost_ns

BOUND: Final = 1e12
"""So large that no request waits."""
SIZE: Final = 16_000
NOW_MS: Final = 1_000_000
NOW_NS: Final = NOW_MS * 1_000_000
BURST_MS: Final = 1_000
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
    segment = Segment.create(4, 16, 11, 1_000)
    shared = [PacedGroups(BURST_MS, factories=SharedUsage(segment, number, numbers=(0, 1))) for number in range(2)]
    yield "group: check and charge, one process", _nanoseconds(_requests([PacedGroups(BURST_MS)], BOUND))
    yield "group: check and charge, two workers below half of the burst", _nanoseconds(_requests(shared, BOUND))
    yield "group: check and charge, two workers in turn at the bound", _nanoseconds(_requests(shared, SIZE * 1_000.0))


def _requests(factories: Sequence[PacedGroups], bound: float) -> Callable[[], object]:
    """Return a function that lets a Produce of one client pass each millisecond, at these processes in turn."""
    made = (factory.of_scope("1").maker(ClientQuotaType.PRODUCE) for factory in factories)
    groups = [make({"client-id": f"{bound}"}, bound, created_ms=NOW_MS) for make in made]
    now_ms = NOW_MS

    def request() -> None:
        nonlocal now_ms
        now_ms += 1
        group = groups[now_ms % len(groups)]
        assert isinstance(group, PacedGroup)
        now_ns = now_ms * MS_NS
        group.refresh(now_ms)
        member = group.line.member("client", now_ns)
        max(group.due_ns(now_ns), group.line.due_ns(member))
        group.record(SIZE, now_ms)
        group.line.charge(member, group.cost_ns(SIZE), now_ns)

    for group in groups:
        assert isinstance(group, PacedGroup)
        group.refresh(now_ms)
        group.record(int(bound * 0.7) if bound < BOUND else SIZE, now_ms)
    return request


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
