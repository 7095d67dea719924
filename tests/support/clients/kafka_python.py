"""kafka-python as a client under test."""

from collections.abc import Iterable, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from tests.support.clients.outcome import FLUSH_SECONDS, IDLE_SECONDS, Patience

Settings = Mapping[str, Any]


def produce(bootstrap: str, topic: str, values: Iterable[bytes], codec: str = "none", settings: Settings | None = None) -> int:
    """Send `values` and wait for their answers. Returns how many were acknowledged."""
    compression = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=5, **(settings or {}))
    try:
        answers = [producer.send(topic, value) for value in values]
        producer.flush(FLUSH_SECONDS)
        return sum(answer.succeeded() for answer in answers)
    finally:
        producer.close()


def consume(bootstrap: str, topic: str, count: int, group: str, settings: Settings | None = None) -> list[bytes]:
    """Read `count` values as a member of a consumer group, from the beginning."""
    base = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(topic, **base, **(settings or {}))
    values: list[bytes] = []
    patience = Patience(IDLE_SECONDS)
    try:
        while len(values) < count:
            batches: dict[Any, list[Any]] = consumer.poll(timeout_ms=500, max_records=count - len(values))
            values += [record.value for batch in batches.values() for record in batch]
            patience.note(progress=bool(batches), what=f"{len(values)} of {count} records")
    finally:
        consumer.close()
    return values
