"""A Kafka topic as a stream of messages without a jar: Spark's Python Data Source with a Python consumer.

Offsets are {partition: next offset}. Nothing is committed to Kafka, since the checkpoint has the position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from metering_format.places import PART_HEADER, PATH_HEADER

NAME: Final = "sluice-topic"
SCHEMA: Final = "partition int, offset long, path string, part string, value binary"
BOOTSTRAP_MS: Final = 10_000
PROTOCOL: Final = (2, 1)  # supported by brokers from 2.1 to 4.x, so no version request is needed
POLL_MS: Final = 500
SILENCE_POLLS_MAX: Final = 60


@dataclass
class Span(InputPartition):
    """Messages of one partition from `start` up to, and without, `end`."""

    partition: int
    start: int
    end: int


class TopicSource(DataSource):
    """The data source. Options: `servers` (HOST:PORT,...), `topic`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the schema: one row per message."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> "TopicReader":  # noqa: ARG002, N802, RUF100 - Spark's name
        """Return the reader of one query."""
        return TopicReader(self.options["servers"], self.options["topic"])


class TopicReader(DataSourceStreamReader):
    """Queries the offsets of a topic, and reads the messages between two offsets."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic

    def initialOffset(self) -> dict[str, int]:  # noqa: N802, RUF100 - Spark's name
        """Return the offset of the oldest message of each partition."""
        return self._ends("beginning_offsets")

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802, RUF100 - Spark's name
        """Return the offset after the newest message. Offsets never go back, and new partitions begin at their first message."""
        ends = self._ends("end_offsets")
        return {partition: max(end, start.get(partition, 0)) for partition, end in ends.items()}

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

        with _Consumer(self._servers) as consumer:
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

        with _Consumer(self._servers) as consumer:
            numbers = consumer.partitions_for_topic(self._topic)
            if not numbers:
                raise RuntimeError(f"ABSENT: no topic {self._topic} at {self._servers}")
            found = getattr(consumer, what)([TopicPartition(self._topic, number) for number in sorted(numbers)])
        return {str(place.partition): int(offset) for place, offset in found.items()}


class _Consumer:
    """A consumer without a group, as a context manager that closes it."""

    def __init__(self, servers: str) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            bootstrap_servers=servers.split(","),
            group_id=None,
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_MS,
            api_version=PROTOCOL,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
        )

    def __enter__(self) -> Any:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
