"""What rows say of their waits against the lists of the same rows, as they stand in a file: nothing is put in order for it."""

import numpy as np

from pipeline.replay.rows import OF_WAITS, Flags, Ints
from pipeline.replay.runs import WAITS, Run


def fit(run: Run) -> bool:
    """Whether every row surely says how many waits its lists hold, their sums, and the longest one.

    Returns:
        False where a row does not, and where it would have to be looked at closer: one was excused, or is below 0 (24 days as 32 bits).
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
    """How many waits of each list are of 0 ms: hardly any."""
    zeros = np.flatnonzero(waits_ms == 0)
    return np.bincount(np.searchsorted(at, zeros, side="right") - 1, minlength=len(at) - 1) if len(zeros) else 0


def _sums(entries: Ints, at: Ints) -> Ints:
    """The sum of each list, of those without entries too."""
    totals = np.zeros(len(entries) + 1, np.int64)
    np.cumsum(entries, out=totals[1:])
    return np.diff(totals.take(at))


def _are_longest(longest_ms: Ints, sums_ms: Ints, waits_ms: Ints, at: Ints, lengths: Ints) -> bool:
    """A list of one wait has it for its sum; only longer ones are looked through."""
    wrong: Flags = longest_ms != sums_ms
    longer = np.flatnonzero(lengths > 1)
    if len(longer):
        edges = np.stack((at.take(longer), at.take(longer + 1)), axis=1).ravel()
        found = np.maximum.reduceat(np.append(waits_ms, 0), edges)[::2]  # every other one is of what lies between two of them
        wrong[longer] = longest_ms.take(longer) != found
    return not wrong.any()
