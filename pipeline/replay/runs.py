"""Rows of packed samples in the order of the files, without copies.

A file is sorted by group, except for a few rows at its end. The rows of its warm-up are sorted in the same way. A table is therefore a few
runs of ascending groups.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.duplicate_columns import DUPLICATE_COLUMNS
from pipeline.replay.rows import INTEGERS, LEAD, OF_WAITS, Flags, Ints

RUNS_MAX: Final = 16
"""Highest number of runs of one batch, and of a table. A batch or table with more is sorted first."""
FLOATS: Final = ("bound", "max_observed")
NUMBERS: Final = (*INTEGERS, *OF_WAITS, *FLOATS)
NOT_PACED: Final = -1
"""In place of the lead of a row whose group has no schedule."""
ALIKE: Final = (("val", "dt_ms"), ("thr_pos", "thr_ms", "applied_ms"), ("unchecked_pos",), ("remote_pos",))
"""List columns that have lists of the same length in each row. The last ones may be absent, or null: no process shares usage."""
EVENTS, WAITS, UNCHECKED, REMOTE = range(len(ALIKE))


@dataclass(frozen=True, slots=True)
class Run:
    """Rows with ascending groups, in the order of a table.

    Attributes:
        numbers: columns with one number per row. A column that the file has twice is one object.
        offsets: for each tuple of ALIKE, the start of each row's list in `entries`, and the end of the last list.
        entries: for each tuple of ALIKE, the list elements of its columns; other rows' elements are included. Applied
            throttle times that equal the decided ones are the same object.
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
        """Return the number of events of the wanted groups; `wanted` is indexed by group number."""
        return int(np.diff(self.offsets[EVENTS])[wanted[self.group_ref]].sum())

    def refs_at(self, step: int) -> NDArray[Any]:
        """Return the first group, and the group of each `step`th event."""
        if not len(self):
            return self.group_ref
        offsets = self.offsets[EVENTS]
        at = np.arange(int(offsets[0]), int(offsets[-1]), step).astype(offsets.dtype)
        return self.group_ref[np.concatenate(([0], np.searchsorted(offsets, at, side="right") - 1))]

    def events_before(self, refs: NDArray[Any]) -> Ints:
        """Return, for each group of `refs`, the number of events of the groups before it."""
        offsets = self.offsets[EVENTS]
        before: Ints = offsets[np.searchsorted(self.group_ref, refs)].astype(np.int64) - offsets[0]
        return before

    def places(self, cuts: NDArray[Any]) -> list[int]:
        """Return the first row of each group of `cuts`, and the number of rows."""
        return [*np.searchsorted(self.group_ref, cuts).tolist(), len(self)]

    def between(self, first: int, end: int) -> "Run":
        """Return the rows from `first` up to, and without, `end`."""
        cut = {id(column): column[first:end] for column in self.numbers.values()}
        return Run(
            {name: cut[id(column)] for name, column in self.numbers.items()},
            tuple(offsets[first : end + 1] for offsets in self.offsets),
            self.entries,
        )


def runs_of(samples: pa.Table) -> list[Run]:
    """Return the rows of a table with the columns of SAMPLES, at level `packed`, as one or a few runs of ascending groups.

    Raises:
        ValueError: a row has no lists, or lists of different lengths.
    """
    for name in itertools.chain(*ALIKE[:REMOTE]):
        if samples.column(name).null_count:
            raise ValueError(f"{name} is not written: only levels packed and trace can be replayed")
    runs = [run for batch in samples.to_batches() for run in _runs_of(batch)]
    if len(runs) > RUNS_MAX:
        in_order = samples.take(pa.array(_sorted_by(samples.column("group_ref").to_numpy())))
        runs = [run for batch in in_order.combine_chunks().to_batches() for run in _runs_of(batch)]
    return runs or [_run_of(pa.RecordBatch.from_pylist([], schema=samples.schema))]


def _runs_of(batch: pa.RecordBatch) -> Iterator[Run]:
    refs = batch.column("group_ref").to_numpy()
    begins = (np.flatnonzero(refs[1:] < refs[:-1]) + 1).tolist()
    if len(begins) >= RUNS_MAX:
        batch, begins = batch.take(pa.array(_sorted_by(refs))), []
    whole = _run_of(batch)
    for first, end in itertools.pairwise([0, *begins, len(batch)]):
        yield whole.between(first, end)


def _run_of(batch: pa.RecordBatch) -> Run:
    """Return the columns of a batch without a copy."""
    offsets: list[NDArray[Any]] = []
    entries: list[tuple[NDArray[Any], ...]] = []
    for names in ALIKE if ALIKE[REMOTE][0] in batch.schema.names else ALIKE[:REMOTE]:
        flat = [_flat(batch.column(name)) for name in names]
        offsets.append(flat[0][0])
        entries.append(tuple(its for _, its in flat))
        for name, (its, _) in zip(names, flat, strict=True):
            if not np.array_equal(its, offsets[-1]):
                raise ValueError(f"{name} and {names[0]} have different lengths")
    at, waits_ms, applied_ms = entries[WAITS]
    if _is_one(waits_ms, applied_ms) or np.array_equal(waits_ms, applied_ms):
        entries[WAITS] = at, waits_ms, waits_ms
    numbers = {name: batch.column(name).to_numpy() for name in NUMBERS}
    for name, other in DUPLICATE_COLUMNS.items():
        if name in numbers and _is_one(numbers[name], numbers[other]):
            numbers[name] = numbers[other]
    if LEAD in batch.schema.names:
        numbers[LEAD] = batch.column(LEAD).fill_null(NOT_PACED).to_numpy()
    return Run(numbers, tuple(offsets), tuple(entries))


def _is_one(column: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return True when two columns are the same memory, since the file has one twice."""
    return (len(column), column.__array_interface__["data"]) == (len(other), other.__array_interface__["data"])


def _flat(column: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the start of each row's list and the end of the last one, and the list elements."""
    offsets = column.offsets.to_numpy()
    entries = column.values.slice(offsets[0], offsets[-1] - offsets[0]).to_numpy(zero_copy_only=False)
    return offsets - offsets[0] if offsets[0] else offsets, entries


def _sorted_by(group_ref: Ints) -> Ints:
    """Return a stable sort order of numbers from 0 to 2^31 - 1. Two passes of a radix sort over 16 bits replace comparisons."""
    low = np.argsort(group_ref.astype(np.uint16), kind="stable")
    high = (group_ref >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low
