"""A model of eight workers, for machines with fewer cores: what more workers add to the CPU of a request.

A request passes one worker only, and the supervisor is not in its path. So a worker of eight does for a request what a worker of two does,
except when it shares usage: it then takes in the usage of seven other workers instead of one, at most once in `SHARE_MS` for each group.
"""

from collections.abc import Callable

from bench.micro_quota import best_us
from bench.shared_usage.overload import START_MS
from bench.shared_usage.short_path import shared_group
from proxy.shared_usage.segment_row import SegmentRow
from proxy.shared_usage.shared_groups import SHARE_MS, SharedGroup

PULLS = 20_000
MODELLED_WORKERS = 8


def sharing_us(workers: int) -> float:
    """Return the CPU microseconds in which a worker takes in the usage of all others, each of which has used something."""
    usage, group = shared_group(workers)
    row = group._sharing.row
    assert isinstance(row, SegmentRow)
    others = [SegmentRow(usage.segment, row._row, number, "1") for number in range(1, workers)]
    return best_us(_turns(group, others, pulls=True)) - best_us(_turns(group, others, pulls=False))


def _turns(group: SharedGroup, others: list[SegmentRow], *, pulls: bool) -> Callable[[], int]:
    """Return a run in which all others publish usage again and again, and the group takes it in or does not."""
    total = 0

    def run() -> int:
        nonlocal total
        for _ in range(PULLS):
            total += 200
            for other in others:
                other.publish(total, 200, START_MS)
            if pulls:
                group._sharing.pull(group, START_MS)
        return PULLS

    return run


def modelled_figure(figure: float, busy: float, more_us: float) -> float:
    """Return the requests for a second of CPU with eight workers over those of one process.

    Args:
        figure: the same with two workers, measured.
        busy: the share of a core that a worker used meanwhile.
        more_us: how much longer a worker of eight takes to share usage than a worker of two.
    """
    more_of_a_core = more_us / (SHARE_MS * 1_000)
    return figure / (1 + more_of_a_core / busy)
