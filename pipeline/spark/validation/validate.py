"""The validator on Spark with each file set in one task. There is no shuffle, so one hot group costs no more than many cold ones.

Each task reads its own file set, and as much of earlier ones as its warm-up needs. It returns a verdict, never rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from metering_format.manifest import Manifest
from metering_format.places import CONTINUED, SHARED
from pipeline.errors import IncompleteError
from pipeline.file_set import FileSet
from pipeline.file_sets import checked_runs
from pipeline.manifest import RunKey, check_held, damaged, found_manifests
from pipeline.memory import keep_memory
from pipeline.removed import removed_runs
from pipeline.session_settings import SessionSettings
from pipeline.spark.parallelism import parallelism_of
from pipeline.spark.placement import packed, unpacked, work_in_tasks
from pipeline.spark.remote import judge_at, removed_at, runs_at
from pipeline.spark.validation.sql_form import cross_check
from pipeline.spark.worker import settle
from pipeline.storage.paths import path_of_messages
from pipeline.validation.file_set_verdict import FileSetVerdict, judge_file_set
from pipeline.validation.local import manifest_hashes
from pipeline.validation.verdict import Verdict, merge
from pipeline.validation.warm_up import Work, warm_up_span_ms, work_of
from pipeline.validation.workers import add_shared
from sluice.object_store import is_url

TASKS_PER_CORE: Final = 2
FILE_SETS_MAX: Final = 4
"""Highest number of file sets of one task."""

VERDICTS: Final = "position int, verdict binary"

Works = Mapping[int, Work]
"""The file sets of each task: the one to judge last, after the earlier ones of its run that can affect it."""


def validate(place: str, settings: SessionSettings, *, every_byte: bool = False, in_sql: bool = False) -> Verdict:
    """Judge every file set of a metering directory on Spark.

    Args:
        place: local path, or URL of a file system that Hadoop supports.
        settings: how Spark starts.
        every_byte: first compare the SHA-256 of every file, so that the manifests' hashes stand for the judged content.
        in_sql: also recompute the throttle times in SQL; this requires complete runs.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged, or Spark does not start.
    """
    from pipeline.spark.session import session

    if is_url(place):
        with session(settings) as spark:
            return validate_remote(spark, place, every_byte=every_byte)
    directory = Path(place.removeprefix("file://"))
    runs = checked_runs(directory, every_byte=every_byte)
    with session(settings) as spark:
        verdict = validate_runs(spark, directory, runs)
        if in_sql and not verdict.incomplete and not verdict.removed:
            whole = [one for file_sets in runs.values() for one in file_sets if CONTINUED not in one.manifest.settings]
            verdict.cross_check = cross_check(spark, directory, whole)
        return verdict


def validate_runs(spark: Any, directory: Path, runs: dict[RunKey, list[FileSet]]) -> Verdict:
    """Judge file sets that every machine of the session can read under the same path."""
    works = works_of(runs)
    judged = _judged(runs, works, judge_file_sets(spark, directory, works))
    verdict = merge(judged, manifest_hashes(found_manifests(directory), runs), removed_runs(directory))
    add_shared(verdict, runs)
    return verdict


def judge_file_sets(spark: Any, directory: Path, works: Works) -> dict[int, bytes]:
    """Return the encoded verdict of each file set. The largest file sets come first, to balance the load.

    A worker waits for the driver between two tasks, a tenth of the time of a small file set. A task therefore gets several file sets when
    there are many more than cores. It gets at most a few, since the cluster may still grow.
    """
    in_order = sorted(works.items(), key=lambda work: sum(entry.bytes for entry in work[1][-1].files), reverse=True)
    count = tasks_for(len(in_order), parallelism_of(spark))
    shares = [packed(in_order[task::count]) for task in range(count)]
    rows = work_in_tasks(spark, shares, _judging(str(directory.resolve())), VERDICTS).collect()
    return {row["position"]: bytes(row["verdict"]) for row in rows}


def decoded(works: Works, verdicts: Mapping[int, bytes]) -> list[tuple[Manifest, FileSetVerdict]]:
    """Return the verdict of each file set that was judged.

    Raises:
        IncompleteError: none of its files arrived.
    """
    return [(work[-1], _verdict_of(position, work[-1], verdicts)) for position, work in works.items()]


def tasks_for(file_sets: int, cores: int) -> int:
    """Return the number of tasks for `file_sets` file sets: a multiple of `cores`, at least two per core, so that cores end together."""
    count = max(TASKS_PER_CORE * cores, -(-file_sets // FILE_SETS_MAX))
    return max(1, min(file_sets, -(-count // cores) * cores))


def validate_remote(spark: Any, place: str, *, every_byte: bool = False) -> Verdict:
    """Judge file sets on any file system that Hadoop supports. With `every_byte`, each task first compares its files with their manifest.

    Raises:
        BadInputError, IncompleteError: as for `validate`.
    """
    root, runs, hashes = runs_at(spark, place)
    works = works_of(runs)

    def judge(work: Work, files: Mapping[str, bytes]) -> bytes:
        if every_byte:
            check_held(path_of_messages(place), work[-1], files)
        return judge_held(place, work, files)

    verdict = merge(_judged(runs, works, judge_at(spark, root, works, judge)), hashes, removed_at(spark, place))
    if any(SHARED in one.manifest.settings for file_sets in runs.values() for one in file_sets):
        verdict.incomplete.append("what workers recorded of each other's usage was not compared: that takes local files")
    if not (verdict.holds or every_byte):
        blamed = [file_set.manifest for key, file_sets in runs.items() if verdict.concerns(key) for file_set in file_sets]
        check_undamaged_at(spark, place, root, blamed)
    return verdict


def check_undamaged_at(spark: Any, place: str, root: str, blamed: Sequence[Manifest]) -> None:
    """Compare the files of file sets that diverge with their manifests, so that damage is not reported as an error of the proxy.

    Raises:
        IncompleteError: a file differs from its manifest.
    """
    manifests = {number: (manifest,) for number, manifest in enumerate(blamed)}

    def compare(work: Work, files: Mapping[str, bytes]) -> bytes:
        try:
            check_held(path_of_messages(place), work[0], files)
        except IncompleteError as error:
            return str(error).encode()
        return b""

    problems = [text.decode() for _, text in sorted(judge_at(spark, root, manifests, compare).items()) if text]
    if problems:
        raise damaged(problems[0], len(problems))


def works_of(runs: Mapping[RunKey, Sequence[FileSet]]) -> dict[int, Work]:
    """Number the file sets of all runs, and return the manifests that each needs."""
    works: list[Work] = []
    for file_sets in runs.values():
        run = [file_set.manifest for file_set in file_sets]
        span_ms = max(map(warm_up_span_ms, run), default=0)
        works += (work_of(run, at, span_ms) for at in range(len(run)))
    return dict(enumerate(works))


def _judging(directory: str) -> Callable[[Iterable[bytes]], Iterator[pa.RecordBatch]]:
    def judge_shares(shares: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        keep_memory()
        for position, manifests in (work for share in shares for work in unpacked(share, list[tuple[int, Work]])):
            verdict = _judge([FileSet(Path(directory), manifest) for manifest in manifests])
            yield pa.RecordBatch.from_pydict({"position": pa.array([position], pa.int32()), "verdict": pa.array([verdict], pa.binary())})
        settle()

    return judge_shares


def judge_held(place: str, work: Sequence[Manifest], files: Mapping[str, bytes]) -> bytes:
    """Return the encoded verdict of a file set whose files Spark has read; `place` is used in messages."""
    shown = path_of_messages(place)
    return _judge([FileSet(shown, manifest, files) for manifest in work])


def _judge(file_sets: Sequence[FileSet]) -> bytes:
    *before, file_set = file_sets
    return msgspec.json.encode(judge_file_set(file_set, before))


def _judged(
    runs: Mapping[RunKey, Sequence[FileSet]], works: Works, verdicts: Mapping[int, bytes]
) -> dict[RunKey, list[tuple[Manifest, FileSetVerdict]]]:
    judged: dict[RunKey, list[tuple[Manifest, FileSetVerdict]]] = {}
    for position, manifests in works.items():
        manifest = manifests[-1]
        judged.setdefault((manifest.proxy_id, manifest.run_id), []).append((manifest, _verdict_of(position, manifest, verdicts)))
    return {key: judged[key] for key in runs}


def _verdict_of(position: int, manifest: Manifest, verdicts: Mapping[int, bytes]) -> FileSetVerdict:
    if position not in verdicts:
        raise IncompleteError(
            f"{manifest.file_set}: none of its files arrived; run `sluice meter verify-manifests` on the source directory"
        )
    return msgspec.json.decode(verdicts[position], type=FileSetVerdict)
