"""Packed samples as flat arrays: one entry per row, and one per event, groups apart and each in decision order."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOT_LISTED: Final = -(2**40)
"""What a decision says that is in no list: neither throttled nor violated."""

INTEGERS: Final = (
    "group_ref",
    "sample_index",
    "sample_start_ms",
    "last_event_ms",
    "n",
    "sum",
    "prior_sum",
    "window_ms",
    "oldest_start_ms",
    "first_seq",
    "last_seq",
)
OF_WAITS: Final = ("throttled_n", "violated_n", "throttle_ms_sum", "throttle_ms_max", "applied_ms_sum")
LISTS: Final = ("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms")
COLUMNS: Final = [*INTEGERS, *OF_WAITS, "bound", "max_observed", *LISTS]
"""What `unpack` reads."""


@dataclass(frozen=True)
class Rows:
    """Rows of `samples`, sorted by (group, first_seq), and their events in the same order.

    Attributes:
        count: how many events the lists of each row hold; `n` is what the row says.
        row_of: the row of each event.
        misplaced: of each row: a list points beyond its events, or not from one to a later one.
        ts_ms, value: of each event.
        checked: False for what was recorded without a look at the bound.
        throttle_ms: as recorded; `NOT_LISTED` where nothing was recorded.
        applied_ms: what the client was sent or held for, `NOT_LISTED` as above.
        declared: the columns OF_WAITS of the rows; each is put in order when it is first asked for.
        waits_fit: looks whether `declared` surely agrees with the lists of waits of each row; a what-if never asks.
    """

    group_ref: Ints
    sample_index: Ints
    sample_start_ms: Ints
    last_event_ms: Ints
    n: Ints
    count: Ints
    total: Ints
    prior_sum: Ints
    window_ms: Ints
    oldest_start_ms: Ints
    bound: Floats
    first_seq: Ints
    last_seq: Ints
    max_observed: Floats
    misplaced: Flags
    event_at: Ints
    row_of: Ints
    ts_ms: Ints
    value: Ints
    checked: Flags
    throttle_ms: Ints
    applied_ms: Ints
    declared: Mapping[str, Ints]
    waits_fit: Callable[[], bool]

    @property
    def events(self) -> int:
        """How many events all rows hold."""
        return len(self.value)

    @functools.cached_property
    def is_new_group(self) -> Flags:
        """Whether each row is the first of its group."""
        return _changes(self.group_ref)

    @functools.cached_property
    def is_new_sample(self) -> Flags:
        """Whether each row begins a sample, and does not go on with the one before."""
        return self.is_new_group | _changes(self.sample_start_ms)

    @functools.cached_property
    def running_total(self) -> Ints:
        """The sum of all values before each event, and, behind the last one, of all."""
        totals = np.zeros(self.events + 1, np.int64)
        np.cumsum(self.value, out=totals[1:])
        return totals

    @functools.cached_property
    def total_before(self) -> Ints:
        """The sum of all values before each row."""
        return self.running_total.take(self.event_at)

    @functools.cached_property
    def first_event_ms(self) -> Ints:
        """When the first event of each row was, by its lists; of a row without events it means nothing."""
        return self._at(self.event_at, self.sample_start_ms)

    @functools.cached_property
    def final_event_ms(self) -> Ints:
        """When the last event of each row was, by its lists; `last_event_ms` is what the row says."""
        return self._at(self.event_at + self.count - 1, self.last_event_ms)

    def _at(self, events: Ints, otherwise: Ints) -> Ints:
        times_ms: Ints = self.ts_ms.take(events, mode="clip") if self.events else otherwise
        return times_ms


def _changes(column: Ints) -> Flags:
    changes = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes
