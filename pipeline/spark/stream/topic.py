"""Follows a topic by Spark's Structured Streaming, whose checkpoint has the offsets of each batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from metering_format.places import MANIFESTS
from pipeline.errors import BadInputError, IncompleteError, PipelineError
from pipeline.manifest import FoundManifest, read_found
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.stream.batches import Batches
from pipeline.spark.stream.kafka_source import messages
from pipeline.spark.written import url_of
from pipeline.stream.checkpoint import query_of
from pipeline.stream.chunks import assemble, checked_place, put_part

INTERVAL: Final = "10 seconds"


def follow_topic(batches: Batches) -> None:
    """Process what is there (`once`), or whatever arrives until the query is stopped.

    Args:
        batches: the call.

    Raises:
        BadInputError, IncompleteError: as for `Batches.process`.
    """
    from pyspark.errors import PySparkException

    following = _Following(batches)
    assert isinstance(batches.checkpoint, Path)
    writer = messages(batches.spark, batches.settings).writeStream.foreachBatch(following.batch)
    writer = writer.option("checkpointLocation", url_of(batches.checkpoint.resolve()))
    query = writer.trigger(**({"availableNow": True} if batches.settings.once else {"processingTime": INTERVAL})).start()
    following.claim(query.id)
    try:
        query.awaitTermination()
    except PySparkException as error:
        if following.error is not None:
            raise following.error from error
        raise _source_error(batches.settings.source, str(error)) from error
    except KeyboardInterrupt:
        query.stop()


class _Following:
    """The batches of one query; Spark calls `batch` in a thread of its own."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._claiming = threading.Lock()
        self._claimed = False
        self.error: PipelineError | None = None

    def claim(self, query_id: str) -> None:
        """Note the query once: the first batch can come before `follow_topic` knows it."""
        with self._claiming:
            if not self._claimed:
                self._batches.output.claim(query_id)
            self._claimed = True

    def batch(self, frame: Any, batch_id: int) -> None:
        """Process a batch. An exception is stored, since Spark passes on only its text."""
        batches = self._batches
        try:
            query = query_of(batches.checkpoint)
            assert query is not None
            self.claim(query)
            with reported_in_one_line():
                found = self._put_together(frame)
            if batch_id < batches.next_id:  # Spark repeats a batch that counts if it could not note its end
                return
            batches.there = batches.listing.now()
            batches.process(batch_id, [one for one in found if one.path not in batches.history])
        except PipelineError as error:
            self.error = error
            raise

    def _put_together(self, frame: Any) -> list[FoundManifest]:
        """Store all parts in tasks, then put the file sets together whose manifests arrived."""
        settings = self._batches.settings
        directory = settings.directory
        assert isinstance(directory, Path)
        rows = frame.mapInArrow(_keeping(str(directory)), "path string, parts int, problem string").collect()
        problem = next((row["problem"] for row in rows if row["problem"]), None)
        if problem:
            raise BadInputError(f"{settings.source}: {problem}")
        arrived = {row["path"]: row["parts"] for row in rows if row["path"].startswith(f"{MANIFESTS}/")}
        for path, parts in sorted(arrived.items()):
            assemble(directory, path, parts)
        return [read_found(directory, directory / path) for path in sorted(arrived)]


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
