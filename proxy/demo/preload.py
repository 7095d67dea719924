"""Writes records to a topic before the run, directly to the brokers."""

from proxy.demo.children import DemoError
from proxy.demo.clients.cast import PRELOADED_PARTITION_BYTES

FLUSH_SECONDS = 20


def preload(bootstrap: str, topic: str, partitions: int, record_bytes: int) -> None:
    """Fill every partition with records of `record_bytes`, each in a separate batch.

    Raises:
        DemoError: the brokers did not store all records.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1, "linger.ms": 0, "log_level": 0})
    payload = bytes(record_bytes)
    for _ in range(PRELOADED_PARTITION_BYTES // record_bytes):
        for partition in range(partitions):
            producer.produce(topic, payload, partition=partition)
        producer.flush(FLUSH_SECONDS)
    if left := producer.flush(FLUSH_SECONDS):
        raise DemoError(f"{left} records could not be stored")
