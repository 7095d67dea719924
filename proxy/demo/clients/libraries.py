"""The clients, each with an unmodified Kafka library. They do not depend on the proxy.

A client counts a record when its library reports the acknowledgement, or returns the record.
"""

import asyncio
import contextlib
import threading
import time
from typing import Any, Final

from proxy.base.clock import now_ms
from proxy.demo.pace import Pace
from proxy.demo.report import Stage, Task

IN_FLIGHT_MAX: Final = 5
FLUSH_SECONDS: Final = 8.0


def confluent_producer(task: Task, stage: Stage) -> None:
    """Produce with confluent-kafka (librdkafka); at most five requests in flight, with one record each."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": task.bootstrap, "client.id": task.topic, "linger.ms": 0, "batch.num.messages": 1, "log_level": 0}
    producer = Producer(settings)
    producer.list_topics(task.topic, timeout=10)
    under_way = 0

    def answered(error: object, record: Any) -> None:
        nonlocal under_way
        under_way -= 1
        if error is None:
            stage.passed(len(record.value()))

    payload = bytes(task.record_bytes)
    pace = Pace(task.interval_ms, stage.wait_for_go())
    end_ms = pace.due_ms + task.seconds * 1_000
    while (now := now_ms()) < end_ms:
        if now < pace.due_ms or under_way >= IN_FLIGHT_MAX:
            producer.poll(max(pace.due_ms - now, 1) / 1_000)
            continue
        producer.produce(task.topic, payload, partition=0, on_delivery=answered)
        under_way += 1
        pace.done(now)
        producer.poll(0)
    producer.flush(FLUSH_SECONDS)


def kafka_python_producer(task: Task, stage: Stage) -> None:
    """Produce with kafka-python; at most five requests in flight, with one record each."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=task.bootstrap, client_id=task.topic, linger_ms=0, batch_size=0)
    producer.partitions_for(task.topic)
    may_send = threading.Semaphore(IN_FLIGHT_MAX)

    def answered(_metadata: object) -> None:
        may_send.release()
        stage.passed(task.record_bytes)

    def failed(_error: object) -> None:
        may_send.release()

    payload = bytes(task.record_bytes)
    pace = Pace(task.interval_ms, stage.wait_for_go())
    end_ms = pace.due_ms + task.seconds * 1_000
    while now_ms() < end_ms:
        time.sleep(max(pace.due_ms - now_ms(), 0) / 1_000)
        if may_send.acquire(timeout=0.1):
            pace.done(now_ms())
            sent = producer.send(task.topic, payload, partition=0)
            sent.add_callback(answered)
            sent.add_errback(failed)
    producer.flush(FLUSH_SECONDS)
    producer.close(FLUSH_SECONDS)


def aiokafka_consumer(task: Task, stage: Stage) -> None:
    """Consume with aiokafka from the beginning, one record in each response."""
    asyncio.run(_consume(task, stage))


async def _consume(task: Task, stage: Stage) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap,
        client_id=task.topic,
        auto_offset_reset="earliest",
        fetch_max_bytes=task.record_bytes,
        max_partition_fetch_bytes=task.record_bytes,
        enable_auto_commit=False,
    )
    async with consumer:
        pace = Pace(task.interval_ms, stage.wait_for_go())
        consumer.assign([TopicPartition(task.topic, partition) for partition in range(task.partitions)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(task.seconds):
                async for record in consumer:
                    stage.passed(len(record.value))
                    pace.done(now_ms())
                    await asyncio.sleep(max(pace.due_ms - now_ms(), 0) / 1_000)
