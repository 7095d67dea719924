"""Clients that send the next request after their wait is over, and clients that do not wait."""

import heapq
from collections.abc import Iterator

from quota.groups.group import QuotaGroup
from tests.support.metering.metering_rows import Event

START_MS = 1_790_000_000_000


def closed_loop(
    connections: int, size: int, bound: float, seconds: int, *, cap_ms: int | None = None, heeds: bool = True, gap_ms: int = 1
) -> Iterator[Event]:
    """Yield the records of `connections` that always have a next request.

    Args:
        heeds: whether clients wait when throttled; if not, the next request comes after `gap_ms`.
    """
    group = QuotaGroup({}, bound, cap_ms=cap_ms)
    due = [(START_MS + number, number) for number in range(connections)]
    heapq.heapify(due)
    while due[0][0] < START_MS + seconds * 1_000:
        now_ms, number = heapq.heappop(due)
        wait_ms = group.record(size, now_ms)
        yield Event(0, now_ms, size)
        heapq.heappush(due, (now_ms + gap_ms + (wait_ms if heeds else 0), number))
