"""`sluice meter stream`: judges file sets as they arrive in a directory or a topic, and writes them exactly once.

The source can be read again from any offset, and the checkpoint has the offset. The output takes the rows of a batch once, so a repeated
batch has the same result. There is no watermark, so Spark drops no row as late. A file set could still be left out; the end of a run checks
for this.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from metering_format.manifest import Manifest
from metering_format.places import MANIFESTS
from pipeline.errors import BadInputError, IncompleteError, PipelineError
from pipeline.manifest import file_sha256, read_manifest
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.stream.folder_output import FolderOutput
from pipeline.spark.stream.kafka_source import messages
from pipeline.spark.stream.landed import write_batch
from pipeline.spark.stream.whole_runs import judge_whole_runs
from pipeline.spark.written import url_of
from pipeline.stream.chunks import assemble, checked_place, put_part
from pipeline.stream.ledger import query_of
from pipeline.stream.left_out import check_none_left_out, landed_so_far
from pipeline.stream.output import StreamOutput
from pipeline.stream.result import FINDINGS_MAX, StreamResult
from pipeline.stream.settings import StreamSettings, check_settings
from pipeline.text import counted

NEVER_TOO_OLD: Final = "36500d"
FILES_A_BATCH: Final = 64
INTERVAL: Final = "10 seconds"
ALL_BATCHES: Final = 2**62

ReportProgress = Callable[[str], None]


class Stream:
    """One query over one source.

    Raises, from `run`:
        BadInputError: the source, the checkpoint or the output cannot be used.
        IncompleteError: something was lost, left out as late, or differs from its manifest. Nothing of that batch counts.
    """

    def __init__(
        self, spark: Any, settings: StreamSettings, report: ReportProgress = lambda _line: None, output: StreamOutput | None = None
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._output = output or _folder(spark, settings)
        self._report = report
        self._is_topic = settings.is_topic
        self._directory = settings.directory
        self._error: PipelineError | None = None
        self._reported: set[str] = set()
        self.result = StreamResult()

    def run(self) -> StreamResult:
        """Run until everything is read (`once`) or the query is stopped."""
        settings, output = self._settings, self._output
        check_settings(settings)
        output.check(settings.checkpoint)
        rows = messages(self._spark, settings) if self._is_topic else self._manifests()
        writer = rows.writeStream.foreachBatch(self._batch).option("checkpointLocation", url_of(settings.checkpoint.resolve()))
        trigger = {"availableNow": True} if settings.once else {"processingTime": INTERVAL}
        query = writer.trigger(**trigger).start()
        before = output.divergences_before()
        output.claim(query.id)
        self._wait(query)
        landed = output.file_sets_before(ALL_BATCHES)
        if settings.once:
            self.result.whole = check_none_left_out(self._directory, settings, landed)
        self.result.lost = landed_so_far(self._directory, landed)
        if settings.once:
            self._judge_whole_runs()
        else:
            self.result.divergences, self.result.findings = output.divergences_of(output.batch_ids())
        self.result.new_divergences = max(self.result.divergences - before, 0)
        output.put_reported(self.result.divergences)
        return self.result

    def _judge_whole_runs(self) -> None:
        """Put the verdict of `validate` over everything that has landed into the result."""
        result = self.result
        judged, without = self._output.judged_so_far()
        with reported_in_one_line():
            verdict = judge_whole_runs(self._spark, self._directory, judged)
        result.divergences, result.findings = self._output.divergences_of(without)
        result.divergences += verdict.violations
        result.findings += verdict.divergences(FINDINGS_MAX - len(result.findings))
        result.unjudged = verdict.unjudged
        result.lost.incomplete += [line for line in verdict.incomplete if line not in result.lost.incomplete]

    def _wait(self, query: Any) -> None:
        from pyspark.errors import PySparkException

        try:
            query.awaitTermination()
        except PySparkException as error:
            if self._error is not None:
                raise self._error from error
            raise _source_error(self._settings.source, str(error)) from error
        except KeyboardInterrupt:
            query.stop()

    def _manifests(self) -> Any:
        (self._directory / MANIFESTS).mkdir(exist_ok=True)
        reader = self._spark.readStream.format("text").option("wholetext", "true").option("recursiveFileLookup", "true")
        reader = reader.option("pathGlobFilter", "*.json").option("maxFilesPerTrigger", FILES_A_BATCH).option("maxFileAge", NEVER_TOO_OLD)
        return reader.load(url_of(self._directory / MANIFESTS)).selectExpr("_metadata.file_path AS path")

    def _batch(self, frame: Any, batch_id: int) -> None:
        """Process a batch; called by Spark. An exception is stored, since Spark passes on only its text."""
        try:
            query = query_of(self._settings.checkpoint)
            assert query is not None
            self._output.claim(query)  # the first batch can come before `run` knows the query
            with reported_in_one_line():
                file_sets = self._landed(frame) if self._is_topic else self._named(frame)
                self._process(file_sets, batch_id)
        except PipelineError as error:
            self._error = error
            raise

    def _named(self, frame: Any) -> dict[str, Manifest]:
        from urllib.parse import unquote, urlsplit

        paths = sorted(Path(unquote(urlsplit(row["path"]).path)) for row in frame.collect())
        return {str(path.relative_to(self._directory)): read_manifest(path) for path in paths}

    def _landed(self, frame: Any) -> dict[str, Manifest]:
        """Store all parts in tasks, then assemble the file sets of the manifests that arrived."""
        rows = frame.mapInArrow(_keeping(str(self._directory)), "path string, parts int, problem string").collect()
        problem = next((row["problem"] for row in rows if row["problem"]), None)
        if problem:
            raise BadInputError(f"{self._settings.source}: {problem}")
        found = {row["path"]: row["parts"] for row in rows if row["path"].startswith(f"{MANIFESTS}/")}
        return {path: assemble(self._directory, path, parts) for path, parts in sorted(found.items())}

    def _process(self, file_sets: Mapping[str, Manifest], batch_id: int) -> None:
        known = self._output.file_sets_before(batch_id)
        fresh = {path: manifest for path, manifest in file_sets.items() if path not in known}
        try:
            written, judged = write_batch(self._spark, self._directory, list(fresh.values()), self._output, batch_id)
            self._output.publish(batch_id, {path: file_sha256(self._directory / path) for path in fresh}, written, judged)
        finally:
            self._output.discard()
        self.result.add(written)
        self._report(f"batch {batch_id}: {counted(written.file_sets, 'file set')}, {counted(sum(written.rows.values()), 'row')}")
        if not self._settings.once:
            self._report_losses()

    def _report_losses(self) -> None:
        """Report losses as soon as they are known. A late file set removes its line when it arrives."""
        lines = landed_so_far(self._directory, self._output.file_sets_before(ALL_BATCHES)).incomplete
        for line in lines:
            if line not in self._reported:
                self._report(f"missing so far: {line}")
        self._reported = set(lines)


def _folder(spark: Any, settings: StreamSettings) -> StreamOutput:
    assert settings.out is not None
    return FolderOutput(spark, settings.out)


def _keeping(directory: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def keep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            landed: list[dict[str, Any]] = []
            for row in batch.select(["path", "part", "value"]).to_pylist():
                try:
                    path, number, parts = checked_place(row["path"] or "", row["part"] or "")
                except BadInputError as error:
                    landed.append({"path": "", "parts": 0, "problem": str(error)})
                    continue
                put_part(Path(directory), path, number, row["value"])
                landed.append({"path": path, "parts": parts, "problem": None})
            yield pa.RecordBatch.from_pylist(landed, pa.schema([("path", pa.string()), ("parts", pa.int32()), ("problem", pa.string())]))

    return keep


def _source_error(source: str, text: str) -> PipelineError:
    """Return a one-line error from the text of a source's exception in a worker."""
    for mark, kind in (("LOST: ", IncompleteError), ("ABSENT: ", BadInputError)):
        if mark in text:
            return kind(f"{source}: {text.split(mark, 1)[1].splitlines()[0]}")
    if "UnknownTopicOrPartition" in text:
        return BadInputError(f"{source}: there is no such topic")
    if "NoBrokersAvailable" in text or "KafkaTimeoutError" in text:
        return BadInputError(f"{source}: no broker answers there")
    return IncompleteError(f"{source}: the stream ended ({text.splitlines()[0]})")
