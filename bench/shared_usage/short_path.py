"""CPU time of a record on the short path, of a plain group and of a shared one."""

import multiprocessing
from collections.abc import Callable

from bench.micro_quota import best_us, full_ring
from bench.shared_usage.overload import START_MS, TAGS
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import SharedGroup
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from quota.groups.group import QuotaGroup

RECORDS = 100_000
FREE = 1e15


def shared_group(workers: int, number: int = 0, bound: float = FREE) -> tuple[SharedUsage, SharedGroup]:
    """Return a group whose 11 samples are all in use, as in one of this many workers."""
    usage = SharedUsage(Segment.create(workers, 64, 11, 1_000), number)
    group = usage.of_scope("1").maker(ClientQuotaType.PRODUCE)(TAGS, bound)
    assert isinstance(group, SharedGroup)
    for second in range(12):
        group.record(200, second * 1_000)
    return usage, group


def short_path(group: QuotaGroup) -> Callable[[], int]:
    """Return a run of records at one time: each takes the short path."""
    group.record(200, START_MS)

    def run() -> int:
        record = group.record
        for _ in range(RECORDS):
            record(200, START_MS)
        return RECORDS

    return run


def short_path_us(workers: int) -> float:
    """Return the CPU time of a record; for one worker, that of a plain group."""
    return best_us(short_path(full_ring(FREE, lazy=True) if workers == 1 else shared_group(workers)[1]))


def alone_us(workers: int) -> float:
    """Return the same in a process without groups of another class: the interpreter specialises on the class that it meets."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(short_path_us, (workers,))
