"""Recomputes the figures of each row from its events."""

from collections.abc import Iterator

import numpy as np

from pipeline.replay.decisions import Decisions
from pipeline.replay.rows import NOT_LISTED, Flags, Floats, Ints, Rows

Figure = tuple[str, Ints | Floats, Ints | Floats]
"""Name of the figure, its recomputed value for each row, and its recorded value."""


def differing_figures(rows: Rows, decided: Decisions, judged: Flags) -> Iterator[Figure]:
    """Yield the figures, without those of waits, that differ in any judged row. Rows without events have undefined values."""
    if not rows.events:
        return
    at = np.minimum(rows.event_at, rows.events - 1)
    figures: tuple[Figure, ...] = (
        ("sum before the row", decided.live_sum.take(at) - rows.value.take(at), rows.prior_sum),
        ("window of the row", decided.window_ms.take(at), rows.window_ms),
        ("oldest sample of the row", decided.oldest_start_ms.take(at), rows.oldest_start_ms),
        ("highest rate of the row", _highest_rates(rows, decided, at), rows.max_observed),
    )
    for what, expected, recorded in figures:
        if ((expected != recorded) & judged).any():
            yield what, expected, recorded


def _highest_rates(rows: Rows, decided: Decisions, at: Ints) -> Floats:
    """Return the highest rate of each row's checked events, 0 when it has none."""
    highest: Floats
    if rows.all_checked:
        highest = np.maximum.reduceat(decided.observed, at)
        return highest
    highest = np.maximum.reduceat(np.where(rows.checked, decided.observed, -np.inf), at)
    return np.where(np.isinf(highest), 0.0, highest)


def differing_waits(rows: Rows, decided: Decisions, judged: Flags, event_judged: Flags) -> Iterator[Figure]:
    """Yield the figures of waits that differ in any judged row.

    Args:
        rows, decided: the rows, and the recomputed decisions.
        judged: whether each row is judged.
        event_judged: whether each event's row is judged.
    """
    few = np.flatnonzero(((rows.throttle_ms != NOT_LISTED) | decided.violated) & event_judged)  # other events add nothing to the sums
    recorded_ms, expected_ms = rows.throttle_ms.take(few), decided.throttle_ms.take(few)
    listed, violated = recorded_ms != NOT_LISTED, decided.violated.take(few)
    counted = violated & (expected_ms > 0)
    recorded = recorded_ms if listed.all() else np.where(listed, recorded_ms, 0)
    applied = np.maximum(rows.applied_ms.take(few), 0)  # NOT_LISTED is negative
    violated = np.where(decided.in_margin.take(few) & (expected_ms == 0), listed, violated)
    by_row = _ByRow(rows, few, judged)
    waits_ms = by_row.total(recorded)
    figures = (
        ("violations of the row", by_row.number(violated), rows.declared["violated_n"]),
        ("throttled of the row", by_row.number(counted), rows.declared["throttled_n"]),
        ("wait of the row", waits_ms, rows.declared["throttle_ms_sum"]),
        ("longest wait of the row", by_row.highest(recorded), rows.declared["throttle_ms_max"]),
        ("applied wait of the row", by_row.total(applied), rows.declared["applied_ms_sum"]),
    )
    for what, expected, declared in figures:
        if by_row.differ(expected, declared):
            yield what, by_row.spread(expected), declared


class _ByRow:
    """Reduces some events to one number for each row that has any of them. All other events count as 0."""

    def __init__(self, rows: Rows, events: Ints, judged: Flags) -> None:
        row = rows.row_of.take(events)
        self._not_judged = np.flatnonzero(~judged)
        is_next = np.ones(len(row), np.bool_)
        is_next[1:] = row[1:] != row[:-1]
        self._begins = np.flatnonzero(is_next)
        self._rows = row[self._begins]
        self._numbers = np.diff(np.append(self._begins, len(row)))
        self._counts = rows.count

    def number(self, flags: Flags) -> Ints:
        """Return the number of flagged events of each row."""
        return self._numbers if flags.all() else self.total(flags.astype(np.int64))

    def total(self, values: Ints) -> Ints:
        """Return the sum of the values of each row."""
        total: Ints = np.add.reduceat(values, self._begins) if len(self._begins) else values
        return total

    def highest(self, values: Ints) -> Ints:
        """Return the highest value of each row."""
        if not len(self._begins):
            return values
        highest = np.maximum.reduceat(values, self._begins)
        if int(highest.min()) >= 0:
            return highest
        return np.where(self._numbers == self._counts.take(self._rows), highest, np.maximum(highest, 0))

    def differ(self, expected: Ints, declared: Ints) -> bool:
        """Whether the recorded value of any judged row differs, including rows without such events. It usually avoids `spread`."""
        judged = declared.take(self._rows)
        elsewhere = np.count_nonzero(declared) - np.count_nonzero(judged) - np.count_nonzero(declared.take(self._not_judged))
        return elsewhere != 0 or not np.array_equal(expected, judged)

    def spread(self, of_rows: Ints) -> Ints:
        """Return the numbers as an array over all rows."""
        out = np.zeros(len(self._counts), np.int64)
        out[self._rows] = of_rows
        return out
