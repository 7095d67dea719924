"""Packed samples as flat arrays, with one entry per row and one per event, sorted by group and sequence number."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOT_LISTED: Final = -(2**40)
"""Throttle time of an event that is in no list: neither throttled nor violated."""

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
LEAD: Final = "lead_ns"
"""A column that only runs with paced groups have."""
REMOTE_POSITIONS: Final = "remote_pos"
"""A column that is only needed where processes share paced groups."""
LISTS: Final = ("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms")
COLUMNS: Final = [*INTEGERS, *OF_WAITS, "bound", "max_observed", *LISTS]
"""Columns that `unpack` reads."""


@dataclass(frozen=True)
class Waits:
    """The entries in the lists of waits of some rows, in no order.

    Attributes:
        throttle_ms: recorded throttle times.
        applied_ms: throttle time that the client got each time, in the response or as a delay; one object with `throttle_ms` if all equal.
        places: returns the event of each entry.
    """

    throttle_ms: Ints
    applied_ms: Ints
    places: Callable[[], Ints]

    @functools.cached_property
    def at(self) -> Ints:
        """The event of each entry, among all events. Where schedules decide, a clean verdict does not need it."""
        return self.places()

    @classmethod
    def none(cls) -> "Waits":
        """Return no waits."""
        none = np.zeros(0, np.int64)
        return cls(none, none, lambda: none)


@dataclass(frozen=True)
class Rows:
    """Rows of `samples`, sorted by (group, first_seq), and their events in the same order.

    Attributes:
        count: number of events in each row's lists; `n` is the recorded number.
        row_of: row of each event.
        misplaced: whether a list of the row has positions outside of its events, or positions that do not ascend.
        ts_ms, value: time and amount of each event.
        checked: False for events that were recorded without a check against the bound.
        waits: the entries in the lists of waits.
        declared: the columns OF_WAITS by name; each is sorted on first use.
        lead_ns: of paced groups, how far the schedule was ahead before each row; below 0: the group has none; None: no group has.
        remote: whether each event is another process's usage; None: the column `remote_pos` was not read.
        dt_ends_ms: shortest and longest time from the start of a row's sample to an event of the row; None: not known.
        waits_fit: returns True when `declared` is known to agree with the lists of waits of each row. A what-if does not call it.
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
    waits: Waits
    declared: Mapping[str, Ints]
    lead_ns: Ints | None
    waits_fit: Callable[[], bool]
    remote: Flags | None = None
    dt_ends_ms: tuple[int, int] | None = None

    @property
    def events(self) -> int:
        """Number of events of all rows."""
        return len(self.value)

    @functools.cached_property
    def throttle_ms(self) -> Ints:
        """Recorded throttle time of each event; `NOT_LISTED` when it has none."""
        return self._of_events(self.waits.throttle_ms)

    @functools.cached_property
    def applied_ms(self) -> Ints:
        """Throttle time that the client of each event got; `NOT_LISTED` when it has none."""
        return self._of_events(self.waits.applied_ms)

    def _of_events(self, of_waits: Ints) -> Ints:
        out = np.full(self.events, NOT_LISTED, np.int64)
        out[self.waits.at] = of_waits
        return out

    @functools.cached_property
    def paced(self) -> Flags:
        """Whether the group of each row has a schedule."""
        return np.zeros(len(self.n), np.bool_) if self.lead_ns is None else self.lead_ns >= 0

    @functools.cached_property
    def is_new_group(self) -> Flags:
        """Whether each row is the first of its group."""
        return changes(self.group_ref)

    @functools.cached_property
    def is_new_bound(self) -> Flags:
        """Whether each row has another bound than the row before."""
        return changes(self.bound)

    @functools.cached_property
    def all_checked(self) -> bool:
        """Whether every event was checked."""
        return bool(self.checked.all())

    @functools.cached_property
    def is_new_sample(self) -> Flags:
        """Whether each row begins a new sample, instead of continuing the one of the row before."""
        return self.is_new_group | changes(self.sample_start_ms)

    @functools.cached_property
    def running_total(self) -> Ints:
        """Sum of all values before each event; one more entry has the sum of all values."""
        totals = np.zeros(self.events + 1, np.int64)
        np.cumsum(self.value, out=totals[1:])
        return totals

    @functools.cached_property
    def total_before(self) -> Ints:
        """Sum of all values before each row."""
        return self.running_total.take(self.event_at)

    @functools.cached_property
    def ends_ms(self) -> tuple[int, int]:
        """Time of the earliest and of the latest of all events; there has to be one."""
        return int(self.ts_ms.min()), int(self.ts_ms.max())

    @functools.cached_property
    def first_event_ms(self) -> Ints:
        """Time of each row's first event by its lists; undefined for rows without events."""
        return self._at(self.event_at, self.sample_start_ms)

    @functools.cached_property
    def final_event_ms(self) -> Ints:
        """Time of each row's last event by its lists; `last_event_ms` is the recorded time."""
        return self._at(self.event_at + self.count - 1, self.last_event_ms)

    def _at(self, events: Ints, otherwise: Ints) -> Ints:
        times_ms: Ints = self.ts_ms.take(events, mode="clip") if self.events else otherwise
        return times_ms


def changes(column: NDArray[Any]) -> Flags:
    """Return, for each entry, whether it is the first one or differs from the one before."""
    differs = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=differs[1:])
    return differs
