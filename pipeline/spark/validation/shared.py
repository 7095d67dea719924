"""Compares runs that share usage in tasks of Spark, each a share of their groups. The driver gets figures, and no divergences."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import RunKey, with_files, with_tables
from pipeline.spark.placement import packed, unpacked
from pipeline.spark.remote import DoRows, rows_at
from pipeline.spark.validation.divided import RunsToDivide, pieces_at, rows_of_tasks
from pipeline.spark.validation.judging import JUDGED, JUDGED_NAMES, ChunkRow, batch_of
from pipeline.spark.validation.whole_runs import LATER, Later, rows_of_later
from pipeline.storage.held import held_directory
from pipeline.storage.paths import AnyPath, StorePath
from pipeline.validation.local import manifests_of
from pipeline.validation.rules.workers.group_shares import Share
from pipeline.validation.verdict import Verdict
from pipeline.validation.workers import SharedFigures, SharingRuns, add_figures, shares_of_events, sharing_runs, tables_compared

_ROWS: Final = f"{JUDGED}, figures binary"


class Together(msgspec.Struct, frozen=True):
    """Runs that are compared with each other.

    Attributes:
        name: name of their segment or fleet.
        manifests: of all their file sets.
        shares: number of shares of their groups that tasks compare.
        shares_of_runs: number of shares of each run's groups in rows of JUDGED.
    """

    name: str
    manifests: list[Manifest]
    shares: int
    shares_of_runs: list[tuple[RunKey, int]]


class Compared(msgspec.Struct, frozen=True):
    """The figures of a share of the groups of runs that are compared with each other."""

    name: str
    figures: SharedFigures


def judged_shared(
    spark: SparkSession, verdict: Verdict, directory: Path, runs: Mapping[RunKey, Sequence[FileSet]], shares: Mapping[RunKey, int]
) -> contextlib.AbstractContextManager[DataFrame | None]:
    """Compare the runs that share usage, and add the figures to a verdict; the block gets a frame of JUDGED with the divergences.

    Args:
        spark: the session.
        verdict: the verdict.
        directory: the metering directory.
        runs: the file sets of each run.
        shares: number of shares of each run's groups.
    """
    all_together = _all_together(manifests_of(runs), shares)
    tasks = _tasks_of(all_together)
    compare = _comparing(str(directory.resolve()), list(map(packed, all_together)), tasks)
    return _added(verdict, spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(compare, _ROWS) if tasks else None)


def judged_shared_at(
    spark: Any, verdict: Verdict, root: str, place: str, runs: Mapping[RunKey, Sequence[FileSet]], shares: Mapping[RunKey, int]
) -> contextlib.AbstractContextManager[DataFrame | None]:
    """Do the same for a directory on any file system that Hadoop supports.

    Args:
        spark: a session of `session_of_files`.
        verdict, runs, shares: as for `judged_shared`.
        root: the directory, as `runs_at` returns it.
        place: the directory for messages.
    """

    all_together = list(map(_read, _all_together(manifests_of(runs), shares)))
    tasks = _tasks_of(all_together)
    works = [packed((task, all_together[at], number)) for task, (at, number) in enumerate(tasks)]
    compare, frames = _comparing_held(place), []
    whole = {task: all_together[at].manifests for task, (at, _) in enumerate(tasks) if all_together[at].shares == 1}
    if whole:
        frames.append(rows_at(spark, root, whole, {task: works[task] for task in whole}, compare, _ROWS))
    in_shares = [task for task in range(len(tasks)) if task not in whole]
    if in_shares:
        begins = [(first, all_together[tasks[task][0]]) for first, task in enumerate(in_shares) if tasks[task][1] == 0]
        pieces = pieces_at(spark, root, place, [RunsToDivide(one.manifests, first, one.shares) for first, one in begins])
        frames.append(rows_of_tasks(spark, pieces, [works[task] for task in in_shares], compare, _ROWS))
    return _added(verdict, functools.reduce(DataFrame.union, frames) if frames else None)


def _read(together: Together) -> Together:
    """Return the same runs with those of their files that the comparison reads."""
    manifests = [with_tables(one, tables_compared(together.name, one)) for one in together.manifests]
    return msgspec.structs.replace(together, manifests=manifests)


def _comparing_held(place: str) -> DoRows:
    """Return a function that compares the runs of a task in a share of their groups. A file of which it has nothing has no rows there."""

    def compare(_: int, work: bytes, files: Mapping[str, bytes]) -> Iterator[pa.RecordBatch]:
        task, together, number = unpacked(work, tuple[int, Together, int])
        manifests = [with_files(one, [entry for entry in one.files if entry.path in files]) for one in together.manifests]
        directory = StorePath(held_directory(place, files))
        yield from _batches_of(task, *_compared(directory, msgspec.structs.replace(together, manifests=manifests), number))

    return compare


@contextlib.contextmanager
def _added(verdict: Verdict, rows: DataFrame | None) -> Iterator[DataFrame | None]:
    """Add the figures of a frame of _ROWS to a verdict; yield its divergences."""
    if rows is None:
        yield None
        return
    rows = rows.persist()
    try:
        figures = rows.where("figures IS NOT NULL").select("position", "figures").orderBy("position").collect()
        found = [msgspec.json.decode(row["figures"], type=Compared) for row in figures]
        add_figures(verdict, [(one.name, one.figures) for one in found])
        yield rows.where("figures IS NULL").select(*JUDGED_NAMES)
    finally:
        rows.unpersist()


def _tasks_of(all_together: Sequence[Together]) -> list[tuple[int, int]]:
    """Return, for each task, the position of its runs and the number of the share of their groups."""
    return [(at, number) for at, one in enumerate(all_together) for number in range(one.shares)]


def _all_together(runs: Mapping[RunKey, Sequence[Manifest]], shares: Mapping[RunKey, int]) -> list[Together]:
    return [
        Together(
            name,
            [manifest for key in keys for manifest in runs[key]],
            shares_of_events(runs[key] for key in keys),
            [(key, shares[key]) for key in keys],
        )
        for name, keys in sharing_runs(runs).items()
    ]


def _comparing(
    directory: str, all_together: Sequence[bytes], tasks: Sequence[tuple[int, int]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in (task for batch in batches for task in batch.column(0).to_pylist()):
            at, number = tasks[task]
            yield from _batches_of(task, *_compared(Path(directory), unpacked(all_together[at], Together), number))

    return compare


def _batches_of(task: int, rows: Sequence[ChunkRow], figures: Compared) -> Iterator[pa.RecordBatch]:
    """Yield rows of _ROWS: the divergences, and the figures."""
    for columns, its in ((batch_of(rows), None), (batch_of([ChunkRow("", "", 0, task, b"")]), msgspec.json.encode(figures))):
        yield columns.append_column("figures", pa.array([its] * len(columns), pa.binary()))


def _compared(directory: AnyPath, together: Together, number: int) -> tuple[list[ChunkRow], Compared]:
    """Compare the runs in a share of their groups; return rows of JUDGED, and the figures."""
    runs = runs_of(directory, together.manifests)
    judged = SharingRuns(together.name, runs).judge(Share(number, together.shares))
    shares = dict(together.shares_of_runs)
    rows = [
        row
        for key, findings in judged.findings.items()
        for row in rows_of_later(key, Later(findings, judged.names.get(key, {})), shares[key], LATER + 1)
    ]
    return rows, Compared(together.name, judged.figures)
