"""The validator in this process, without Spark."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet
from pipeline.file_sets import checked_runs
from pipeline.manifest import RunKey, file_sha256, manifest_paths, read_manifest
from pipeline.removed import removed_runs
from pipeline.validation.file_set_verdict import FileSetVerdict, judge_file_set
from pipeline.validation.verdict import Verdict, merge
from pipeline.validation.workers import add_shared

OnFileSet = Callable[[str], None]


def validate(directory: Path, on_file_set: OnFileSet = lambda _file_set: None, *, every_byte: bool = False, paced: bool = False) -> Verdict:
    """Judge every file set of a metering directory, one after the other.

    Args:
        directory: the metering directory.
        on_file_set: called with each file set.
        every_byte: first compare the SHA-256 of every file, so that the manifests' hashes stand for the judged content.
        paced: apply the lower ceiling of long-run rates of a proxy that paces its groups.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged.
    """
    runs = checked_runs(directory, every_byte=every_byte)
    judged: dict[RunKey, list[tuple[Manifest, FileSetVerdict]]] = {}
    for key, file_sets in runs.items():
        for number, file_set in enumerate(file_sets):
            on_file_set(file_set.manifest.file_set)
            judged.setdefault(key, []).append((file_set.manifest, judge_file_set(file_set, file_sets[:number], paced=paced)))
    verdict = merge(judged, manifest_hashes(directory, runs), removed_runs(directory), paced=paced)
    add_shared(verdict, runs)
    return verdict


def manifest_hashes(directory: Path, runs: Mapping[RunKey, Sequence[FileSet]]) -> dict[str, str]:
    """Return the SHA-256 of each manifest of `runs` by its path below the directory. Manifests that arrived later are left out."""
    judged = {(file_set.manifest.proxy_id, file_set.manifest.file_set) for file_sets in runs.values() for file_set in file_sets}
    found = {}
    for path in manifest_paths(directory):
        manifest = read_manifest(path)
        if (manifest.proxy_id, manifest.file_set) in judged:
            found[str(path.relative_to(directory))] = file_sha256(path)
    return found
