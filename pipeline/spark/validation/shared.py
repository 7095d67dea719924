"""Compares runs that share usage in tasks of Spark, each a share of their groups. The driver gets figures, and no divergences."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import RunKey
from pipeline.spark.placement import packed, unpacked
from pipeline.spark.validation.judging import JUDGED, JUDGED_NAMES, ChunkRow, batch_of
from pipeline.spark.validation.whole_runs import LATER, Later, rows_of_later
from pipeline.validation.local import manifests_of
from pipeline.validation.rules.workers.group_histories import Share
from pipeline.validation.verdict import Verdict
from pipeline.validation.workers import SharedFigures, SharingRuns, add_figures, shares_of_events, sharing_runs

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


@contextlib.contextmanager
def judged_shared(
    spark: SparkSession, verdict: Verdict, directory: Path, runs: Mapping[RunKey, Sequence[FileSet]], shares: Mapping[RunKey, int]
) -> Iterator[DataFrame | None]:
    """Compare the runs that share usage, and add the figures to a verdict; yield a frame of JUDGED with the divergences.

    Args:
        spark: the session.
        verdict: the verdict.
        directory: the metering directory.
        runs: the file sets of each run.
        shares: number of shares of each run's groups.
    """
    all_together = _all_together(manifests_of(runs), shares)
    if not all_together:
        yield None
        return
    tasks = [(at, number) for at, one in enumerate(all_together) for number in range(one.shares)]
    compare = _comparing(str(directory.resolve()), list(map(packed, all_together)), tasks)
    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(compare, _ROWS).persist()
    try:
        figures = rows.where("figures IS NOT NULL").select("position", "figures").orderBy("position").collect()
        found = [msgspec.json.decode(row["figures"], type=Compared) for row in figures]
        add_figures(verdict, [(one.name, one.figures) for one in found])
        yield rows.where("figures IS NULL").select(*JUDGED_NAMES)
    finally:
        rows.unpersist()


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
            rows, figures = _compared(directory, unpacked(all_together[at], Together), number)
            for columns, its in ((batch_of(rows), None), (batch_of([ChunkRow("", "", 0, task, b"")]), msgspec.json.encode(figures))):
                yield columns.append_column("figures", pa.array([its] * len(columns), pa.binary()))

    return compare


def _compared(directory: str, together: Together, number: int) -> tuple[list[ChunkRow], Compared]:
    """Compare the runs in a share of their groups; return rows of JUDGED, and the figures."""
    runs = runs_of(Path(directory), together.manifests)
    judged = SharingRuns(together.name, runs).judge(Share(number, together.shares))
    shares = dict(together.shares_of_runs)
    rows = [
        row
        for key, findings in judged.findings.items()
        for row in rows_of_later(key, Later(findings, judged.names.get(key, {})), shares[key], LATER + 1)
    ]
    return rows, Compared(together.name, judged.figures)
