"""aiokafka as a client under test."""

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.support.clients.outcome import FLUSH_SECONDS


def produce(bootstrap: str, topic: str, values: Iterable[bytes], codec: str = "none") -> int:
    """Send `values` and wait for their answers. Returns how many were acknowledged."""
    return asyncio.run(asyncio.wait_for(_produce(bootstrap, topic, values, codec), FLUSH_SECONDS))


async def _produce(bootstrap: str, topic: str, values: Iterable[bytes], codec: str) -> int:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5, enable_idempotence=True
    ) as producer:
        answers = [await producer.send(topic, value) for value in values]
        return len(await asyncio.gather(*answers))


def consume(bootstrap: str, topic: str, count: int, group: str) -> list[bytes]:
    """Read `count` values as a member of a consumer group, from the beginning."""
    return asyncio.run(asyncio.wait_for(_consume(bootstrap, topic, count, group), FLUSH_SECONDS))


async def _consume(bootstrap: str, topic: str, count: int, group: str) -> list[bytes]:
    values: list[bytes] = []
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
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
