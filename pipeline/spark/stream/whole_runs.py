"""Judges all file sets that a stream has landed as `validate` does: with the rules over whole runs, workers and members of a fleet."""

from __future__ import annotations

from metering_format.places import SHARED
from pipeline.file_set import runs_of
from pipeline.removed import removed_runs
from pipeline.spark.stream.source import StreamSource
from pipeline.stream.history import History
from pipeline.stream.listing import Listed
from pipeline.stream.spooled import SpooledVerdicts
from pipeline.validation.rules.workers.group_histories import member_of
from pipeline.validation.verdict import Verdict, add_completeness, add_run
from pipeline.validation.whole_run import judge_whole_run
from pipeline.validation.workers import add_shared


def judge_whole_runs(source: StreamSource, history: History, there: Listed, judged: SpooledVerdicts) -> Verdict:
    """Return the verdict over all landed file sets.

    Args:
        source: the metering directory.
        history: its file sets that have landed.
        there: those that are there. Retention may have removed file sets since; their verdicts count nevertheless.
        judged: the file sets with the verdicts of their batches. File sets that are judged again get their new verdict.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    present = [manifest for manifest in history.present(there) if manifest in judged]
    # a file set that followed missing decisions is judged again: the missing file set may have arrived since
    unjudged = [manifest for manifest in present if judged.is_unjudged(manifest)]
    for manifest, again in source.judge(history.works(unjudged, there), every_byte=False):
        judged.replace(manifest, again)
    verdict = Verdict()
    for key, its in judged.runs():
        add_run(verdict, key, judge_whole_run(its))
    add_completeness(verdict, judged.manifests(), removed_runs(source.directory))
    sharing = {(one.proxy_id, one.run_id) for one in present if SHARED in one.settings or member_of(one) is not None}
    together = history.whole((one for one in present if (one.proxy_id, one.run_id) in sharing), there)
    add_shared(verdict, runs_of(source.directory, together))
    source.check_undamaged(history.whole((one for one in present if verdict.concerns((one.proxy_id, one.run_id))), there))
    return verdict
