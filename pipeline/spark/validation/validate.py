"""The validator on Spark: file sets are judged in tasks, then whole runs, each share of their groups in a task.

What comes to the driver does not grow with the groups: sums of each run, and the divergences that it prints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipeline.file_set import FileSet
from pipeline.file_sets import runs_checked
from pipeline.manifest import RunKey, check_held, found_manifests
from pipeline.removed import removed_runs
from pipeline.replay.findings import Findings
from pipeline.session_settings import SessionSettings
from pipeline.spark.parallelism import parallelism_of
from pipeline.spark.remote import removed_at, runs_at, session_of_files
from pipeline.spark.validation.judging import JUDGED, Chunk, chunks_of, judged_chunks, judged_chunks_at, shares_of_runs
from pipeline.spark.validation.manifests import check_undamaged_at
from pipeline.spark.validation.shared import judged_shared, judged_shared_at
from pipeline.spark.validation.whole_runs import LATER, Later, UseDivergences, add_whole_runs, rows_of_later
from pipeline.validation.local import manifest_hashes, manifests_of
from pipeline.validation.verdict import Verdict, add_completeness
from sluice.object_store import is_url

MAX_VIOLATIONS: Final = 50


def _unused(_divergences: Any, _number: int) -> None:
    """Leave the frame of all divergences unused."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call asks for.

    Attributes:
        max_violations: number of groups whose first divergence comes to the driver.
        use: gets the frame of the first divergences of all groups.
        more: what other checks found, by run.
        every_byte: first compare the SHA-256 of every file, so that the manifests' hashes stand for the judged content.
    """

    max_violations: int = MAX_VIOLATIONS
    use: UseDivergences = _unused
    more: Mapping[RunKey, Findings] = field(default_factory=dict)
    every_byte: bool = False


class LocalRuns(NamedTuple):
    """The file sets of a directory that every machine of the session can read under the same path.

    Attributes:
        runs: by (proxy_id, run_id).
        hashes: SHA-256 of each manifest, by its path below the directory.
    """

    directory: Path
    runs: dict[RunKey, list[FileSet]]
    hashes: dict[str, str]


def validate(place: str, settings: SessionSettings, wanted: Wanted) -> Verdict:
    """Judge every file set of a metering directory on Spark.

    Args:
        place: local path, or URL of a file system that Hadoop supports.
        settings: how Spark starts.
        wanted: what is judged, and what is done with the divergences.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged, or Spark does not start.
    """
    from pipeline.spark.session import session

    if is_url(place):
        with session(settings) as spark:
            return validate_remote(spark, place, wanted)
    found = local_runs(place, every_byte=wanted.every_byte)
    with session(settings) as spark:
        return validate_runs(spark, found, wanted)


def local_runs(place: str | Path, *, every_byte: bool = False) -> LocalRuns:
    """Read the manifests of a local directory, and check that their files are there; with `every_byte`, also what is in them.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged.
    """
    directory = Path(str(place).removeprefix("file://"))
    found = found_manifests(directory)
    runs = runs_checked(directory, found, every_byte=every_byte)
    return LocalRuns(directory, runs, manifest_hashes(found, runs))


def validate_runs(spark: Any, found: LocalRuns, wanted: Wanted = Wanted()) -> Verdict:
    """Judge file sets that every machine of the session can read under the same path."""
    directory, runs, hashes = found
    chunks = chunks_of(runs, parallelism_of(spark))
    verdict = Verdict(manifests=hashes)
    add_completeness(verdict, manifests_of(runs), removed_runs(directory))
    with judged_shared(spark, verdict, directory, runs, shares_of_runs(chunks)) as shared:
        _add_runs(spark, verdict, judged_chunks(spark, directory, chunks), shared, chunks, wanted)
    return verdict


def _add_runs(spark: Any, verdict: Verdict, judged: Any, shared: Any, chunks: Sequence[Chunk], wanted: Wanted) -> None:
    if shared is not None:
        judged = judged.union(shared)
    shares = shares_of_runs(chunks)
    found = ((key, Later(findings, {})) for key, findings in wanted.more.items() if key in shares)
    more = [row for key, later in found for row in rows_of_later(key, later, shares[key], LATER)]
    if more:
        judged = judged.union(spark.createDataFrame(more, JUDGED))
    add_whole_runs(verdict, judged, sum(len(chunk.places) for chunk in chunks), wanted.max_violations, wanted.use)


def validate_remote(spark: Any, place: str, wanted: Wanted = Wanted()) -> Verdict:
    """Judge file sets on any file system that Hadoop supports. With `every_byte`, each task first compares its files with their manifest.

    Raises:
        BadInputError, IncompleteError: as for `validate`.
    """
    root, runs, hashes = runs_at(spark, place)
    chunks = chunks_of(runs, parallelism_of(spark))
    verdict = Verdict(manifests=hashes)
    add_completeness(verdict, manifests_of(runs), removed_at(spark, place))
    check = check_held if wanted.every_byte else None
    own_session = session_of_files(spark, (file_set.manifest for file_sets in runs.values() for file_set in file_sets))
    with own_session as own, judged_shared_at(own, verdict, root, place, runs, shares_of_runs(chunks)) as shared:
        _add_runs(own, verdict, judged_chunks_at(own, root, place, chunks, check), shared, chunks, wanted)
    if not (verdict.holds or wanted.every_byte):
        blamed = [file_set.manifest for key, file_sets in runs.items() if verdict.concerns(key) for file_set in file_sets]
        check_undamaged_at(spark, place, root, blamed)
    return verdict
