"""Compares the wait columns of rows with the lists of the same rows, in the order of the file and without sorting."""

import numpy as np

from pipeline.replay.rows import OF_WAITS, Ints
from pipeline.replay.runs import WAITS, Run


def fit(run: Run) -> bool:
    """Return True when every row's number, sums and maximum of waits are known to equal those of its lists.

    Returns:
        False when a row differs, or needs a closer check: a wait was excused, or is negative (above 24 days in 32 bits).
    """
    at, numbers = run.offsets[WAITS] - run.offsets[WAITS][0], run.numbers
    cut, (_, waits, applied) = slice(run.offsets[WAITS][0], run.offsets[WAITS][-1]), run.entries[WAITS]
    waits_ms = waits[cut]
    applied_ms = waits_ms if applied is waits else applied[cut]
    lengths = np.diff(at)
    if not np.array_equal(lengths, numbers["violated_n"]):
        return False
    if not len(waits_ms):
        return not any(numbers[name].any() for name in OF_WAITS)
    lowest_ms = int(waits_ms.min())
    if lowest_ms < 0 or (applied_ms is not waits_ms and applied_ms.min() < 0):
        return False
    listed = np.flatnonzero(lengths != 0)  # flags are searched faster than numbers
    begins = at.take(listed)  # empty lists are between them
    if lowest_ms:
        are_counted = _are_alike(numbers["throttled_n"], numbers["violated_n"])
    else:
        are_counted = _are(numbers["throttled_n"], lengths.take(listed) - _zeros(waits_ms, begins), listed)
    return (
        are_counted
        and _are(numbers["throttle_ms_sum"], _sums(waits_ms, begins), listed)
        and _are(numbers["throttle_ms_max"], np.maximum.reduceat(waits_ms, begins), listed)
        and (
            _are_alike(numbers["applied_ms_sum"], numbers["throttle_ms_sum"])
            if applied_ms is waits_ms
            else _are(numbers["applied_ms_sum"], _sums(applied_ms, begins), listed)
        )
    )


def _sums(waits_ms: Ints, begins: Ints) -> Ints:
    """Return the sum of each list."""
    sums_ms: Ints = np.add.reduceat(waits_ms.astype(np.int64), begins)
    return sums_ms


def _are_alike(one: Ints, other: Ints) -> bool:
    return one is other or np.array_equal(one, other)


def _zeros(waits_ms: Ints, begins: Ints) -> Ints:
    """Return the number of waits of 0 ms in each list; there are few."""
    zeros = np.flatnonzero(waits_ms == 0)
    return np.bincount(np.searchsorted(begins, zeros, side="right") - 1, minlength=len(begins))


def _are(numbers: Ints, of_listed: Ints, listed: Ints) -> bool:
    """Return True when the numbers of these rows are `of_listed`, and all others 0."""
    return np.array_equal(numbers.take(listed), of_listed) and np.count_nonzero(numbers) == np.count_nonzero(of_listed)
