"""Switches on a running proxy with sockets: waiting clients continue, and no connection is closed."""

from pathlib import Path
from typing import Any

import pytest

from proxy.config.model import Connections, Quotas
from proxy.quota_store.store import SwitchChange
from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of, produce_of_size
from tests.support.scripted.scripted_sockets import HOST, until

SHORT = Quotas(window_num=2)
"""Two samples of one second: a rate of N lets N connect at once."""


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_a_held_answer_leaves_when_its_client_is_switched(mode: str) -> None:
    """A switch releases the held response of its client, which is throttled again once the switch is removed."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1_000.0)) as sluice:
        client = await sluice.client()
        await client.send(produce_of_size(70_000, 1))
        await until(lambda: any(one.session.responses.held.until_ms for one in sluice.connections))
        sluice.app.apply_switches({"entity:user=ANONYMOUS": mode})
        assert correlation_id_of(await client.read_frame()) == 1
        assert correlation_id_of(await client.ask(produce_of_size(70_000, 2))) == 2
        sluice.app.apply_switches({})
        await client.send(produce_of_size(70_000, 3))
        await until(lambda: any(one.session.responses.held.until_ms for one in sluice.connections))
        sluice.app.apply_switches({"all": "observe"})
        assert correlation_id_of(await client.read_frame()) == 3
        assert sluice.closes == {}


async def test_an_address_that_is_switched_off_comes_as_fast_as_it_likes() -> None:
    """A switched-off address is neither counted nor held by its rate, and other addresses still are."""
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT, clean=False) as sluice:
        sluice.app.connection_limits.apply_rates({HOST: 1, "127.0.0.2": 0})
        sluice.app.apply_switches({f"entity:ip={HOST}": "off"})
        for _ in range(5):
            assert correlation_id_of(await (await sluice.client()).ask(api_versions_request(1))) == 1
        await sluice.client(source="127.0.0.2")
        await until(lambda: sluice.app.admission.held == 1)
        assert [key for key, _ in sluice.app.admission.quotas.ips.rates()] == [(-1, "127.0.0.2")]


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_who_waits_at_a_listener_comes_in(mode: str) -> None:
    """A connection that waits for its listener's rate is served as soon as the listener is switched."""
    limits = Connections(max_connection_creation_rate=1)
    slow: Any = Quotas(window_num=60)
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=slow, connections=limits, clean=False) as sluice:
        for _ in range(60):
            sluice.app.admission.quotas.broker_rate.record_one(sluice.app.state.now_ms())
        client = await sluice.client()
        admission = sluice.app.admission.listeners["test"]
        await until(lambda: admission.blocked_since_ms is not None)
        sluice.app.apply_switches({"listener:test": mode})
        assert correlation_id_of(await client.ask(api_versions_request(1))) == 1
        before = admission.quota.rate.recorded_total
        assert correlation_id_of(await (await sluice.client()).ask(api_versions_request(1))) == 1
        assert admission.quota.rate.recorded_total - before == (1 if mode == "observe" else 0)


async def test_the_exempt_list_is_live() -> None:
    """A reload exempts a principal and revokes it, on an open connection."""
    table = quotas(produce=1_000.0)
    async with ScriptedBroker() as broker, open_gateway(broker, table=table) as sluice:
        client = await sluice.client()
        assert await sluice.reload(quotas=Quotas(exempt=("User:ANONYMOUS",)))
        for number in range(1, 4):
            assert correlation_id_of(await client.ask(produce_of_size(70_000, number))) == number
        assert sluice.app.usages.snapshot()[0].exempt_bytes_total > 200_000
        assert sluice.app.counters.throttles == {}
        assert await sluice.reload(quotas=Quotas())
        await client.send(produce_of_size(70_000, 4))
        await until(lambda: any(one.session.responses.held.until_ms for one in sluice.connections))
        sluice.app.apply_switches({"all": "off"})
        assert correlation_id_of(await client.read_frame()) == 4


async def test_a_switch_in_the_store_is_in_force(tmp_path: Path) -> None:
    """A switch that is written to the store applies at once, and again after a restart."""
    path = tmp_path / "quotas.toml"
    path.write_text('[[quota]]\nclient-id = "<default>"\nproducer_byte_rate = 1000\n')
    async with ScriptedBroker() as broker:
        async with open_gateway(broker, quotas=Quotas(path=path)) as sluice:
            client = await sluice.client()
            await client.send(produce_of_size(70_000, 1))
            await until(lambda: any(one.session.responses.held.until_ms for one in sluice.connections))
            await sluice.app.quotas.alter(lambda _content: (None, [SwitchChange("all", "observe")]))
            assert correlation_id_of(await client.read_frame()) == 1
        async with open_gateway(broker, quotas=Quotas(path=path)) as sluice:
            client = await sluice.client()
            for number in (1, 2):
                assert correlation_id_of(await client.ask(produce_of_size(70_000, number))) == number
