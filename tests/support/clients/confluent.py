"""confluent-kafka (librdkafka) as a client under test."""

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.clients.outcome import FLUSH_SECONDS, IDLE_SECONDS, Patience

Settings = Mapping[str, str | int | float | bool]
QUIET: Settings = {"log_level": 2}


def produce(bootstrap: str, topic: str, values: Iterable[bytes], codec: str = "none", settings: Settings | None = None) -> int:
    """Send `values` and wait for their answers. Returns how many were acknowledged."""
    failures: list[KafkaError] = []
    acknowledged = 0

    def answered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, **QUIET, **(settings or {})})
    for value in values:
        produce_waiting(producer, topic, value=value, on_delivery=answered)
    producer.flush(FLUSH_SECONDS)
    assert not failures, f"{len(failures)} sends failed, the first with {failures[0]}"
    return acknowledged


def produce_waiting(producer: Producer, topic: str, **record: object) -> None:
    """Enqueue a record; while the client's queue is full, wait for answers."""
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def consume(bootstrap: str, topic: str, count: int, group: str, settings: Settings | None = None) -> list[bytes]:
    """Read `count` values as a member of a consumer group, from the beginning."""
    return [message.value() for message in consume_messages(bootstrap, topic, count, group, settings)]


def consume_messages(bootstrap: str, topic: str, count: int, group: str, settings: Settings | None = None) -> list[Message]:
    """Read `count` messages as a member of a consumer group, from the beginning.

    Raises:
        AssertionError: no message arrived for 30 s.
    """
    base = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.partition.eof": False}
    consumer = Consumer({**base, **QUIET, **(settings or {})})
    consumer.subscribe([topic])
    try:
        return _read(consumer, count)
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, partitions: int, settings: Settings | None = None) -> list[Message]:
    """Read what a topic holds at the time of the call, without a group; with `bootstrap` of the broker itself these are the stored
    records.
    """
    base = {"bootstrap.servers": bootstrap, "group.id": "read-all", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**base, **QUIET, **(settings or {})})
    try:
        ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30) for number in range(partitions)}
        consumer.assign([TopicPartition(topic, number, low) for number, (low, _) in ends.items()])
        return _read_to(consumer, {number: high for number, (low, high) in ends.items() if high > low})
    finally:
        consumer.close()


def stored_count(bootstrap: str, topic: str, partitions: int) -> int:
    """Return how many offsets a topic has assigned; markers of transactions count."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stored-count", **QUIET})
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in range(partitions))
    finally:
        consumer.close()


def _read_to(consumer: Consumer, ends: dict[int, int]) -> list[Message]:
    """Read until each partition's position is at its end; markers of transactions are positions without a message."""
    messages: list[Message] = []
    waiting = [TopicPartition(consumer.assignment()[0].topic, number) for number in ends] if ends else []
    patience = Patience(IDLE_SECONDS)
    while any(position.offset < ends[position.partition] for position in consumer.position(waiting)):
        batch = _batch(consumer, 10_000)
        messages += batch
        patience.note(progress=bool(batch), what=f"{len(messages)} messages")
    return messages


def _read(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    patience = Patience(IDLE_SECONDS)
    while len(messages) < count:
        batch = _batch(consumer, min(10_000, count - len(messages)))
        messages += batch
        patience.note(progress=bool(batch), what=f"{len(messages)} of {count} messages")
    return messages


def _batch(consumer: Consumer, count: int) -> list[Message]:
    """Return the available messages, read one by one.

    `Consumer.consume` takes many messages at once, and drops those that have become outdated meanwhile. On a busy machine it left a
    position at the end of 2,000 stored records, 54 of which were never returned.
    """
    messages: list[Message] = []
    while len(messages) < count and (message := consumer.poll(0.2)) is not None:
        messages += _good([message])
    return messages


def _good(batch: list[Message]) -> list[Message]:
    errors = [message.error() for message in batch if message.error() and not message.error().retriable()]
    assert not [error for error in errors if error.fatal()], errors
    return [message for message in batch if not message.error()]
