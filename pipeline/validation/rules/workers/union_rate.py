"""The rate of a group over all workers: their usage in each interval of 10 s, divided by the bound's amount for that time."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from pipeline.validation.rules.workers.lives import REQUEST, Life
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND

STRETCH_MS: Final = 10_000


def highest_ratio(lives: Sequence[Life]) -> float | None:
    """Return the highest rate of one group over its bound; None when it has no bound, or nothing was used.

    Args:
        lives: the group's records in all workers.
    """
    bound = max(life.bound for life in lives)
    if not 0.0 < bound < UNLIMITED:
        return None
    own = [life.is_own for life in lives]
    at_ms = np.concatenate([life.ts_ms[its] for life, its in zip(lives, own, strict=True)])
    value = np.concatenate([life.value[its] for life, its in zip(lives, own, strict=True)])
    if not len(at_ms):
        return None
    identity = lives[0].identity
    unit = PERCENT_PER_NANOSECOND if identity is not None and identity[0] == REQUEST else 1.0
    _, stretch = np.unique(at_ms // STRETCH_MS, return_inverse=True)
    used = np.bincount(stretch, weights=value.astype(np.float64)) * unit
    return float(used.max() / (bound * STRETCH_MS / 1_000.0))
