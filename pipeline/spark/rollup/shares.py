"""How a roll-up is divided among tasks: file sets to read, and quota groups and clients of a day to add up."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.rollup.inputs import Input

PART_ROWS_MAX: Final = 1_000_000
"""Most decisions and usage rows that a task reads, unless one file set has more."""
SHARE_ROWS_MAX: Final = 8_000_000
"""Most decisions and usage rows of a day that a task adds up, if groups and clients have equally many."""
SHARE_ROWS_MIN: Final = 250_000
"""A smaller share takes longer to start than to add up."""

FILES_AT_ONCE_MAX: Final = 64
"""Most tasks of a job that writes."""

Numbers = NDArray[np.int64]
File = tuple[str, str]
"""Table and partition: "usage_hour", "date=2026-11-21/hour=07"."""
Spread = Callable[[Sequence[File]], dict[File, int]]


@dataclass(frozen=True, slots=True)
class Shares:
    """The tasks that add up, numbered over all days.

    Attributes:
        first: number of the first task of each day.
        count: number of tasks of each day.
    """

    first: Mapping[str, int]
    count: Mapping[str, int]

    @property
    def total(self) -> int:
        """Return the number of tasks."""
        return sum(self.count.values())

    def of(self, date: str, keys: Numbers) -> Numbers:
        """Return the task of each key; equal keys of a day have the same task."""
        return self.first[date] + keys % self.count[date]


def shares_of(inputs: Iterable[Input], parallelism: int) -> Shares:
    """Divide the days of some file sets among tasks. `parallelism` is the number of tasks that can run at a time."""
    rows: dict[str, int] = {}
    for item in inputs:
        rows[item.hour[0]] = rows.get(item.hour[0], 0) + rows_of(item)
    count = {
        date: max(-(-number // SHARE_ROWS_MAX), min(parallelism, -(-number // SHARE_ROWS_MIN)), 1) for date, number in sorted(rows.items())
    }
    first = dict(zip(count, np.cumsum([0, *count.values()]).tolist(), strict=False))
    return Shares(first, count)


def parts_of(inputs: Iterable[Input]) -> list[tuple[Input, ...]]:
    """Return the file sets that each task reads. All file sets of a task are of the same hour."""
    parts: list[list[Input]] = []
    held = 0
    for item in sorted(inputs, key=lambda item: item.hour):
        held += rows_of(item)
        if parts and parts[-1][0].hour == item.hour and held <= PART_ROWS_MAX:
            parts[-1].append(item)
        else:
            parts.append([item])
            held = rows_of(item)
    return [tuple(part) for part in parts]


def rows_of(item: Input) -> int:
    """Return the number of decisions and usage rows of a file set, by its manifest."""
    return item.manifest.last_seq - item.manifest.first_seq + 1 + item.rows("usage")


def divided(rows: pa.Table, shares: NDArray[Any]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each share."""
    order = np.argsort(shares, kind="stable")
    ordered = shares[order]
    edges = np.flatnonzero(np.diff(ordered, prepend=-1, append=-1))
    taken = rows.take(order)
    for begin, end in itertools.pairwise(edges.tolist()):
        yield int(ordered[begin]), taken.slice(begin, end - begin)


def tasks_here() -> int:
    """Return the number of tasks that may run on this machine at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(files: Sequence[File]) -> dict[File, int]:
    """Return the task that writes each file, if one job writes all tables."""
    return {file: number % FILES_AT_ONCE_MAX for number, file in enumerate(files)}


def spread_by_table(files: Sequence[File]) -> dict[File, int]:
    """Return the task that writes each file, if each table has a job of its own."""
    found: dict[File, int] = {}
    count: dict[str, int] = {}
    for file in files:
        number = count.get(file[0], 0)
        found[file], count[file[0]] = number % FILES_AT_ONCE_MAX, number + 1
    return found
