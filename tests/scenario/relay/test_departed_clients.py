"""Clients that leave in order not to wait, over real sockets: each way of leaving buys what the quota lets pass, and one request."""

import asyncio

import pytest

from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import fetch_request, produce_of_size
from tests.support.scripted.scripted_sockets import until

BOUND = 10_000.0
REQUEST_BYTES = 150_000
"""Five seconds more than the first window holds."""
ROUNDS = 20

MODES = pytest.mark.parametrize("mode", ["delay", "mute"])


async def leave(client: ScriptedClient, how: str) -> None:
    """End the connection, or only this side of it."""
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
    """Of twenty producers in turn, each gone when its request is sent, one reaches the broker: the others serve its throttle first."""
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
    """Of twenty consumers in turn that close their side behind a fetch, those are served that the quota has room for."""
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
