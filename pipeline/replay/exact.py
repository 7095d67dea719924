"""Recomputes one measurement with doubles in the order of the ring's additions: by event, then by slot."""

from pipeline.replay.rows import Ints, Rows
from quota.request_time import PERCENT_PER_NANOSECOND


def fold(rows: Rows, first_events: Ints, event: int, num_samples: int) -> float:
    """Return the sum in percent-seconds that the ring holds directly after `event`.

    Args:
        rows: the rows of the group.
        first_events: first event of each live sample, oldest first; the last one is the current sample.
        event: index of the event.
        num_samples: configured number of samples N.
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
