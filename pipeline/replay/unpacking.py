"""Unpacks packed samples into `Rows`: a whole table, or some groups at a time.

The wanted rows are sliced out of each run of a table. Nothing is copied as a whole, and only small parts are sorted.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.replay.rows import INTEGERS, LEAD, Flags, Ints, Rows, Waits
from pipeline.replay.runs import ALIKE, EVENTS, FLOATS, REMOTE, UNCHECKED, WAITS, Run, runs_of
from pipeline.replay.waits import fit

NO_POSITION: Final = -1  # in place of the first event of a row that is not wanted


def unpack(samples: pa.Table, groups: Ints | None = None) -> Rows:
    """Flatten a table with the columns of SAMPLES at level `packed`.

    Args:
        samples: the table.
        groups: numbers of the groups to keep; None keeps all.

    Raises:
        ValueError: a row has no lists, or lists of different lengths.
    """
    runs = runs_of(samples)
    return _rows(runs, None if groups is None else _flags(groups, runs), lambda: False)


def unpack_in_parts(samples: pa.Table, groups: Ints | None, events: int) -> Iterator[Rows]:
    """Flatten a table in parts of some groups each.

    Parts that fit into the processor's cache take half of the time.

    Args:
        samples: the table.
        groups: numbers of the groups to keep; None keeps all.
        events: approximate number of events of a part; a part of one group may have more.

    Raises:
        ValueError: as for `unpack`, before the first part.
    """
    runs = runs_of(samples)
    if groups is None:
        return _parts(runs, None, events)
    wanted = _flags(groups, runs)
    mine, every = sum(run.events_of(wanted) for run in runs), sum(run.events for run in runs)
    return _parts(runs, wanted, events * every // mine if mine else every + 1)


def _parts(runs: Sequence[Run], wanted: Flags | None, events: int) -> Iterator[Rows]:
    edges = [run.places(_cuts(runs, events)) for run in runs]
    fits = functools.cache(lambda: all(map(fit, runs)))  # of all rows at once in less time than part by part
    for ends in itertools.pairwise(zip(*edges, strict=True)):
        part = [run.between(first, end) for run, first, end in zip(runs, *ends, strict=True)]
        rows = _rows([run for run in part if len(run)] or part[:1], wanted, fits)
        if len(rows.n):
            yield rows


def _cuts(runs: Sequence[Run], events: int) -> NDArray[Any]:
    """Return the first group of each part, so that no part has many more than `events` events."""
    step = max(events // len(runs), 1)
    refs = np.unique(np.concatenate([run.refs_at(step) for run in runs]))
    before = np.sum([run.events_before(refs) for run in runs], axis=0)
    cuts: NDArray[Any] = refs[np.flatnonzero(np.diff(before // events, prepend=-1))]
    return cuts


def _rows(runs: Sequence[Run], wanted: Flags | None, fits: Callable[[], bool]) -> Rows:
    """Join the rows of runs, sorted by group and sequence number.

    Args:
        runs: the runs.
        wanted: by group number, whether its rows are wanted; None: all are.
        fits: returns True when the waits of the rows, with those of other rows of their table, are known to fit their lists.
    """
    group_ref, first_seq = _numbers(runs, "group_ref"), _numbers(runs, "first_seq")
    order = _in_order(group_ref, first_seq)
    if wanted is not None:
        order = order[wanted[group_ref[order]]]
    column = {name: _numbers(runs, name).take(order) for name in INTEGERS}
    bound, max_observed = (np.concatenate([run.numbers[name] for run in runs]).take(order) for name in FLOATS)
    lengths = _lengths(runs, EVENTS)
    counts = lengths.take(order)
    event_at = np.cumsum(counts) - counts
    row_of = np.repeat(np.arange(len(order)), counts)
    places = ((np.cumsum(lengths) - lengths).take(order) - event_at).take(row_of, mode="clip") + np.arange(len(row_of))
    values, dt_ms = (entries.take(places) for entries in _entries(runs, EVENTS))
    begins = np.full(len(group_ref), NO_POSITION)
    begins[order] = event_at
    waits_at, (waits_ms, applied_ms), lost_waits = _marked(runs, WAITS, begins, lengths)
    unchecked_at, _, lost_marks = _marked(runs, UNCHECKED, begins, lengths)
    checked = np.ones(len(values), np.bool_)
    checked[unchecked_at()] = False
    remote = None
    if len(runs[0].offsets) > REMOTE:
        remote = np.zeros(len(values), np.bool_)
        remote[_marked(runs, REMOTE, begins, lengths)[0]()] = True
    return Rows(
        **{name: column[name] for name in INTEGERS if name != "sum"},
        total=column["sum"],
        count=counts,
        bound=bound,
        max_observed=max_observed,
        misplaced=(lost_waits | lost_marks).take(order),
        event_at=event_at,
        row_of=row_of,
        ts_ms=column["sample_start_ms"].take(row_of, mode="clip") + dt_ms,
        value=values.astype(np.int64, copy=False),
        checked=checked,
        waits=Waits(waits_ms, applied_ms, waits_at),
        declared=_InOrder(runs, order),
        lead_ns=_numbers(runs, LEAD).take(order) if LEAD in runs[0].numbers else None,
        waits_fit=lambda: not lost_waits.any() and (fits() or all(map(fit, runs))),
        remote=remote,
        dt_ends_ms=(int(dt_ms.min()), int(dt_ms.max())) if len(dt_ms) else None,
    )


class _InOrder(dict[str, Ints]):
    """Columns of rows by name; each is sorted on first use."""

    def __init__(self, runs: Sequence[Run], order: Ints) -> None:
        super().__init__()
        self._runs, self._order = runs, order

    def __missing__(self, name: str) -> Ints:
        self[name] = column = _numbers(self._runs, name).take(self._order)
        return column


def _numbers(runs: Sequence[Run], name: str) -> Ints:
    numbers: Ints = np.concatenate([run.numbers[name] for run in runs], dtype=np.int64)
    return numbers


def _in_order(group_ref: Ints, first_seq: Ints) -> Ints:
    """Return the order of the rows by group and sequence number. In files, the rows of each group are already in this order."""
    order = np.argsort(group_ref, kind="stable")  # a merge, since the input is a few ascending runs
    ref, seq = group_ref.take(order), first_seq.take(order)
    return np.lexsort((first_seq, group_ref)) if ((seq[1:] < seq[:-1]) & (ref[1:] == ref[:-1])).any() else order


def _lengths(runs: Sequence[Run], alike: int) -> Ints:
    """Return the length of each row's lists."""
    lengths: Ints = np.concatenate([np.diff(run.offsets[alike]) for run in runs], dtype=np.int64)
    return lengths


def _entries(runs: Sequence[Run], alike: int) -> list[NDArray[Any]]:
    """Return the list elements of each column; one object for columns that are one in every run."""
    cut = [(slice(run.offsets[alike][0], run.offsets[alike][-1]), run.entries[alike]) for run in runs]
    found: list[NDArray[Any]] = []
    for column in range(len(ALIKE[alike])):
        is_last = column and all(entries[column] is entries[column - 1] for _, entries in cut)
        found.append(found[-1] if is_last else np.concatenate([entries[column][its] for its, entries in cut]))
    return found


def _marked(runs: Sequence[Run], alike: int, begins: Ints, counts: Ints) -> tuple[Callable[[], Ints], list[NDArray[Any]], Flags]:
    """Return what finds marked events among all events, the other columns of the marks, and which rows have wrong positions.

    Args:
        runs: the runs of the rows.
        alike: index of the columns in ALIKE.
        begins: first event of each row, in the order of the runs; `NO_POSITION` when the row is not wanted.
        counts: number of events of each row.
    """
    positions, *others = _entries(runs, alike)
    misplaced = np.zeros(len(counts), np.bool_)
    if not len(positions):
        return lambda: np.zeros(0, np.int64), others, misplaced
    lengths = _lengths(runs, alike)
    listed = np.flatnonzero(lengths != 0)  # most lists are empty; flags are searched faster than numbers
    numbers = lengths.take(listed)
    if int(begins.min()) != NO_POSITION and _are_in_rows(positions, numbers, counts.take(listed)):
        return functools.partial(_places, positions, begins.take(listed), numbers), others, misplaced
    row = np.repeat(listed, numbers)
    beyond = (positions < 0) | (positions >= counts.take(row))
    misplaced[row[beyond]] = True
    back = np.flatnonzero(positions[1:] <= positions[:-1])
    misplaced[row[back[row[back] == row[back + 1]]]] = True
    kept = ~(beyond | (begins.take(row) == NO_POSITION))
    return lambda: _places(positions, begins.take(listed), numbers)[kept], [entries[kept] for entries in others], misplaced


def _are_in_rows(positions: Ints, numbers: Ints, counts: Ints) -> bool:
    """Return True when the positions of each list ascend, from 0 on to less than the number of events of the row.

    Args:
        numbers, counts: number of positions of each list, and of events of its row.
    """
    ends = np.cumsum(numbers)
    back = positions[1:] <= positions[:-1]
    back[ends[:-1] - 1] = False  # from one list to the next
    return not back.any() and bool((positions.take(ends - numbers) >= 0).all() and (positions.take(ends - 1) < counts).all())


def _places(positions: Ints, begins: Ints, numbers: Ints) -> Ints:
    """Return positions in lists of these lengths as positions among all events, by the first event of each list's row."""
    places = np.repeat(begins, numbers)
    places += positions
    return places


def _flags(groups: Ints, runs: Sequence[Run]) -> Flags:
    """Return flags by group number: whether the number is in `groups`."""
    highest = max(int(run.group_ref.max(initial=0)) for run in runs)
    flags = np.zeros(max(highest, int(groups.max(initial=0))) + 1, np.bool_)
    flags[groups] = True
    return flags
