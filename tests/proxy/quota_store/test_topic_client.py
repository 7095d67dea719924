"""Stopping a client of aiokafka whose `stop` ends in the middle."""

import asyncio

import pytest
from aiokafka.errors import KafkaError

from proxy.quota_store.topic.log import stop_client


class Connections:
    """The connections of a client."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Consumer:
    """Stops as aiokafka's consumer does: it cancels its fetch, awaits it, and then closes its connections."""

    def __init__(self) -> None:
        self._client = Connections()
        self._fetch = asyncio.ensure_future(asyncio.sleep(3_600))

    async def stop(self) -> None:
        self._fetch.cancel()
        await self._fetch
        await self._client.close()


async def test_a_fetch_that_was_cancelled() -> None:
    """A consumer whose fetch waits for its next try ends without an error, and its connections are closed."""
    consumer = Consumer()
    await stop_client(consumer)
    assert consumer._client.is_closed


async def test_an_error_of_the_brokers() -> None:
    """An error while a client stops is no error of who stops it."""

    class Producer:
        async def stop(self) -> None:
            raise KafkaError

    await stop_client(Producer())


async def test_a_stop_that_is_cancelled_itself() -> None:
    """Cancelling who stops a client cancels it."""

    class Producer:
        async def stop(self) -> None:
            await asyncio.sleep(3_600)

    stopping = asyncio.create_task(stop_client(Producer()))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
