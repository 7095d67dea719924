"""The validator in this process, without Spark."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet
from pipeline.file_sets import runs_checked
from pipeline.manifest import FoundManifest, RunKey, found_manifests
from pipeline.removed import removed_runs
from pipeline.replay.findings import Findings
from pipeline.storage.paths import AnyPath
from pipeline.validation.file_set_verdict import FileSetVerdict
from pipeline.validation.run_verdicts import judge_run
from pipeline.validation.verdict import Verdict, add_completeness, add_run
from pipeline.validation.whole_run import judge_whole_run
from pipeline.validation.workers import add_shared

OnFileSet = Callable[[str], None]


def validate(
    directory: AnyPath,
    on_file_set: OnFileSet = lambda _file_set: None,
    *,
    every_byte: bool = False,
    more: Mapping[RunKey, Findings] | None = None,
) -> Verdict:
    """Judge every file set of a metering directory, one after the other.

    Args:
        directory: the metering directory.
        on_file_set: called with each file set that was judged.
        every_byte: first compare the SHA-256 of every file, so that the manifests' hashes stand for the judged content.
        more: what other checks found, by run.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged.
    """
    found = found_manifests(directory)
    runs = runs_checked(directory, found, every_byte=every_byte)
    verdict = Verdict(manifests=manifest_hashes(found, runs))
    for key, file_sets in runs.items():
        further = [more[key]] if more and key in more else []
        add_run(verdict, key, judge_whole_run(_reported(judge_run(file_sets), on_file_set), *further))
    add_completeness(verdict, manifests_of(runs), removed_runs(directory))
    add_shared(verdict, runs)
    return verdict


def _reported(judged: Iterable[tuple[FileSet, FileSetVerdict]], on_file_set: OnFileSet) -> Iterator[tuple[Manifest, FileSetVerdict]]:
    for file_set, verdict in judged:
        on_file_set(file_set.manifest.file_set)
        yield file_set.manifest, verdict


def manifest_hashes(found: Iterable[FoundManifest], runs: Mapping[RunKey, Sequence[FileSet]]) -> dict[str, str]:
    """Return the SHA-256 of each manifest of `runs` by its path below the directory. Manifests that arrived later are left out."""
    judged = {(file_set.manifest.proxy_id, file_set.manifest.file_set) for file_sets in runs.values() for file_set in file_sets}
    return {one.path: one.sha256 for one in found if (one.manifest.proxy_id, one.manifest.file_set) in judged}


def manifests_of(runs: Mapping[RunKey, Sequence[FileSet]]) -> dict[RunKey, list[Manifest]]:
    """Return the manifests of each run."""
    return {key: [file_set.manifest for file_set in file_sets] for key, file_sets in runs.items()}
