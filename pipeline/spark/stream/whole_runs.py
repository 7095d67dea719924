"""Judges all file sets that a stream has landed as `validate` does: with the rules over whole runs, workers and members of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.file_set import runs_of
from pipeline.manifest import by_run, check_undamaged, find_manifests
from pipeline.removed import removed_runs
from pipeline.spark.validation.validate import judge_some
from pipeline.stream.judged import Judged
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
    verdicts = {one.manifest.file_set: one.verdict for one in judged}
    present = [manifest for manifest in find_manifests(directory) if manifest.file_set in verdicts] if judged else []
    runs = runs_of(directory, present)
    # a file set that followed missing decisions is judged again: the missing file set may have arrived since
    unjudged = {name for name, verdict in verdicts.items() if verdict.unjudged}
    verdicts |= {work[-1].file_set: verdict for work, verdict in judge_some(spark, directory, runs, unjudged)}
    landed = by_run(one.manifest for one in judged)
    verdict = merge({key: [(one, verdicts[one.file_set]) for one in its] for key, its in landed.items()}, {}, removed_runs(directory))
    add_shared(verdict, runs)
    check_undamaged(directory, [manifest for manifest in present if verdict.concerns((manifest.proxy_id, manifest.run_id))])
    return verdict
