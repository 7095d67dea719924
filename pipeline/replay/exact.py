"""Computes one measurement exactly as the ring does: doubles, added in the order of events and then of slots."""

from pipeline.replay.rows import Ints, Rows
from quota.request_time import PERCENT_PER_NANOSECOND


def fold(rows: Rows, first_events: Ints, event: int, num_samples: int) -> float:
    """Return the sum in percent-seconds that the ring holds right after `event`.

    Args:
        first_events: the first event of each live sample, the oldest first; the last sample is the one in use.
    """
    ends = [*(int(first) for first in first_events[1:]), event + 1]
    slots: dict[int, float] = {}
    for first, end in zip(first_events, ends, strict=True):
        value = 0.0
        for nanoseconds in rows.value[int(first) : end]:
            value += int(nanoseconds) * PERCENT_PER_NANOSECOND
        slots[int(rows.sample_index[rows.row_of[int(first)]]) % (num_samples + 1)] = value
    total = 0.0
    for slot in sorted(slots):
        total += slots[slot]
    return total
