"""CPU time of a record with its check: `python -m bench.micro_quota`; the best of several rounds, one line per figure."""

import time
from collections.abc import Callable

from proxy.enforcement.groups.child_groups import enforced_group
from quota.entity import ANONYMOUS, DEFAULT, ClientQuotaEntity, ClientQuotaType
from quota.groups.group import QuotaGroup
from quota.manager import ClientQuotaManager

ROUNDS = 5
RECORDS = 100_000
FULL_RING_MS = 11_000
FREE = 1e15


def full_ring(bound: float, *, lazy: bool) -> QuotaGroup:
    """Return a group whose 11 samples are all in use."""
    group = QuotaGroup({"user": "", "client-id": "bench"}, bound, lazy=lazy)
    for second in range(12):
        group.record(200, second * 1_000)
    return group


def best_us(run: Callable[[], int]) -> float:
    """Return the CPU microseconds per record of the best round; `run` returns how many records it made."""
    best = float("inf")
    for _ in range(ROUNDS):
        started_ns = time.process_time_ns()
        records = run()
        best = min(best, (time.process_time_ns() - started_ns) / records / 1_000)
    return best


def one_group(group: QuotaGroup, per_ms: int) -> Callable[[], int]:
    """Return a run that records on one group, `per_ms` records per millisecond; time advances from run to run."""
    now_ms = FULL_RING_MS + 1

    def run() -> int:
        nonlocal now_ms
        record = group.record
        for _ in range(RECORDS // per_ms):
            now_ms += 1
            for _ in range(per_ms):
                record(200, now_ms)
        return RECORDS

    return run


def many_groups(groups: list[QuotaGroup], per_ms: int) -> Callable[[], int]:
    """Return a run that records on several groups in turn."""
    now_ms = FULL_RING_MS + 1
    turn = 0

    def run() -> int:
        nonlocal now_ms, turn
        for _ in range(RECORDS // per_ms):
            now_ms += 1
            for _ in range(per_ms):
                groups[turn].record(200, now_ms)
                turn = (turn + 1) % len(groups)
        return RECORDS

    return run


def lookups(clients: int) -> Callable[[], int]:
    """Return a run that finds groups by client-id, as happens once per connection and quota table."""
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group)
    manager.update_quota(ClientQuotaEntity(client_id=DEFAULT), FREE)
    names = [f"client-{number}" for number in range(clients)]

    def run() -> int:
        for number in range(RECORDS):
            manager.group(ANONYMOUS, names[number % clients], 0)
        return RECORDS

    return run


def print_line(name: str, microseconds: float, goal: str = "") -> None:
    """Print a figure and its goal."""
    print(f"{name:<58} {microseconds:7.3f} us" + (f"   goal {goal}" if goal else ""))


def main() -> None:
    """Print every figure."""
    per_ms = 20  # 20,000 requests per second through the process
    lazy_us = best_us(one_group(full_ring(FREE, lazy=True), per_ms))
    exact_us = best_us(one_group(full_ring(FREE, lazy=False), per_ms))
    over_us = best_us(one_group(full_ring(1.0, lazy=True), per_ms))
    print_line("record + check, 11 samples, within the bound, lazy", lazy_us, "<= 0.2")
    print_line("record + check, 11 samples, within the bound, exact", exact_us, "<= 1.5")
    print_line("record + check, 11 samples, over the bound (verdict)", over_us)
    ten_thousand = [full_ring(FREE, lazy=True) for _ in range(10_000)]
    one_us = best_us(many_groups(ten_thousand[:1], per_ms))
    many_us = best_us(many_groups(ten_thousand, per_ms))
    print_line("record + check at 20,000/s, one group in turn", one_us)
    print_line("record + check at 20,000/s, 10,000 live groups in turn", many_us)
    print_line("... that 10,000 groups add to a request", many_us - one_us)
    print_line("group by client-id, found, 10,000 live groups", best_us(lookups(10_000)))


if __name__ == "__main__":
    main()
