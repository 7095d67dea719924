"""Computes the boundaries and sums of samples.

A sample begins at the first event that is a window or more after the start of the previous sample. The boundaries are found along the
pointers "first event a window later", with one step for each sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from proxy.metering.conversion.runs import Flags, Ints, Runs

STATE: Final = pa.schema(
    [(name, pa.int64()) for name in ("group_ref", "sample_index", "start_ms", "last_ms", "sum", "virtual_ns")],
)
"""The samples of each group that can still be live, and at least its newest, with the virtual time of the group's schedule in each: the
initial state of the next file set. Times are wall-clock times. See `Schedules`."""
NONE: Final = -1
DENSE_TIMES_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Sensors:
    """The settings of each group's sensor, indexed by group_ref."""

    num_samples: Ints
    window_ms: Ints
    is_request_time: Flags


@dataclass(frozen=True, slots=True)
class Times:
    """The times at which each group made decisions, among runs that are sorted by group.

    Attributes:
        at: first run of each time.
        counts: number of runs of each time.
    """

    at: Ints
    counts: Ints
    group_ref: Ints
    ts_ms: Ints


@dataclass(frozen=True, slots=True)
class Pieces:
    """The part of each sample in these decisions, sorted as they are.

    Attributes:
        begin_at: first time of each piece.
        counts: number of times of each piece.
        known: position in the state of the sample that the piece continues, or NONE.
        held: sum of that sample before the piece.
    """

    begin_at: Ints
    counts: Ints
    known: Ints
    held: Ints


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of all groups, those of the state among them: sorted by (group, index)."""

    group_ref: Ints
    index: Ints
    start_ms: Ints
    last_ms: Ints
    total: Ints

    def next_state(self, sensors: Sensors, virtual_ns: Ints) -> pa.Table:
        """Return the newest sample of each group, and the samples that can still be live with it.

        Args:
            virtual_ns: virtual time of each group's schedule, by group_ref.
        """
        group = self.group_ref
        is_newest = np.ones(len(group), np.bool_)
        is_newest[:-1] = group[1:] != group[:-1]
        newest_last = self.last_ms[np.flatnonzero(is_newest)][np.cumsum(is_newest) - is_newest]
        span = sensors.num_samples[group] * sensors.window_ms[group]
        kept = is_newest | (self.last_ms + span > newest_last)
        columns = (self.group_ref, self.index, self.start_ms, self.last_ms, self.total, virtual_ns[self.group_ref])
        return pa.Table.from_arrays([pa.array(column[kept], pa.int64()) for column in columns], schema=STATE)


def spread(values: NDArray[Any], counts: Ints, length: int | None = None) -> NDArray[Any]:
    """Return each value repeated `counts` times; `length`: the resulting length, if known."""
    if length is None:
        length = int(counts.sum())
    return values if length == len(values) else np.repeat(values, counts)


def times_of(runs: Runs) -> Times:
    """Return the times of runs that are sorted by group."""
    group_ref, ts_ms = runs.group_ref, runs.ts_ms
    begins = np.ones(len(runs), np.bool_)
    begins[1:] = (group_ref[1:] != group_ref[:-1]) | (ts_ms[1:] != ts_ms[:-1])
    at = np.flatnonzero(begins)
    if len(at) > DENSE_TIMES_SHARE * len(runs):  # duplicates do no harm, and runs need no expansion
        return Times(np.arange(len(runs)), np.ones(len(runs), np.int64), group_ref.astype(np.int64), ts_ms)
    return Times(at, np.diff(at, append=len(runs)), group_ref[at].astype(np.int64), ts_ms[at])


def pieces_of(times: Times, sensors: Sensors, state: pa.Table) -> Pieces:
    """Return the part of each sample in these times."""
    group, ts_ms = times.group_ref, times.ts_ms
    origin = int(ts_ms.min())
    window_ms = sensors.window_ms[group]
    stride = int(ts_ms.max()) - origin + int(window_ms.max()) + 2
    keys = group * stride + (ts_ms - origin)
    following = np.searchsorted(keys, keys + window_ms)
    first = _begins(group)
    ends = np.append(first[1:], len(group))
    known = _newest(state, len(sensors.window_ms))[group[first]]
    position = first.copy()
    goes_on = np.flatnonzero(known != NONE)
    open_until_ms = state.column("start_ms").to_numpy()[known[goes_on]] + window_ms[first[goes_on]]
    position[goes_on] = np.searchsorted(keys, group[first[goes_on]] * stride + np.clip(open_until_ms - origin, 0, stride - 1))
    begins = _follow_pointers(following, position, ends)
    continued = position > first
    begin_at = np.concatenate((first[continued], begins))
    of_state = np.concatenate((known[continued], np.full(len(begins), NONE)))
    if continued.any():
        order = np.argsort(begin_at)
        begin_at, of_state = begin_at[order], of_state[order]
    held = np.zeros(len(begin_at), np.int64)
    held[of_state != NONE] = state.column("sum").to_numpy()[of_state[of_state != NONE]]
    return Pieces(begin_at, np.diff(begin_at, append=len(group)), of_state, held)


def _begins(group_ref: Ints) -> Ints:
    return np.flatnonzero(np.diff(group_ref, prepend=NONE))


def _follow_pointers(following: Ints, firsts: Ints, ends: Ints) -> Ints:
    """Follow the pointers of each group from its first to its end; a pointer beyond that leads to the next group."""
    pointers: Any = memoryview(following)  # type: ignore[arg-type]  # numbers by position, faster than the array
    begins: list[int] = []
    note = begins.append
    for position, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        at = position
        while at < end:
            note(at)
            at = pointers[at]
    return np.array(begins, np.int64)


def _newest(state: pa.Table, groups: int) -> Ints:
    newest = np.full(groups, NONE, np.int64)
    newest[state.column("group_ref").to_numpy()] = np.arange(len(state))  # sorted by (group, index): the last one stays
    return newest


def samples_of(times: Times, pieces: Pieces, amount: Ints, state: pa.Table) -> tuple[Samples, Ints]:
    """Return all samples, and the sample of each time.

    Args:
        amount: the amount of each run.
    """
    old = Samples(*(state.column(name).to_numpy() for name in STATE.names if name != "virtual_ns"))
    known, goes_on = pieces.known, pieces.known != NONE
    start_ms = times.ts_ms[pieces.begin_at]
    start_ms[goes_on] = old.start_ms[known[goes_on]]
    kept = np.ones(len(state), np.bool_)
    kept[known[goes_on]] = False
    made = Samples(
        np.concatenate((old.group_ref[kept], times.group_ref[pieces.begin_at])),
        np.concatenate((old.index[kept], _numbered(times, pieces, old, state))),
        np.concatenate((old.start_ms[kept], start_ms)),
        np.concatenate((old.last_ms[kept], times.ts_ms[pieces.begin_at + pieces.counts - 1])),
        np.concatenate((old.total[kept], np.add.reduceat(amount, times.at[pieces.begin_at]) + pieces.held)),
    )
    place = np.arange(len(made.group_ref))
    if kept.any():
        order = np.lexsort((made.index, made.group_ref))
        place[order] = np.arange(len(order))
        made = Samples(*(getattr(made, name)[order] for name in made.__slots__))
    return made, spread(place[int(kept.sum()) :], pieces.counts, len(times.at))


def _numbered(times: Times, pieces: Pieces, old: Samples, state: pa.Table) -> Ints:
    """Return the number of each sample within its group, continuing from the newest known one."""
    group = times.group_ref[pieces.begin_at]
    first = _begins(group)
    newest = _newest(state, int(max(group.max(), old.group_ref.max(initial=0))) + 1)[group[first]]
    is_known = newest != NONE
    number = np.zeros(len(first), np.int64)
    number[is_known] = old.index[newest[is_known]] + (pieces.known[first[is_known]] == NONE)
    counts = np.diff(first, append=len(group))
    numbers: Ints = np.arange(len(group)) + np.repeat(number - first, counts)
    return numbers
