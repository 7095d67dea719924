"""`sluice meter stream`: judges file sets as they arrive in a directory or a topic, and writes them exactly once.

The source can be read again, and the checkpoint has the file sets, or the offsets, of a batch before its first row is written. The output
takes the rows of a batch once, so a repeated batch has the same result. No file set is too late for a batch.
"""

from typing import Any

from pipeline.errors import IncompleteError
from pipeline.removed import removed_runs
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.stream.batches import Batches, ReportProgress, opened
from pipeline.spark.stream.directory import follow_directory
from pipeline.spark.stream.folder_output import FolderOutput
from pipeline.spark.stream.topic import follow_topic
from pipeline.spark.stream.whole_runs import judge_whole_runs
from pipeline.stream.output import StreamOutput
from pipeline.stream.result import FINDINGS_MAX, StreamResult
from pipeline.stream.settings import StreamSettings, check_settings
from pipeline.stream.spooled import SpooledVerdicts
from pipeline.text import counted


class Stream:
    """One call of the command.

    Raises, from `run`:
        BadInputError: the source, the checkpoint or the output cannot be used.
        IncompleteError: something was lost, left out, or differs from its manifest. Nothing of that batch counts.
    """

    def __init__(
        self, spark: Any, settings: StreamSettings, report: ReportProgress = lambda _line: None, output: StreamOutput | None = None
    ) -> None:
        self._spark, self._settings, self._report = spark, settings, report
        self._output = output

    def run(self) -> StreamResult:
        """Run until everything is read (`once`) or the stream is stopped."""
        settings = self._settings
        check_settings(settings)
        output = self._output or _folder(self._spark, settings)
        batches = Batches(self._spark, settings, output, self._report)
        before = output.divergences_before()
        if settings.is_topic:
            follow_topic(batches)
        else:
            follow_directory(batches)
        _finish(batches)
        batches.result.new_divergences = max(batches.result.divergences - before, 0)
        output.put_reported(batches.result.divergences)
        return batches.result


def _finish(batches: Batches) -> None:
    """Put the verdict over everything that has landed into the result."""
    result, output, directory = batches.result, batches.output, batches.source.directory
    if batches.settings.once:
        result.whole = _number_landed(batches)
    there = batches.listing.now()
    result.lost = batches.history.completeness(there, removed_runs(directory))
    if not batches.settings.once:
        result.divergences, result.findings = output.divergences_of(sorted(output.batches()))
        return
    with SpooledVerdicts() as judged:
        without = set(output.batches())
        for batch_id, verdicts in output.judged_so_far():
            judged.add(verdicts)
            without.discard(batch_id)
        with reported_in_one_line():
            verdict = judge_whole_runs(batches.source, batches.history, there, judged)
    result.divergences, result.findings = output.divergences_of(sorted(without))
    result.divergences += verdict.violations
    result.findings += verdict.divergences(FINDINGS_MAX - len(result.findings))
    result.unjudged = verdict.unjudged
    result.lost.incomplete += [line for line in verdict.incomplete if line not in result.lost.incomplete]


def _number_landed(batches: Batches) -> int:
    """Return the number of file sets that were there when the directory was listed last, and have landed: all of them.

    The rows of every batch have been compared with its manifests, so no row is left out when no file set is.

    Raises:
        IncompleteError: one is in no batch.
    """
    left = sorted(path for path in batches.there.sizes if path not in batches.history)
    if left:
        number = counted(len(left), "file set")
        raise IncompleteError(f"{batches.settings.source}: {number} left out, {left[0]} first; use a new --checkpoint")
    return len(batches.there.sizes)


def _folder(spark: Any, settings: StreamSettings) -> StreamOutput:
    assert settings.out is not None
    return FolderOutput(spark, opened(spark, settings.out))
