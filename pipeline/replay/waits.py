"""Compares the wait columns of rows with the lists of the same rows, in the order of the file and without sorting."""

import numpy as np

from pipeline.replay.rows import OF_WAITS, Flags, Ints
from pipeline.replay.runs import WAITS, Run


def fit(run: Run) -> bool:
    """Return True when every row's number, sums and maximum of waits are known to equal those of its lists.

    Returns:
        False when a row differs, or needs a closer check: a wait was excused, or is negative (above 24 days in 32 bits).
    """
    at, numbers = run.offsets[WAITS] - run.offsets[WAITS][0], run.numbers
    _, waits_ms, applied_ms = (entries[run.offsets[WAITS][0] : run.offsets[WAITS][-1]] for entries in run.entries[WAITS])
    lengths = np.diff(at)
    if not np.array_equal(lengths, numbers["violated_n"]):
        return False
    if not len(waits_ms):
        return not any(numbers[name].any() for name in OF_WAITS)
    if waits_ms.min() < 0 or applied_ms.min() < 0:
        return False
    sums_ms = _sums(waits_ms, at)
    applied_sums_ms = sums_ms if np.array_equal(applied_ms, waits_ms) else _sums(applied_ms, at)
    return (
        np.array_equal(lengths - _zeros(waits_ms, at), numbers["throttled_n"])
        and np.array_equal(sums_ms, numbers["throttle_ms_sum"])
        and np.array_equal(applied_sums_ms, numbers["applied_ms_sum"])
        and _are_longest(numbers["throttle_ms_max"], sums_ms, waits_ms, at, lengths)
    )


def _zeros(waits_ms: Ints, at: Ints) -> Ints | int:
    """Return the number of waits of 0 ms in each list; there are few."""
    zeros = np.flatnonzero(waits_ms == 0)
    return np.bincount(np.searchsorted(at, zeros, side="right") - 1, minlength=len(at) - 1) if len(zeros) else 0


def _sums(entries: Ints, at: Ints) -> Ints:
    """Return the sum of each list, 0 for empty lists."""
    totals = np.zeros(len(entries) + 1, np.int64)
    np.cumsum(entries, out=totals[1:])
    return np.diff(totals.take(at))


def _are_longest(longest_ms: Ints, sums_ms: Ints, waits_ms: Ints, at: Ints, lengths: Ints) -> bool:
    """Compare the maxima. For a list of one wait the maximum is its sum, so only longer lists are searched."""
    wrong: Flags = longest_ms != sums_ms
    longer = np.flatnonzero(lengths > 1)
    if len(longer):
        edges = np.stack((at.take(longer), at.take(longer + 1)), axis=1).ravel()
        found = np.maximum.reduceat(np.append(waits_ms, 0), edges)[::2]  # every other result is of the gap between two lists
        wrong[longer] = longest_ms.take(longer) != found
    return not wrong.any()
