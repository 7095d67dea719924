"""Clients that disconnect to avoid a throttle gain at most one request over their quota."""

import asyncio

import pytest

from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import fetch_request, produce_of_size
from tests.support.scripted.scripted_sockets import until

BOUND = 10_000.0
REQUEST_BYTES = 150_000
"""Five seconds of the bound more than the first window allows."""
ROUNDS = 20

MODES = pytest.mark.parametrize("mode", ["delay", "mute"])


async def leave(client: ScriptedClient, how: str) -> None:
    """Close, half-close or reset the connection."""
    if how == "half-close":
        client.half_close()
        await asyncio.sleep(0.02)
    elif how == "close":
        client.close()
    else:
        await asyncio.sleep(0.02)
        client.reset()


@MODES
@pytest.mark.parametrize("how", ["half-close", "close", "reset"])
async def test_produce_and_leave(mode: str, how: str) -> None:
    """Of twenty-one producers that disconnect after their request, only the first reaches the broker; the others wait for its throttle."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, table=quotas(produce=BOUND), clean=False) as sluice:
        first = await sluice.client()
        await first.send(produce_of_size(REQUEST_BYTES, 1))
        await leave(first, how)
        await until(lambda: sum(group.recorded_total for group in sluice.groups()) > 0)
        for _ in range(ROUNDS):
            client = await sluice.client()
            await client.send(produce_of_size(REQUEST_BYTES, 1))
            await leave(client, how)
        assert sum(len(connection.requests) for connection in broker.connections) == 1


@MODES
async def test_fetch_and_half_close(mode: str) -> None:
    """Of twenty consumers that half-close after a Fetch, only those within the quota reach the broker."""
    answer_bytes = 50_000
    async with (
        ScriptedBroker(records=bytes(answer_bytes)) as broker,
        open_gateway(broker, mode=mode, table=quotas(fetch=BOUND), clean=False) as sluice,
    ):
        for _ in range(ROUNDS):
            client = await sluice.client()
            await client.send(fetch_request(1))
            client.half_close()
            await asyncio.sleep(0.02)
        assert sum(len(connection.requests) for connection in broker.connections) <= 3
