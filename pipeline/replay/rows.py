"""Packed samples as flat arrays: one entry per row, and one per event, groups apart and each in decision order."""

from collections.abc import Iterator
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
    packed = _Packed(samples)
    return packed.rows(packed.order(groups))


def unpack_in_parts(samples: pa.Table, groups: Ints | None, events: int) -> Iterator[Rows]:
    """The same, some groups at a time: parts of about so many events, more where one group has more.

    What is small enough to stay in the processor's cache from one step to the next is worked out in half of the time.

    Raises:
        ValueError: as `unpack`, before the first part.
    """
    packed = _Packed(samples)
    return _parts(packed, packed.order(groups), events)


def _parts(packed: "_Packed", order: Ints, events: int) -> Iterator[Rows]:
    begins = _group_begins(packed.group_ref[order])
    ends = np.cumsum(packed.counts[order])
    before = np.where(begins > 0, ends[begins - 1], 0) if len(begins) else begins  # events of earlier groups
    cuts = begins[np.flatnonzero(np.diff(before // events, prepend=-1))]
    for first, end in zip(cuts.tolist(), [*cuts.tolist()[1:], len(order)], strict=True):
        yield packed.rows(order[first:end])


class _Packed:
    """The columns of a table of samples.

    Attributes:
        group_ref: of each row.
        counts: how many events the lists of each row hold.
    """

    def __init__(self, samples: pa.Table) -> None:
        self._column = {name: _numbers(samples, name) for name in (*INTEGERS, "bound", "max_observed")}
        self._events = _Lists(samples, ("val", "dt_ms"))
        self._waits = _Lists(samples, ("thr_pos", "thr_ms", "applied_ms"))
        self._unchecked = _Lists(samples, ("unchecked_pos",))
        self.group_ref: Ints = self._column["group_ref"].astype(np.int64, copy=False)
        self.counts: Ints = np.diff(self._events.offsets)

    def order(self, groups: Ints | None) -> Ints:
        """Where the rows stand that are wanted: groups apart, each in decision order; in files each group is in decision order as it is."""
        group_ref, first_seq = self.group_ref, self._column["first_seq"]
        order = _sorted_by(group_ref)
        ref, seq = group_ref[order], first_seq[order]
        if ((seq[1:] < seq[:-1]) & (ref[1:] == ref[:-1])).any():
            order = np.lexsort((first_seq, group_ref))
        if groups is None:
            return order
        wanted = np.zeros(max(int(group_ref.max(initial=0)), int(groups.max(initial=0))) + 1, np.bool_)
        wanted[groups] = True
        return order[wanted[group_ref[order]]]

    def rows(self, order: Ints) -> Rows:
        """Flatten the rows that stand there."""
        column = {name: self._column[name][order].astype(np.int64, copy=False) for name in INTEGERS}
        (values, dt_ms), counts = self._events.take(order)
        event_at = np.cumsum(counts) - counts
        start_ms = column["sample_start_ms"]
        (positions, thr_ms, applied_ms), listed = self._waits.take(order)
        waits, lost_waits = _places(positions, listed, event_at, counts)
        (positions,), listed = self._unchecked.take(order)
        unchecked, lost_marks = _places(positions, listed, event_at, counts)
        checked = np.ones(len(values), np.bool_)
        checked[unchecked[unchecked != NOWHERE]] = False
        return Rows(
            **{name: column[name] for name in INTEGERS if name != "sum"},
            total=column["sum"],
            count=counts,
            bound=self._column["bound"][order].astype(np.float64, copy=False),
            max_observed=self._column["max_observed"][order].astype(np.float64, copy=False),
            is_new_sample=_begins(column["group_ref"], start_ms),
            misplaced=lost_waits | lost_marks,
            event_at=event_at,
            row_of=np.repeat(np.arange(len(order)), counts),
            ts_ms=np.repeat(start_ms, counts) + dt_ms,
            value=values.astype(np.int64, copy=False),
            checked=checked,
            throttle_ms=_scattered(thr_ms, waits, len(values)),
            applied_ms=_scattered(applied_ms, waits, len(values)),
        )


class _Lists:
    """List columns of a table whose lists have the same lengths.

    Attributes:
        offsets: where the list of each row begins, and the last one ends.

    Raises:
        ValueError: a row has no lists, or lists of different lengths.
    """

    def __init__(self, samples: pa.Table, names: tuple[str, ...]) -> None:
        flat = [_flat(samples, name) for name in names]
        self._entries = [entries for entries, _ in flat]
        self.offsets = flat[0][1]
        for name, (_, offsets) in zip(names, flat, strict=True):
            if not np.array_equal(offsets, self.offsets):
                raise ValueError(f"{name} and {names[0]} have different lengths")

    def take(self, order: Ints) -> tuple[list[NDArray[Any]], Ints]:
        """Return the entries of rows, one after the other, column by column, and how many each row has."""
        starts = self.offsets[:-1][order]
        counts = self.offsets[1:][order] - starts
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        if not total:
            return [entries[:0] for entries in self._entries], counts
        places = np.repeat(starts - ends + counts, counts) + np.arange(total)
        return [entries[places] for entries in self._entries], counts


def _sorted_by(group_ref: Ints) -> Ints:
    """A stable order of numbers from 0 to 2^31 - 1. Two bytes at a time are sorted by counting, whatever the number of groups."""
    low = np.argsort(group_ref.astype(np.uint16), kind="stable")
    high = (group_ref >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low


def _group_begins(group_ref: Ints) -> Ints:
    return np.flatnonzero(np.diff(group_ref, prepend=-1))


def _begins(group_ref: Ints, start_ms: Ints) -> Flags:
    if not len(group_ref):
        return np.zeros(0, np.bool_)
    changes = (group_ref[1:] != group_ref[:-1]) | (start_ms[1:] != start_ms[:-1])
    return np.concatenate(([True], changes))


def _places(positions: NDArray[Any], listed: Ints, event_at: Ints, counts: Ints) -> tuple[Ints, Flags]:
    """Turn positions within rows into positions among all events, or `NOWHERE`; and say which rows have such."""
    misplaced = np.zeros(len(counts), np.bool_)
    if not len(positions):
        return np.zeros(0, np.int64), misplaced
    places: Ints = np.repeat(event_at, listed) + positions
    beyond = (positions < 0) | (positions >= np.repeat(counts, listed))
    if beyond.any():
        places[beyond] = NOWHERE
        misplaced[np.repeat(np.arange(len(counts)), listed)[beyond]] = True
    return places, misplaced


def _scattered(values: NDArray[Any], places: Ints, events: int) -> Ints:
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


def _numbers(samples: pa.Table, name: str) -> NDArray[Any]:
    numbers: NDArray[Any] = samples.column(name).to_numpy()
    return numbers
