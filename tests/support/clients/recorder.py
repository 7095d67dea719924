"""A librdkafka producer that notes every record it sends, and conversions for readers."""

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, Message, Producer

from tests.support.clients import confluent
from tests.support.clients.outcome import FLUSH_SECONDS
from tests.support.processes.ledger import Entry, Ledger, Stored

IDEMPOTENT: confluent.Settings = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 120_000}


class RecordingProducer:
    """Sends numbered records round robin over the partitions and records the result of each."""

    def __init__(
        self, ledger: Ledger, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, object], number: int = 1
    ) -> None:
        self.acknowledged: list[Entry] = []
        self.failed: list[tuple[Entry, KafkaError]] = []
        self.throttled_ms: list[int] = []
        self._ledger = ledger
        self._topic = topic
        self._partitions = partitions
        self._producer_number = number
        self._counts = [0] * partitions
        self._sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, **confluent.QUIET, "throttle_cb": self._throttled, **settings})

    def send(self, body_bytes: Iterable[int]) -> None:
        """Enqueue one record per size; wait only while the client's own queue is full."""
        for size in body_bytes:
            partition = self._sent % self._partitions
            entry = Entry(self._producer_number, partition, self._counts[partition])
            self._sent += 1
            self._counts[partition] += 1
            self._hand_over(entry, size)

    def poll(self, seconds: float) -> None:
        """Serve answers for a while."""
        self._producer.poll(seconds)

    def waiting(self) -> int:
        """Return how many records have no answer yet."""
        return len(self._producer)

    def finish(self) -> None:
        """Wait for all answers; fails if a record failed or has none."""
        left = self._producer.flush(FLUSH_SECONDS)
        assert not self.failed, f"{len(self.failed)} sends failed, the first with {self.failed[0][1]}"
        assert left == 0, f"{left} records without an answer"

    def close(self) -> None:
        """Close the producer: records without an answer never get one."""
        del self._producer

    def _hand_over(self, entry: Entry, size: int) -> None:
        def answered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append(entry)
            else:
                self.failed.append((entry, error))

        value = self._ledger.value(entry, size)
        confluent.produce_waiting(self._producer, self._topic, value=value, partition=entry.partition, on_delivery=answered)

    def _throttled(self, event: object) -> None:
        self.throttled_ms.append(round(event.throttle_time * 1_000))  # type: ignore[attr-defined]


def as_stored(messages: Iterable[Message]) -> list[Stored]:
    """Convert what a consumer read into the form that the ledger judges."""
    return [Stored(message.partition(), message.offset(), message.value()) for message in messages]
