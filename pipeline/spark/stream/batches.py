"""The batches of one call of `sluice meter stream`: judges file sets, and publishes their rows and verdicts."""

from collections.abc import Callable
from typing import Any

from metering_format.manifest import Manifest
from pipeline.manifest import FoundManifest
from pipeline.removed import removed_runs
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.hadoop_files import hadoop_path
from pipeline.spark.stream.landed import write_batch
from pipeline.spark.stream.source import source_at
from pipeline.storage.paths import AnyPath
from pipeline.stream.history import History
from pipeline.stream.listing import Listing
from pipeline.stream.output import StreamOutput
from pipeline.stream.result import StreamResult
from pipeline.stream.settings import Place, StreamSettings
from pipeline.text import counted

ReportProgress = Callable[[str], None]


class Batches:
    """The state of a call. It lists the metering directory, and reads which batches count.

    Args:
        spark: the session.
        settings: of the call.
        output: where the rows go.
        report: gets a line for each batch and each loss.

    Raises:
        BadInputError: the source, the checkpoint or the output cannot be used.

    Attributes:
        listing: of the metering directory.
        there: the directory when it was listed last.
        history: what has landed.
        waiting: the path of each manifest that was there and had not landed, by the name of the file set.
        next_id: number of the first batch after those that counted when the call began.
        result: what the call has done so far.
    """

    def __init__(self, spark: Any, settings: StreamSettings, output: StreamOutput, report: ReportProgress) -> None:
        self.spark, self.settings, self.output = spark, settings, output
        self.checkpoint = opened(spark, settings.checkpoint)
        directory = opened(spark, settings.directory)
        self.source, self.listing = source_at(spark, directory), Listing(directory)
        self.there = self.listing.now()
        output.check(self.checkpoint)
        self.history = History(self.there, output.landed())
        self.next_id = max(output.batches(), default=-1) + 1
        self.waiting: dict[str, str] = {}
        self.result = StreamResult()
        self._report = report

    def process(self, batch_id: int, found: list[FoundManifest]) -> None:
        """Judge the file sets of a batch, and publish it.

        Raises:
            BadInputError, IncompleteError: a file is missing, has changed, or cannot be read.
        """
        fresh = self.history.add(found)
        self.history.look_ahead(fresh, self.there, self.waiting)
        try:
            with reported_in_one_line():
                works = self.history.works(fresh, self.there)
                written, judged = write_batch(self.spark, self.source, works, self.output, batch_id)
                self.output.publish(batch_id, found, written, judged)
        finally:
            self.output.discard()
        self.result.add(written)
        self._report(f"batch {batch_id}: {counted(written.file_sets, 'file set')}, {counted(sum(written.rows.values()), 'row')}")
        if not self.settings.once:
            self._report_losses(fresh)

    def forget_unpublished(self) -> None:
        """Forget the file sets of a batch that was stopped."""
        self.history = History(self.there, self.output.landed())

    def _report_losses(self, fresh: list[Manifest]) -> None:
        """Report losses as soon as they are known."""
        keys = {(manifest.proxy_id, manifest.run_id) for manifest in fresh}
        removed = removed_runs(self.source.directory, {proxy_id for proxy_id, _ in keys})
        for line in self.history.new_losses(keys, removed):
            self._report(f"missing so far: {line}")


def opened(spark: Any, place: Place) -> AnyPath:
    """Return the path of a place.

    Raises:
        BadInputError: Spark has no jar for the URL.
    """
    return hadoop_path(spark, place) if isinstance(place, str) else place
