"""Judges all file sets that a stream has landed as `validate` does: with the rules over whole runs, workers and members of a fleet."""

from __future__ import annotations

from collections.abc import Sequence

from metering_format.manifest import Manifest
from pipeline.file_set import runs_of
from pipeline.manifest import by_run
from pipeline.removed import removed_runs
from pipeline.spark.stream.source import StreamSource
from pipeline.stream.history import History
from pipeline.stream.judged import Judged
from pipeline.stream.listing import Listed
from pipeline.validation.verdict import Verdict, merge
from pipeline.validation.workers import add_shared


def judge_whole_runs(source: StreamSource, history: History, there: Listed, judged: Sequence[Judged]) -> Verdict:
    """Return the verdict over all landed file sets.

    Args:
        source: the metering directory.
        history: its file sets that have landed.
        there: those that are there. Retention may have removed file sets since; their verdicts count nevertheless.
        judged: the file sets with the verdicts of their batches.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    verdicts = {_key(one.manifest): one.verdict for one in judged}
    present = [manifest for manifest in history.present(there) if _key(manifest) in verdicts]
    # a file set that followed missing decisions is judged again: the missing file set may have arrived since
    unjudged = [manifest for manifest in present if verdicts[_key(manifest)].unjudged]
    again = source.judge(history.works(unjudged, there), every_byte=False)
    verdicts |= {_key(manifest): verdict for manifest, verdict in again}
    landed = by_run(one.manifest for one in judged)
    removed = removed_runs(source.directory)
    verdict = merge({key: [(one, verdicts[_key(one)]) for one in its] for key, its in landed.items()}, {}, removed)
    add_shared(verdict, runs_of(source.directory, present))
    source.check_undamaged([manifest for manifest in present if verdict.concerns((manifest.proxy_id, manifest.run_id))])
    return verdict


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest.proxy_id, manifest.file_set
