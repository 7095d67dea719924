"""The cost and the exactness of usage that workers share: `python -m bench.shared_usage`; prints one line per figure.

Costs are CPU time, best of several rounds. Exactness is computed on virtual time, with connections that always have more to send, spread
over the workers; each sends again when its throttle is over.
"""

from collections.abc import Callable

from bench.micro_quota import best_us, full_ring
from bench.shared_usage.overload import START_MS, overload_of
from bench.shared_usage.short_path import FREE, RECORDS, alone_us, shared_group
from bench.shared_usage.timers import Timers
from proxy.shared_usage.segment_row import SegmentRow
from proxy.shared_usage.shared_groups import SHARE_MS, SharedGroup
from proxy.shared_usage.shared_usage import SharedUsage
from quota.groups.group import QuotaGroup


def cycles(group: QuotaGroup, per_cycle: int, usage: SharedUsage | None = None) -> Callable[[], int]:
    """Return a run of this many records in each 10 ms, after which the timer publishes."""
    now_ms = START_MS
    timers = Timers(() if usage is None else (usage,))

    def run() -> int:
        nonlocal now_ms
        record = group.record
        for _ in range(RECORDS // per_cycle):
            now_ms += SHARE_MS
            for _ in range(per_cycle):
                record(200, now_ms)
            timers.run(now_ms)
        return RECORDS

    return run


def publishes(row: SegmentRow) -> Callable[[], int]:
    """Return a run that writes a total and a sum by slot."""
    total = 0

    def run() -> int:
        nonlocal total
        for _ in range(RECORDS):
            total += 200
            row.publish(total, 200, START_MS)
        return RECORDS

    return run


def pulls(group: SharedGroup, other: SegmentRow | None) -> Callable[[], int]:
    """Return a run that takes in the usage of others: none, or some of one other worker each time, whose write is included."""
    sharing = group._sharing
    total = 0

    def run() -> int:
        nonlocal total
        for _ in range(RECORDS):
            if other is not None:
                total += 200
                other.publish(total, 200, START_MS)
            sharing.pull(group, START_MS)
        return RECORDS

    return run


def print_ns(name: str, microseconds: float) -> None:
    """Print a figure."""
    print(f"{name:<66} {1_000 * microseconds:7.0f} ns")


def main() -> None:
    """Print every figure."""
    turns = [(alone_us(1), alone_us(4)) for _ in range(3)]
    print_ns("record, short path, plain group", min(plain for plain, _ in turns))
    print_ns("record, short path, shared group", min(shared for _, shared in turns))
    for workers in (2, 4, 8):
        usage, group = shared_group(workers)
        row = group._sharing.row
        assert isinstance(row, SegmentRow)
        other = SegmentRow(usage.segment, row._row, 1, "1")
        publish_us = best_us(publishes(other))
        other.publish(0, 0, START_MS)
        print_ns(f"publish, {workers} workers", publish_us)
        print_ns(f"pull, {workers} workers, nothing new", best_us(pulls(group, None)))
        print_ns(f"pull, {workers} workers, one of them used something", best_us(pulls(group, other)) - publish_us)
    for per_cycle in (1, 10, 100):
        plain_us = best_us(cycles(full_ring(FREE, lazy=True), per_cycle))
        usage, group = shared_group(4)
        shared_us = best_us(cycles(group, per_cycle, usage))
        print_ns(f"record, {per_cycle} in 10 ms, plain group", plain_us)
        print_ns(f"record, {per_cycle} in 10 ms, shared by 4, publishing included", shared_us)
    print_ns("record over the bound, plain group", best_us(cycles(full_ring(1.0, lazy=True), 100)))
    usage, group = shared_group(4, bound=1.0)
    print_ns("record over the bound, shared by 4", best_us(cycles(group, 100, usage)))
    for workers in (1, 2, 4, 8, 16):
        found = overload_of(workers)
        print(f"rate over bound, {workers} workers: long run {found.long_run:.3f}, worst 10 s {found.worst:.3f}")


if __name__ == "__main__":
    main()
