"""A Kafka topic as a stream of messages without a jar: Spark's Python Data Source with a Python consumer.

Offsets are {partition: next offset}. Nothing is committed to Kafka, since the checkpoint has the position.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from metering_format.places import PART_HEADER, PATH_HEADER
from pipeline.spark.stream.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pipeline.spark.stream.topic_client import POLL_MS, Consumer, partitions_of

NAME: Final = "sluice-topic"
SCHEMA: Final = "partition int, offset long, path string, part string, value binary"
SILENCE_POLLS_MAX: Final = 60


@dataclass
class Span(InputPartition):
    """Messages of one partition from `start` up to, and without, `end`."""

    partition: int
    start: int
    end: int


class TopicSource(DataSource):
    """The data source. Options: `servers` (HOST:PORT,...), `topic`, `properties` (a file on every machine), `messages_max` (of a batch)."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the schema: one row per message."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> "TopicReader":  # noqa: ARG002, N802, RUF100 - Spark's name
        """Return the reader of one query."""
        options = self.options
        return TopicReader(options["servers"], options["topic"], options.get("properties", ""), int(options.get("messages_max", "0")))


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Queries the offsets of a topic, and reads the messages between two offsets.

    Args:
        servers: HOST:PORT,...
        topic: its name.
        properties: path of a file of Kafka's client properties, on each machine; empty: neither TLS nor a login.
        messages_max: highest number of messages of a batch; 0: no limit.
    """

    def __init__(self, servers: str, topic: str, properties: str = "", messages_max: int = 0) -> None:
        self._servers = servers
        self._topic = topic
        self._properties = properties
        self._messages_max = messages_max
        self._last: dict[str, int] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802, RUF100 - Spark's name
        """Return the limit of a batch."""
        return ReadMaxRows(self._messages_max) if self._messages_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802, RUF100 - Spark's name
        """Note the offsets at which a query ends that reads what is there."""
        self._last = self._ends("end_offsets")

    def initialOffset(self) -> dict[str, int]:  # noqa: N802, RUF100 - Spark's name
        """Return the offset of the oldest message of each partition."""
        return self._ends("beginning_offsets")

    def latestOffset(self, start: dict[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:  # noqa: N802, RUF100
        """Return the offset after the newest message, or of as many as the limit allows. Spark 4.0 gives neither start nor limit.

        Offsets never go back, and new partitions begin at their first message.
        """
        ends = self._ends("end_offsets") if self._last is None else self._last
        start = start or {}
        if not isinstance(limit, ReadMaxRows):
            return {partition: max(end, start.get(partition, 0)) for partition, end in ends.items()}
        if ends.keys() - start.keys():
            start = self._ends("beginning_offsets") | start
        return limited(start, ends, limit.max_rows)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one task for each partition with new messages.

        Raises:
            RuntimeError: messages in this range were deleted before they were read.
        """
        first = self._ends("beginning_offsets")
        spans = [Span(int(partition), int(start.get(partition, 0)), int(until)) for partition, until in end.items()]
        spans = [span for span in spans if span.start < span.end]
        for span in spans:
            if first[str(span.partition)] > span.start and str(span.partition) in start:
                raise RuntimeError(
                    f"LOST: {self._topic}-{span.partition} begins at {first[str(span.partition)]}, the stream was at {span.start}; "
                    "the topic deleted what was not read yet"
                )
        return spans

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the messages of one span.

        Raises:
            TimeoutError: the brokers do not respond for 30 s.
        """
        assert isinstance(partition, Span)
        from kafka import TopicPartition

        with Consumer(self._servers, self._properties) as consumer:
            place = TopicPartition(self._topic, partition.partition)
            consumer.assign([place])
            consumer.seek(place, partition.start)
            silent = 0
            while consumer.position(place) < partition.end:
                records = consumer.poll(timeout_ms=POLL_MS).get(place, [])
                silent = 0 if records else silent + 1
                if silent > SILENCE_POLLS_MAX:
                    raise TimeoutError(f"{self._topic}-{partition.partition}: no message for {SILENCE_POLLS_MAX * POLL_MS // 1_000} s")
                for record in records:
                    if record.offset < partition.end:
                        headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
                        yield (record.partition, record.offset, headers.get(PATH_HEADER), headers.get(PART_HEADER), record.value or b"")

    def _ends(self, what: str) -> dict[str, int]:
        from kafka import TopicPartition

        with Consumer(self._servers, self._properties) as consumer:
            numbers = partitions_of(consumer, self._topic)
            if not numbers:
                raise RuntimeError(f"ABSENT: no topic {self._topic} at {self._servers}")
            found = getattr(consumer, what)([TopicPartition(self._topic, number) for number in numbers])
        return {str(place.partition): int(offset) for place, offset in found.items()}


def limited(start: Mapping[str, int], ends: Mapping[str, int], messages_max: int) -> dict[str, int]:
    """Return the end of a batch in each partition. What partitions with few messages leave is for those with more."""
    waiting = {partition: max(end - start.get(partition, 0), 0) for partition, end in ends.items()}
    until: dict[str, int] = {}
    room, left = messages_max, len(waiting)
    for partition, count in sorted(waiting.items(), key=lambda one: one[1]):
        taken = min(count, -(-room // left))  # rounded up, so that a small limit takes a message, too
        until[partition] = start.get(partition, 0) + taken
        room, left = room - taken, left - 1
    return {partition: until[partition] for partition in ends}  # Spark compares offsets as text
