"""Follows a topic by Spark's Structured Streaming, whose checkpoint has the offsets of each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pipeline.errors import BadInputError, IncompleteError, PipelineError
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.stream.batches import Batches
from pipeline.spark.stream.kafka_source import messages
from pipeline.spark.written import url_of
from pipeline.storage.paths import StorePath
from pipeline.stream.checkpoint import begin_query
from pipeline.stream.chunks import PARTS, Parts, assemble_all, checked_place, land_in_store

INTERVAL: Final = "10 seconds"
MESSAGES_AT_ONCE: Final = 64
"""Messages that this machine gets from Spark together, of 512 KiB at most."""


def follow_topic(batches: Batches) -> None:
    """Process what is there (`once`), or whatever arrives until the query is stopped.

    Args:
        batches: the call.

    Raises:
        BadInputError, IncompleteError: as for `Batches.process`.
    """
    from pyspark.errors import PySparkException

    following, checkpoint = _Following(batches), batches.checkpoint
    writer = messages(batches.spark, batches.settings, checkpoint).writeStream.foreachBatch(following.batch)
    writer = writer.option("checkpointLocation", url_of(checkpoint.resolve()) if isinstance(checkpoint, Path) else checkpoint.location)
    # Spark goes on with the query of a checkpoint, so that the output is known however early the first batch ends
    batches.output.claim(begin_query(checkpoint, batches.output.name))
    query = writer.trigger(**({"availableNow": True} if batches.settings.once else {"processingTime": INTERVAL})).start()
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
        self.error: PipelineError | None = None

    def batch(self, frame: Any, batch_id: int) -> None:
        """Process a batch. An exception is stored, since Spark passes on only its text."""
        batches = self._batches
        try:
            with reported_in_one_line():
                arrived = self._put_together(frame)
            if batch_id < batches.next_id:  # Spark repeats a batch that counts if it could not note its end
                return
            batches.there = batches.listing.now()
            batches.process(batch_id, batches.there.read(path for path in arrived if path not in batches.history))
        except PipelineError as error:
            self.error = error
            raise

    def _put_together(self, frame: Any) -> list[str]:
        """Store all parts, then put the file sets together whose manifests arrived; return the paths of these."""
        source, directory = self._batches.settings.source, self._batches.source.directory
        if isinstance(directory, StorePath):
            # tasks have no access to the store by Spark's settings, so that this machine gets the messages, a few at a time
            few = frame.select("path", "part", "value").repartition(-(-self._batches.settings.messages_max // MESSAGES_AT_ONCE))
            return land_in_store(directory, _checked(source, few.toLocalIterator()))
        return assemble_all(directory, _kept_by_tasks(source, frame, directory / PARTS), Parts(directory / PARTS))


def _checked(source: str, rows: Iterable[Any]) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield the place and the value of each message.

    Raises:
        BadInputError: a message is none of metering.
    """
    for row in rows:
        try:
            path, number, count = checked_place(row["path"] or "", row["part"] or "")
        except BadInputError as error:
            raise BadInputError(f"{source}: {error}") from error
        yield path, number, count, row["value"]


def _kept_by_tasks(source: str, frame: Any, place: Path) -> dict[str, int]:
    """Let tasks store parts where all machines see them; return the number of parts of each file.

    Raises:
        BadInputError: a message is none of metering.
    """
    rows = frame.mapInArrow(_keeping(str(place)), "path string, parts int, problem string").collect()
    problem = next((row["problem"] for row in rows if row["problem"]), None)
    if problem:
        raise BadInputError(f"{source}: {problem}")
    return {row["path"]: row["parts"] for row in rows}


def _keeping(place: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def keep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = Parts(Path(place))
        for batch in batches:
            landed: list[dict[str, Any]] = []
            for row in batch.select(["path", "part", "value"]).to_pylist():
                try:
                    path, number, count = checked_place(row["path"] or "", row["part"] or "")
                except BadInputError as error:
                    landed.append({"path": "", "parts": 0, "problem": str(error)})
                    continue
                parts.put(path, number, row["value"])
                landed.append({"path": path, "parts": count, "problem": None})
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
