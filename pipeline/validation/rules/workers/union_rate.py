"""The rate of a group over all workers: their usage in each interval of 10 s, divided by the bound's amount for that time."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from pipeline.validation.rules.workers.group_histories import GroupHistory
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND

INTERVAL_MS: Final = 10_000


def highest_ratio(histories: Sequence[GroupHistory]) -> float | None:
    """Return the highest rate of one group over its bound; None when it has no bound, or nothing was used.

    Args:
        histories: the group's records in all workers.
    """
    bound = max(history.bound for history in histories)
    if not 0.0 < bound < UNLIMITED:
        return None
    own = [history.is_own for history in histories]
    at_ms = np.concatenate([history.ts_ms[its] for history, its in zip(histories, own, strict=True)])
    value = np.concatenate([history.value[its] for history, its in zip(histories, own, strict=True)])
    if not len(at_ms):
        return None
    unit = PERCENT_PER_NANOSECOND if histories[0].is_time else 1.0
    _, interval = np.unique(at_ms // INTERVAL_MS, return_inverse=True)
    used = np.bincount(interval, weights=value.astype(np.float64)) * unit
    return float(used.max() / (bound * INTERVAL_MS / 1_000.0))
