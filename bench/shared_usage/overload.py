"""The rates of clients far over their quota, from groups that several workers share, on virtual time."""

from heapq import heappop, heappush
from typing import NamedTuple

from bench.shared_usage.timers import Timers
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from quota.groups.group import QuotaGroup

TAGS = {"user": "", "client-id": "bench"}
START_MS = 11_001
OVERLOAD_S = 600
OVERLOAD_BOUND = 1e6
CONNECTIONS = 48
REQUEST_BYTES = 20_000


class Overload(NamedTuple):
    """The rates of clients far over their quota, in multiples of what the bound allows in the time.

    Attributes:
        long_run: after the first minute.
        worst: in the 10 s with the highest rate.
    """

    long_run: float
    worst: float


def overload(groups: list[QuotaGroup], timers: Timers) -> Overload:
    """Let 48 connections send 20 kB each repeatedly, each to the group of its worker."""
    per_second = [0.0] * OVERLOAD_S
    waiting = [(connection % 7, connection) for connection in range(CONNECTIONS)]
    while waiting[0][0] < OVERLOAD_S * 1_000:
        now_ms, connection = heappop(waiting)
        timers.run(START_MS + now_ms)
        throttle_ms = groups[connection % len(groups)].record(REQUEST_BYTES, START_MS + now_ms)
        per_second[now_ms // 1_000] += REQUEST_BYTES
        heappush(waiting, (now_ms + max(1, throttle_ms), connection))
    steady = per_second[60:]
    worst = max(sum(steady[at : at + 10]) for at in range(len(steady) - 10))
    return Overload(sum(steady) / len(steady) / OVERLOAD_BOUND, worst / 10 / OVERLOAD_BOUND)


def overload_of(workers: int) -> Overload:
    """Return the overload of this many workers; of one worker with a plain group."""
    if workers == 1:
        return overload([QuotaGroup(TAGS, OVERLOAD_BOUND)], Timers(()))
    segment = Segment.create(workers, 64, 11, 1_000)
    usages = [SharedUsage(segment, worker) for worker in range(workers)]
    timers = Timers(usages)
    return overload([usage.of_scope("1").maker(ClientQuotaType.PRODUCE)(TAGS, OVERLOAD_BOUND) for usage in usages], timers)
