"""The plain case: clients and a broker that follow the protocol."""

import pytest

from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import (
    FETCH,
    FETCH_VERSIONS,
    PRODUCE,
    PRODUCE_VERSIONS,
    fetch_answer,
    fetch_request,
    metadata_request,
    produce_answer,
    produce_request,
    throttle_ms_of,
)


async def test_every_version_of_produce_and_fetch_passes_as_it_is() -> None:
    """Within the quota Produce and Fetch requests and their responses are forwarded unchanged in all versions."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9, fetch=1e9)) as sluice:
        client = await sluice.client(sluice.broker_port(1))
        asked = []
        for version in PRODUCE_VERSIONS:
            asked.append(produce_request(version, version=version))
            assert await client.ask(asked[-1]) == produce_answer(version, version)
        for version in FETCH_VERSIONS:
            asked.append(fetch_request(version, version=version))
            assert await client.ask(asked[-1]) == fetch_answer(version, version, broker.records)
        assert [request.frame for request in broker.connections[0].requests] == asked


async def test_metadata_names_the_gateway_only() -> None:
    """Metadata responses name Sluice's port in place of the broker's, and that port serves requests."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        answer = await client.ask(metadata_request(3))
        assert broker.port.to_bytes(4, "big") not in answer
        assert sluice.broker_port(1).to_bytes(4, "big") in answer
        at_broker = await sluice.client(sluice.broker_port(1))
        assert await at_broker.ask(produce_request(4)) == produce_answer(9, 4)


@pytest.mark.parametrize("mode", ["delay", "mute", "observe"])
async def test_a_verdict_is_announced_unless_only_observed(mode: str) -> None:
    """A response over the quota carries a throttle time in `mute` and in `delay` beyond `delay_max_ms`, and none in `observe`."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, delay_max_ms=0, table=quotas(produce=10_000)) as sluice:
        client = await sluice.client()
        answer = await client.ask(produce_request(1, bytes(105_000)))
        announced = throttle_ms_of(PRODUCE, 9, answer)
        assert announced == 0 if mode == "observe" else 100 < announced < 3_000
        assert throttle_ms_of(FETCH, 12, fetch_answer(12, 1, b"", throttle_ms=5)) == 5
