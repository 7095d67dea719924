"""Judges all file sets that a stream has landed as `validate` does: with the rules over whole runs, workers and members of a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from metering_format.manifest import Manifest
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey, check_undamaged, find_manifests
from pipeline.removed import removed_runs
from pipeline.spark.validation.validate import judge_file_sets, works_of
from pipeline.stream.judged import Judged
from pipeline.validation.file_set_verdict import FileSetVerdict
from pipeline.validation.verdict import Verdict, merge
from pipeline.validation.workers import add_shared


def judge_whole_runs(spark: Any, directory: Path, judged: Sequence[Judged]) -> Verdict:
    """Return the verdict over all landed file sets.

    Args:
        spark: the session.
        directory: the source. Retention may have removed file sets since; their verdicts count nevertheless.
        judged: the file sets with the verdicts of their batches.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    landed = {one.manifest.file_set for one in judged}
    present = [manifest for manifest in find_manifests(directory) if manifest.file_set in landed] if judged else []
    again = _judged_again(spark, directory, present, judged)
    by_run: dict[RunKey, list[tuple[Manifest, FileSetVerdict]]] = {}
    for one in sorted(judged, key=lambda one: (one.manifest.first_seq, one.manifest.part)):
        key = (one.manifest.proxy_id, one.manifest.run_id)
        by_run.setdefault(key, []).append((one.manifest, again.get(one.manifest.file_set, one.verdict)))
    verdict = merge(by_run, {}, removed_runs(directory))
    add_shared(verdict, _file_sets(directory, present))
    check_undamaged(directory, [manifest for manifest in present if verdict.concerns((manifest.proxy_id, manifest.run_id))])
    return verdict


def _file_sets(directory: Path, manifests: Sequence[Manifest]) -> dict[RunKey, list[FileSet]]:
    runs: dict[RunKey, list[FileSet]] = {}
    for manifest in manifests:
        runs.setdefault((manifest.proxy_id, manifest.run_id), []).append(FileSet(directory, manifest))
    return runs


def _judged_again(spark: Any, directory: Path, present: Sequence[Manifest], judged: Sequence[Judged]) -> Mapping[str, FileSetVerdict]:
    """Judge file sets again that followed missing decisions when they landed; the missing file set may have arrived since."""
    wanted = {one.manifest.file_set for one in judged if one.verdict.unjudged}
    works = {position: work for position, work in works_of(_file_sets(directory, present)).items() if work[-1].file_set in wanted}
    if not works:
        return {}
    verdicts = judge_file_sets(spark, directory, works)
    return {works[position][-1].file_set: msgspec.json.decode(encoded, type=FileSetVerdict) for position, encoded in verdicts.items()}
