"""Packed samples taken apart into `Rows`: all of a table, or some groups at a time.

Within a file rows stand by group, but for a few that stand behind the others, and so do those that warm it up. So a table is a few runs of
ascending groups, and what is wanted is cut out of each: nothing is copied as a whole, and what is put in order is small.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.replay.rows import INTEGERS, NOT_LISTED, Flags, Ints, Rows

NOWHERE: Final = -1  # the first event of a row that is not wanted
RUNS_MAX: Final = 16
"""Of one batch of a table, and of a table; what has more is put in order before it is cut."""
FLOATS: Final = ("bound", "max_observed")
NUMBERS: Final = (*INTEGERS, *FLOATS)
ALIKE: Final = (("val", "dt_ms"), ("thr_pos", "thr_ms", "applied_ms"), ("unchecked_pos",))
"""List columns whose lists have the same lengths, row by row."""
EVENTS, WAITS, UNCHECKED = range(len(ALIKE))


def unpack(samples: pa.Table, groups: Ints | None = None) -> Rows:
    """Flatten a table with the columns of SAMPLES at level `packed`.

    Args:
        groups: only the rows of these.

    Raises:
        ValueError: a row has no lists, or lists of different lengths.
    """
    runs = _runs(samples)
    return _rows(runs, None if groups is None else _flags(groups, runs))


def unpack_in_parts(samples: pa.Table, groups: Ints | None, events: int) -> Iterator[Rows]:
    """The same, some groups at a time: parts of about so many events, more where one group has more.

    What is small enough to stay in the processor's cache from one step to the next is worked out in half of the time.

    Raises:
        ValueError: as `unpack`, before the first part.
    """
    runs = _runs(samples)
    if groups is None:
        return _parts(runs, None, events)
    wanted = _flags(groups, runs)
    mine, every = sum(run.events_of(wanted) for run in runs), sum(run.events for run in runs)
    return _parts(runs, wanted, events * every // mine if mine else every + 1)


def _parts(runs: Sequence["_Run"], wanted: Flags | None, events: int) -> Iterator[Rows]:
    edges = [run.places(_cuts(runs, events)) for run in runs]
    for ends in itertools.pairwise(zip(*edges, strict=True)):
        part = [run.between(first, end) for run, first, end in zip(runs, *ends, strict=True)]
        rows = _rows([run for run in part if len(run)] or part[:1], wanted)
        if len(rows.n):
            yield rows


def _cuts(runs: Sequence["_Run"], events: int) -> NDArray[Any]:
    """The group that begins each part: of those at which so few events have passed that no part becomes too large."""
    step = max(events // len(runs), 1)
    refs = np.unique(np.concatenate([run.refs_at(step) for run in runs]))
    before = np.sum([run.events_before(refs) for run in runs], axis=0)
    cuts: NDArray[Any] = refs[np.flatnonzero(np.diff(before // events, prepend=-1))]
    return cuts


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows by group, as they stand in a table.

    Attributes:
        numbers: columns with a number for each row.
        offsets: for each of ALIKE, where among the entries the list of each row begins, and the last one ends.
        entries: for each of ALIKE, what its columns list, of these rows and of others.
    """

    numbers: dict[str, NDArray[Any]]
    offsets: tuple[NDArray[Any], ...]
    entries: tuple[tuple[NDArray[Any], ...], ...]

    def __len__(self) -> int:
        return len(self.group_ref)

    @property
    def group_ref(self) -> NDArray[Any]:
        return self.numbers["group_ref"]

    @property
    def events(self) -> int:
        return int(self.offsets[EVENTS][-1] - self.offsets[EVENTS][0])

    def events_of(self, wanted: Flags) -> int:
        """How many events some groups have."""
        return int(np.diff(self.offsets[EVENTS])[wanted[self.group_ref]].sum())

    def refs_at(self, step: int) -> NDArray[Any]:
        """The first group, and the one that has each `step`th event."""
        if not len(self):
            return self.group_ref
        offsets = self.offsets[EVENTS]
        at = np.arange(int(offsets[0]), int(offsets[-1]), step).astype(offsets.dtype)
        return self.group_ref[np.concatenate(([0], np.searchsorted(offsets, at, side="right") - 1))]

    def events_before(self, refs: NDArray[Any]) -> Ints:
        """How many events groups have that come before each of these."""
        offsets = self.offsets[EVENTS]
        before: Ints = offsets[np.searchsorted(self.group_ref, refs)].astype(np.int64) - offsets[0]
        return before

    def places(self, cuts: NDArray[Any]) -> list[int]:
        """Where each of some groups begins, and the last one ends."""
        return [*np.searchsorted(self.group_ref, cuts).tolist(), len(self)]

    def between(self, first: int, end: int) -> "_Run":
        """The rows from one place to another."""
        numbers = {name: numbers[first:end] for name, numbers in self.numbers.items()}
        return _Run(numbers, tuple(offsets[first : end + 1] for offsets in self.offsets), self.entries)


def _runs(samples: pa.Table) -> list[_Run]:
    for name in itertools.chain(*ALIKE):
        if samples.column(name).null_count:
            raise ValueError(f"{name} is not written: only levels packed and trace can be replayed")
    runs = [run for batch in samples.to_batches() for run in _runs_of(batch)]
    if len(runs) > RUNS_MAX:
        in_order = samples.take(pa.array(_sorted_by(samples.column("group_ref").to_numpy())))
        runs = [run for batch in in_order.combine_chunks().to_batches() for run in _runs_of(batch)]
    return runs or [_run_of(pa.RecordBatch.from_pylist([], schema=samples.schema))]


def _runs_of(batch: pa.RecordBatch) -> Iterator[_Run]:
    refs = batch.column("group_ref").to_numpy()
    begins = (np.flatnonzero(refs[1:] < refs[:-1]) + 1).tolist()
    if len(begins) >= RUNS_MAX:
        batch, begins = batch.take(pa.array(_sorted_by(refs))), []
    whole = _run_of(batch)
    for first, end in itertools.pairwise([0, *begins, len(batch)]):
        yield whole.between(first, end)


def _run_of(batch: pa.RecordBatch) -> _Run:
    """The columns of a batch as they are."""
    offsets, entries = [], []
    for names in ALIKE:
        flat = [_flat(batch.column(name)) for name in names]
        offsets.append(flat[0][0])
        entries.append(tuple(its for _, its in flat))
        for name, (its, _) in zip(names, flat, strict=True):
            if not np.array_equal(its, offsets[-1]):
                raise ValueError(f"{name} and {names[0]} have different lengths")
    return _Run({name: batch.column(name).to_numpy() for name in NUMBERS}, tuple(offsets), tuple(entries))


def _flat(column: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where the list of each row begins, and the last one ends; and what they hold."""
    offsets = column.offsets.to_numpy()
    entries = column.values.slice(offsets[0], offsets[-1] - offsets[0]).to_numpy(zero_copy_only=False)
    return offsets - offsets[0] if offsets[0] else offsets, entries


def _rows(runs: Sequence[_Run], wanted: Flags | None) -> Rows:
    """Put the rows of runs together: groups apart, each in decision order."""
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
    begins = np.full(len(group_ref), NOWHERE)
    begins[order] = event_at
    waits, (thr_ms, applied_ms), lost_waits = _marked(runs, WAITS, begins, lengths)
    unchecked, _, lost_marks = _marked(runs, UNCHECKED, begins, lengths)
    checked = np.ones(len(values), np.bool_)
    checked[unchecked] = False
    return Rows(
        **{name: column[name] for name in INTEGERS if name != "sum"},
        total=column["sum"],
        count=counts,
        bound=bound,
        max_observed=max_observed,
        is_new_sample=_begins(column["group_ref"], column["sample_start_ms"]),
        misplaced=(lost_waits | lost_marks).take(order),
        event_at=event_at,
        row_of=row_of,
        ts_ms=column["sample_start_ms"].take(row_of, mode="clip") + dt_ms,
        value=values.astype(np.int64, copy=False),
        checked=checked,
        throttle_ms=_scattered(thr_ms, waits, len(values)),
        applied_ms=_scattered(applied_ms, waits, len(values)),
    )


def _numbers(runs: Sequence[_Run], name: str) -> Ints:
    numbers: Ints = np.concatenate([run.numbers[name] for run in runs], dtype=np.int64)
    return numbers


def _in_order(group_ref: Ints, first_seq: Ints) -> Ints:
    """Where the rows stand: groups apart, each in decision order; in files each group is in decision order as it is."""
    order = np.argsort(group_ref, kind="stable")  # of a few runs that ascend: they are merged
    ref, seq = group_ref.take(order), first_seq.take(order)
    return np.lexsort((first_seq, group_ref)) if ((seq[1:] < seq[:-1]) & (ref[1:] == ref[:-1])).any() else order


def _lengths(runs: Sequence[_Run], alike: int) -> Ints:
    """How many entries the lists of each row have."""
    lengths: Ints = np.concatenate([np.diff(run.offsets[alike]) for run in runs], dtype=np.int64)
    return lengths


def _entries(runs: Sequence[_Run], alike: int) -> list[NDArray[Any]]:
    """All that the lists hold, column by column."""
    cut = [(slice(run.offsets[alike][0], run.offsets[alike][-1]), run.entries[alike]) for run in runs]
    return [np.concatenate([entries[column][its] for its, entries in cut]) for column in range(len(ALIKE[alike]))]


def _marked(runs: Sequence[_Run], alike: int, begins: Ints, counts: Ints) -> tuple[Ints, list[NDArray[Any]], Flags]:
    """What lists say of events: positions among all events, the other columns beside them, and which rows point beyond their own.

    Args:
        begins: of each row as it stands in the runs, the first of its events, or `NOWHERE` where it is not wanted.
        counts: how many it has.
    """
    positions, *others = _entries(runs, alike)
    misplaced = np.zeros(len(counts), np.bool_)
    if not len(positions):
        return np.zeros(0, np.int64), others, misplaced
    lengths = _lengths(runs, alike)
    listed = np.flatnonzero(lengths)  # most lists are empty
    row = np.repeat(listed, lengths.take(listed))
    beyond = (positions < 0) | (positions >= counts.take(row, mode="clip"))
    misplaced[row[beyond]] = True
    places = begins.take(row, mode="clip")
    left_out = beyond | (places == NOWHERE)
    places += positions
    if left_out.any():
        return places[~left_out], [entries[~left_out] for entries in others], misplaced
    return places, others, misplaced


def _flags(groups: Ints, runs: Sequence[_Run]) -> Flags:
    """By number of a group: whether it is among some."""
    highest = max(int(run.group_ref.max(initial=0)) for run in runs)
    flags = np.zeros(max(highest, int(groups.max(initial=0))) + 1, np.bool_)
    flags[groups] = True
    return flags


def _sorted_by(group_ref: Ints) -> Ints:
    """A stable order of numbers from 0 to 2^31 - 1. Two bytes at a time are sorted by counting, whatever the number of groups."""
    low = np.argsort(group_ref.astype(np.uint16), kind="stable")
    high = (group_ref >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low


def _begins(group_ref: Ints, start_ms: Ints) -> Flags:
    if not len(group_ref):
        return np.zeros(0, np.bool_)
    changes = (group_ref[1:] != group_ref[:-1]) | (start_ms[1:] != start_ms[:-1])
    return np.concatenate(([True], changes))


def _scattered(values: NDArray[Any], places: Ints, events: int) -> Ints:
    out = np.full(events, NOT_LISTED, np.int64)
    out[places] = values
    return out
