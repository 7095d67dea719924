"""Packed samples as flat arrays: one entry per row, and one per event, groups apart and each in decision order."""

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOT_LISTED: Final = -(2**40)
"""What a decision says that is in no list: neither throttled nor violated."""
EXCUSED: Final = -1
"""An applied time that says: this connection waits for nothing (it keeps a group membership alive)."""

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
    "throttled_n",
    "violated_n",
    "throttle_ms_sum",
    "throttle_ms_max",
    "applied_ms_sum",
)
LISTS: Final = ("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms")
COLUMNS: Final = [*INTEGERS, "bound", "max_observed", *LISTS]
"""What `unpack` reads."""


@dataclass(frozen=True)
class Rows:
    """Rows of `samples`, sorted by (group, first_seq), and their events in the same order.

    Attributes:
        count: how many events the lists of each row hold; `n` is what the row says.
        row_of: the row of each event.
        is_new_sample: of each row: it begins a sample, it does not go on with the one before.
        misplaced: of each row: a list points beyond its events.
        ts_ms, value: of each event.
        checked: False for what was recorded without a look at the bound.
        throttle_ms: as recorded; `NOT_LISTED` where nothing was recorded.
        applied_ms: what the client was told or held for, `NOT_LISTED` as above.
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
    throttled_n: Ints
    violated_n: Ints
    throttle_ms_sum: Ints
    throttle_ms_max: Ints
    applied_ms_sum: Ints
    is_new_sample: Flags
    misplaced: Flags
    event_at: Ints
    row_of: Ints
    ts_ms: Ints
    value: Ints
    checked: Flags
    throttle_ms: Ints
    applied_ms: Ints

    @property
    def events(self) -> int:
        """How many events all rows hold."""
        return len(self.value)

    @functools.cached_property
    def running_total(self) -> Ints:
        """The sum of all values before each event, and, behind the last one, of all."""
        totals = np.zeros(self.events + 1, np.int64)
        np.cumsum(self.value, out=totals[1:])
        return totals

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
