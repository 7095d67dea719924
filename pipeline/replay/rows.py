"""Packed samples as flat arrays: one entry per row, and one per event, groups apart and each in decision order."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOT_LISTED: Final = -(2**40)
"""What a decision says that is in no list: neither throttled nor violated."""
NOWHERE: Final = -1  # a position that no event has
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


@dataclass(frozen=True, slots=True)
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


def unpack(samples: pa.Table, groups: Ints | None = None) -> Rows:
    """Flatten a table with the columns of SAMPLES at level `packed`.

    Args:
        groups: only the rows of these.

    Raises:
        ValueError: a row has no lists, or lists of different lengths.
    """
    samples = samples.combine_chunks()
    order = _order(_ints(samples, "group_ref"), _ints(samples, "first_seq"), groups)
    column = {name: _ints(samples, name)[order] for name in INTEGERS}
    lists = _Lists(samples, order)
    values, counts = lists.take("val")
    dt_ms, time_counts = lists.take("dt_ms")
    if not np.array_equal(counts, time_counts):
        raise ValueError("dt_ms and val have different lengths")
    event_at = np.concatenate(([0], np.cumsum(counts)[:-1])) if len(counts) else np.zeros(0, np.int64)
    start_ms = column["sample_start_ms"]
    waits, lost_waits = _places(lists, "thr_pos", event_at, counts)
    unchecked, lost_marks = _places(lists, "unchecked_pos", event_at, counts)
    checked = np.ones(len(values), np.bool_)
    checked[unchecked[unchecked != NOWHERE]] = False
    return Rows(
        **{name: column[name] for name in INTEGERS if name != "sum"},
        total=column["sum"],
        count=counts,
        bound=_numbers(samples, "bound")[order].astype(np.float64),
        max_observed=_numbers(samples, "max_observed")[order].astype(np.float64),
        is_new_sample=_begins(column["group_ref"], start_ms),
        misplaced=lost_waits | lost_marks,
        event_at=event_at,
        row_of=np.repeat(np.arange(len(order)), counts),
        ts_ms=np.repeat(start_ms, counts) + dt_ms,
        value=values.astype(np.int64, copy=False),
        checked=checked,
        throttle_ms=_scattered(lists, "thr_ms", waits, len(values)),
        applied_ms=_scattered(lists, "applied_ms", waits, len(values)),
    )


def _order(group_ref: Ints, first_seq: Ints, groups: Ints | None) -> Ints:
    """Where the rows stand that are wanted: groups apart, each in decision order; in files each group is in decision order as it is."""
    order = _sorted_by(group_ref)
    ref, seq = group_ref[order], first_seq[order]
    if ((seq[1:] < seq[:-1]) & (ref[1:] == ref[:-1])).any():
        order = np.lexsort((first_seq, group_ref))
    if groups is None:
        return order
    wanted = np.zeros(max(int(group_ref.max(initial=0)), int(groups.max(initial=0))) + 1, np.bool_)
    wanted[groups] = True
    return order[wanted[group_ref[order]]]


def _sorted_by(group_ref: Ints) -> Ints:
    """A stable order of numbers from 0 to 2^31 - 1. Two bytes at a time are sorted by counting, whatever the number of groups."""
    low = np.argsort(group_ref.astype(np.uint16), kind="stable")
    high = (group_ref >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low


class _Lists:
    """The list columns of a table, row by row in another order."""

    def __init__(self, samples: pa.Table, order: Ints) -> None:
        self._samples = samples
        self._order = order
        self._known: tuple[Ints, Ints, Ints] | None = None

    def take(self, name: str) -> tuple[NDArray[Any], Ints]:
        """Return the entries of all rows, one after the other, and how many each row has."""
        values, offsets = _flat(self._samples, name)
        places, counts = self._places(offsets)
        return values[places], counts

    def _places(self, offsets: Ints) -> tuple[Ints, Ints]:
        if self._known is not None and np.array_equal(self._known[0], offsets):
            return self._known[1:]  # times and values, or positions and waits, are parallel
        counts = np.diff(offsets)[self._order]
        ends = np.cumsum(counts)
        places = np.repeat(offsets[:-1][self._order] - ends + counts, counts) + np.arange(int(ends[-1]) if len(ends) else 0)
        self._known = (offsets, places, counts)
        return places, counts


def _begins(group_ref: Ints, start_ms: Ints) -> Flags:
    if not len(group_ref):
        return np.zeros(0, np.bool_)
    changes = (group_ref[1:] != group_ref[:-1]) | (start_ms[1:] != start_ms[:-1])
    return np.concatenate(([True], changes))


def _places(lists: _Lists, name: str, event_at: Ints, counts: Ints) -> tuple[Ints, Flags]:
    """Turn positions within rows into positions among all events, or `NOWHERE`; and say which rows have such."""
    positions, listed = lists.take(name)
    places: Ints = np.repeat(event_at, listed) + positions
    beyond = (positions < 0) | (positions >= np.repeat(counts, listed))
    places[beyond] = NOWHERE
    misplaced = np.zeros(len(counts), np.bool_)
    misplaced[np.repeat(np.arange(len(counts)), listed)[beyond]] = True
    return places, misplaced


def _scattered(lists: _Lists, name: str, places: Ints, events: int) -> Ints:
    values, _ = lists.take(name)
    if len(values) != len(places):
        raise ValueError(f"{name} and thr_pos have different lengths")
    out = np.full(events, NOT_LISTED, np.int64)
    there = places != NOWHERE
    out[places[there]] = values[there]
    return out


def _flat(samples: pa.Table, name: str) -> tuple[NDArray[Any], Ints]:
    column: Any = samples.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if column.null_count:
        raise ValueError(f"{name} is not written: only levels packed and trace can be replayed")
    offsets = column.offsets.to_numpy().astype(np.int64)
    return column.flatten().to_numpy(zero_copy_only=False), offsets - offsets[0]


def _ints(samples: pa.Table, name: str) -> Ints:
    return _numbers(samples, name).astype(np.int64, copy=False)


def _numbers(samples: pa.Table, name: str) -> NDArray[Any]:
    numbers: NDArray[Any] = samples.column(name).to_numpy()
    return numbers
