"""The validator in this process: no Spark, starts at once."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipeline.file_set import FileSet
from pipeline.file_sets import checked_runs
from pipeline.manifest import Manifest, RunKey, file_sha256, manifest_paths, read_manifest
from pipeline.removed import removed_runs
from pipeline.validation.stem_verdict import FileSetVerdict, judge_stem
from pipeline.validation.verdict import Verdict, merge

OnStem = Callable[[str], None]


def validate(directory: Path, on_stem: OnStem = lambda _stem: None, *, every_byte: bool = False, paced: bool = False) -> Verdict:
    """Judge every stem of a metering directory, one after the other.

    Args:
        every_byte: compare the files with their manifests first, so that the hashes of these stand for what was judged.
        paced: long-run rates are held to those of a proxy that paces its groups.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged.
    """
    runs = checked_runs(directory, every_byte=every_byte)
    judged: dict[RunKey, list[tuple[Manifest, FileSetVerdict]]] = {}
    for key, stems in runs.items():
        for number, stem in enumerate(stems):
            on_stem(stem.manifest.stem)
            judged.setdefault(key, []).append((stem.manifest, judge_stem(stem, stems[:number], paced=paced)))
    return merge(judged, manifest_hashes(directory, runs), removed_runs(directory), paced=paced)


def manifest_hashes(directory: Path, runs: Mapping[RunKey, Sequence[FileSet]]) -> dict[str, str]:
    """Return the SHA-256 of each manifest of some runs by its path below the directory; others may have come since these were read."""
    judged = {(stem.manifest.proxy_id, stem.manifest.stem) for stems in runs.values() for stem in stems}
    found = {}
    for path in manifest_paths(directory):
        manifest = read_manifest(path)
        if (manifest.proxy_id, manifest.stem) in judged:
            found[str(path.relative_to(directory))] = file_sha256(path)
    return found
