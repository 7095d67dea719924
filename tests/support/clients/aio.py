"""aiokafka as a client under test."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.support.clients.outcome import FLUSH_SECONDS

Settings = Mapping[str, Any]


def produce(bootstrap: str, topic: str, values: Iterable[bytes], codec: str = "none", settings: Settings | None = None) -> int:
    """Send `values` and wait for their answers. Returns how many were acknowledged."""
    return asyncio.run(asyncio.wait_for(_produce(bootstrap, topic, values, codec, settings or {}), FLUSH_SECONDS))


async def _produce(bootstrap: str, topic: str, values: Iterable[bytes], codec: str, settings: Settings) -> int:
    compression = None if codec == "none" else codec
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=compression, linger_ms=5, enable_idempotence=True, **settings
    ) as producer:
        answers = [await producer.send(topic, value) for value in values]
        return len(await asyncio.gather(*answers))


def consume(bootstrap: str, topic: str, count: int, group: str, settings: Settings | None = None) -> list[bytes]:
    """Read `count` values as a member of a consumer group, from the beginning."""
    return asyncio.run(asyncio.wait_for(_consume(bootstrap, topic, count, group, settings or {}), FLUSH_SECONDS))


async def _consume(bootstrap: str, topic: str, count: int, group: str, settings: Settings) -> list[bytes]:
    values: list[bytes] = []
    base = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, **base, **settings) as consumer:
        while len(values) < count:
            batches = await consumer.getmany(timeout_ms=500, max_records=count - len(values))
            values += [record.value for batch in batches.values() for record in batch]
    return values


def transact(bootstrap: str, topic: str, batches: Iterable[tuple[list[bytes], bool]], transactional_id: str) -> None:
    """Send each batch in a transaction of its own and commit it, or abort it where its flag is False."""
    asyncio.run(asyncio.wait_for(_transact(bootstrap, topic, batches, transactional_id), FLUSH_SECONDS))


async def _transact(bootstrap: str, topic: str, batches: Iterable[tuple[list[bytes], bool]], transactional_id: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer:
        for values, commits in batches:
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
