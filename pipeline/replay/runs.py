"""Rows of packed samples as they stand in files, with nothing copied.

Within a file rows stand by group, but for a few that stand behind the others, and so do those that warm it up. So a table is a few runs of
ascending groups.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.replay.rows import INTEGERS, OF_WAITS, Flags, Ints

RUNS_MAX: Final = 16
"""Of one batch of a table, and of a table; what has more is put in order before it is cut."""
FLOATS: Final = ("bound", "max_observed")
NUMBERS: Final = (*INTEGERS, *OF_WAITS, *FLOATS)
ALIKE: Final = (("val", "dt_ms"), ("thr_pos", "thr_ms", "applied_ms"), ("unchecked_pos",))
"""List columns whose lists have the same lengths, row by row."""
EVENTS, WAITS, UNCHECKED = range(len(ALIKE))


@dataclass(frozen=True, slots=True)
class Run:
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

    def between(self, first: int, end: int) -> "Run":
        """The rows from one place to another."""
        numbers = {name: numbers[first:end] for name, numbers in self.numbers.items()}
        return Run(numbers, tuple(offsets[first : end + 1] for offsets in self.offsets), self.entries)


def runs_of(samples: pa.Table) -> list[Run]:
    """Return the rows of a table with the columns of SAMPLES, at level `packed`: a few runs of ascending groups, one of them at least.

    Raises:
        ValueError: a row has no lists, or lists of different lengths.
    """
    for name in itertools.chain(*ALIKE):
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
    """The columns of a batch as they are."""
    offsets, entries = [], []
    for names in ALIKE:
        flat = [_flat(batch.column(name)) for name in names]
        offsets.append(flat[0][0])
        entries.append(tuple(its for _, its in flat))
        for name, (its, _) in zip(names, flat, strict=True):
            if not np.array_equal(its, offsets[-1]):
                raise ValueError(f"{name} and {names[0]} have different lengths")
    return Run({name: batch.column(name).to_numpy() for name in NUMBERS}, tuple(offsets), tuple(entries))


def _flat(column: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where the list of each row begins, and the last one ends; and what they hold."""
    offsets = column.offsets.to_numpy()
    entries = column.values.slice(offsets[0], offsets[-1] - offsets[0]).to_numpy(zero_copy_only=False)
    return offsets - offsets[0] if offsets[0] else offsets, entries


def _sorted_by(group_ref: Ints) -> Ints:
    """A stable order of numbers from 0 to 2^31 - 1. Two bytes at a time are sorted by counting, whatever the number of groups."""
    low = np.argsort(group_ref.astype(np.uint16), kind="stable")
    high = (group_ref >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low
