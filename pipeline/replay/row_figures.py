"""Recomputes the figures of each row from its events."""

from collections.abc import Iterator

import numpy as np

from pipeline.replay.decisions import Decisions
from pipeline.replay.rows import NOT_LISTED, Flags, Floats, Ints, Rows

Figure = tuple[str, Ints | Floats, Ints | Floats]
"""What it is, what the events give for each row, and what each row says."""


def differing_figures(rows: Rows, decided: Decisions, judged: Flags) -> Iterator[Figure]:
    """Return the figures, but for those of waits, that are other ones in any judged row; of a row without events nothing is meant."""
    if not rows.events:
        return
    at = np.minimum(rows.event_at, rows.events - 1)
    figures: tuple[Figure, ...] = (
        ("sum before the row", decided.prior_sum.take(at), rows.prior_sum),
        ("window of the row", decided.window_ms.take(at), rows.window_ms),
        ("oldest sample of the row", decided.oldest_start_ms.take(at), rows.oldest_start_ms),
        ("highest rate of the row", _highest_rates(rows, decided, at), rows.max_observed),
    )
    for what, expected, said in figures:
        if ((expected != said) & judged).any():
            yield what, expected, said


def _highest_rates(rows: Rows, decided: Decisions, at: Ints) -> Floats:
    """Of the records of each row that looked at the bound; 0 where none did."""
    highest: Floats
    if rows.checked.all():
        highest = np.maximum.reduceat(decided.observed, at)
        return highest
    highest = np.maximum.reduceat(np.where(rows.checked, decided.observed, -np.inf), at)
    return np.where(np.isinf(highest), 0.0, highest)


def differing_waits(rows: Rows, decided: Decisions, judged: Flags, event_judged: Flags) -> Iterator[Figure]:
    """The same of the figures that come from the waits of a row.

    Args:
        judged, event_judged: the same, by row and by event.
    """
    few = np.flatnonzero(((rows.throttle_ms != NOT_LISTED) | decided.violated) & event_judged)  # the others add nothing to any sum
    said_ms, expected_ms = rows.throttle_ms.take(few), decided.throttle_ms.take(few)
    listed, violated = said_ms != NOT_LISTED, decided.violated.take(few)
    counted = violated & (expected_ms > 0)
    recorded = said_ms if listed.all() else np.where(listed, said_ms, 0)
    applied = np.maximum(rows.applied_ms.take(few), 0)  # what is not listed is below 0
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
    for what, expected, said in figures:
        if by_row.differ(expected, said):
            yield what, by_row.spread(expected), said


class _ByRow:
    """Some events, reduced to a number for each row that has one of them; of all other events the value is 0."""

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
        """Return how many events of each row are flagged."""
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

    def differ(self, expected: Ints, said: Ints) -> bool:
        """Whether any judged row says another number, one without such events included; hardly ever, so that nothing is spread."""
        judged = said.take(self._rows)
        elsewhere = np.count_nonzero(said) - np.count_nonzero(judged) - np.count_nonzero(said.take(self._not_judged))
        return elsewhere != 0 or not np.array_equal(expected, judged)

    def spread(self, of_rows: Ints) -> Ints:
        """Return the numbers of all rows."""
        out = np.zeros(len(self._counts), np.int64)
        out[self._rows] = of_rows
        return out
