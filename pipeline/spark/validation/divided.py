"""Divides the files of runs that share usage among tasks that compare a share of the groups each, at a URL of any file system of Hadoop.

A file passes the shuffle once, to a task that divides it, and its pieces once more. As whole files they would pass once for each share.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet
from pipeline.manifest import by_run, with_files
from pipeline.parquet.small_files import SmallFiles
from pipeline.spark.placement import in_tasks, packed, unpacked
from pipeline.spark.remote import HELD, OF_WORK, DoRows, held_of, results_at, rows_at
from pipeline.storage.held import held_directory
from pipeline.storage.paths import StorePath
from pipeline.validation.rules.workers.pieces import moved_groups, pieces_of


class RunsToDivide(NamedTuple):
    """Runs that are compared with each other.

    Attributes:
        manifests: of all their file sets, with the files that the comparison reads.
        first_task: the task of the first share; those of the others follow.
        shares: number of shares of the groups.
    """

    manifests: Sequence[Manifest]
    first_task: int
    shares: int


class _ToDivide(msgspec.Struct, frozen=True):
    """A file set that a task divides.

    Attributes:
        manifest, first_task, shares: as in `RunsToDivide`.
        moved: the groups whose share does not follow from this file set, and their shares.
    """

    manifest: Manifest
    first_task: int
    shares: int
    moved: dict[int, int]


def pieces_at(spark: Any, root: str, place: str, runs: Sequence[RunsToDivide]) -> DataFrame:
    """Return a frame of HELD: for each task, the pieces of all file sets for its share of the groups.

    Args:
        spark: a session of `session_of_files`.
        root: the directory, as `runs_at` returns it.
        place: the directory for messages.
        runs: what is divided. Runs of one element are compared with each other.

    Raises:
        IncompleteError, BadInputError: a file is missing or cannot be used. A task may raise it.
    """
    its = [(own, first, shares) for manifests, first, shares in runs for own in by_run(manifests).values()]
    moved = _moved_at(spark, root, place, {at: (own, shares) for at, (own, _, shares) in enumerate(its) if _may_move(own)})
    parts: list[_ToDivide] = []
    for at, (own, first, shares) in enumerate(its):
        of_run: list[dict[int, int]] = moved.get(at, [{}] * len(own))
        parts += [_ToDivide(manifest, first, shares, groups) for manifest, groups in zip(own, of_run, strict=True)]

    def divide(_: int, work: bytes, files: Mapping[str, bytes]) -> Iterator[pa.RecordBatch]:
        part = unpacked(work, _ToDivide)
        file_set = FileSet(StorePath(held_directory(place, files)), part.manifest, None, SmallFiles())
        for piece in pieces_of(file_set, part.shares, part.moved):
            columns = ([part.first_task + piece.share], pa.int32()), ([piece.path], pa.string()), ([piece.content], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], names=["position", "path", "content"])

    works = {at: packed(part) for at, part in enumerate(parts)}
    found: DataFrame = rows_at(spark, root, {at: [part.manifest] for at, part in enumerate(parts)}, works, divide, HELD)
    return found


def rows_of_tasks(spark: Any, pieces: DataFrame, works: Sequence[bytes], do: DoRows, schema: str) -> DataFrame:
    """Return a frame of what `do` returns for each task.

    Args:
        spark: the session.
        pieces: as `pieces_at` returns them.
        works: of each task.
        do: runs in the tasks; gets the pieces by their path.
        schema: of its rows.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = held_of(batches)
        yield from do(0, held.pop(OF_WORK), held)

    held = pieces.union(spark.createDataFrame([(task, OF_WORK, its) for task, its in enumerate(works)], HELD))
    return in_tasks(held, len(works), "position").mapInArrow(work, schema)


def _may_move(manifests: Sequence[Manifest]) -> bool:
    """Whether a group of a run may have several identities: the node id of its broker may become known in a later file set."""
    return len(manifests) > 1 and manifests[0].names != "none" and any(_of_groups(one).files for one in manifests)


def _of_groups(manifest: Manifest) -> Manifest:
    return with_files(manifest, [entry for entry in manifest.files if entry.table == "dim_group"])


def _moved_at(spark: Any, root: str, place: str, runs: Mapping[int, tuple[Sequence[Manifest], int]]) -> dict[int, list[dict[int, int]]]:
    """Return the result of `moved_groups` for some runs, of which each has a number of shares."""
    described = {at: tuple(map(_of_groups, manifests)) for at, (manifests, _) in runs.items()}

    def find(work: bytes, files: Mapping[str, bytes]) -> bytes:
        manifests, shares = unpacked(work, tuple[tuple[Manifest, ...], int])
        directory, small_files = StorePath(held_directory(place, files)), SmallFiles()
        return packed(moved_groups((FileSet(directory, one, None, small_files) for one in manifests), shares))

    works = {at: packed((described[at], shares)) for at, (_, shares) in runs.items()}
    found = results_at(spark, root, described, find, works)
    return {at: unpacked(result, list[dict[int, int]]) for at, result in found.items()}
