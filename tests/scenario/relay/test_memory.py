"""A process at its byte budget accepts no new client, serves open connections, and recovers."""

import asyncio

from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import fetch_request
from tests.support.scripted.scripted_sockets import until

RECORDS = b"r" * 8_000_000
BUDGET = 200_000


async def test_f11_memory_pressure_pauses_refuses_and_passes() -> None:
    """When a slow reader fills the budget, broker reads and accepts pause, and both clients get their responses in the end."""
    async with ScriptedBroker(records=RECORDS) as broker, open_gateway(broker, limits={"process_buffer_bytes_max": BUDGET}) as sluice:
        slow = await sluice.client(receive_bytes=4_096)
        await slow.send(fetch_request(1))
        await until(lambda: sluice.counters.memory_pressure == 2)
        (connection,) = sluice.connections
        assert "memory" in connection.broker.paused_for
        latecomer = await sluice.client()
        accepted = dict(sluice.counters.connections_accepted)
        await latecomer.send(fetch_request(2))
        await asyncio.sleep(0)
        assert sluice.counters.connections_accepted == accepted
        for client in (slow, latecomer):
            assert RECORDS in await client.read_frame()
        await until(lambda: sluice.counters.memory_pressure == 0)
        assert sluice.counters.memory_pauses >= 1
