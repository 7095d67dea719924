"""Listeners with upstreams of their own: each returns its own addresses, and traffic through both counts for the same broker."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.messages.metadata import read_topology
from proxy.base.host_port import HostPort
from proxy.config.model import Listener
from proxy.config.sections.upstream import Upstream
from quota.entity import ClientQuotaType
from tests.support.ports import free_bootstrap_port
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import metadata_request, produce_of_size
from tests.support.scripted.scripted_sockets import HOST, until

METADATA_V12 = API_VERSIONS[ApiKey.METADATA << 16 | 12]
NODE = 1


@contextlib.asynccontextmanager
async def two_routes(main: ScriptedBroker, other: ScriptedBroker, *, met: bool = True) -> AsyncIterator[RunningGateway]:
    """Run Sluice with the listener `test`, which uses `[upstream]`, and the listener `other`, which has its own upstream."""
    listeners = (
        Listener(address=HostPort(HOST, free_bootstrap_port()), name="test"),
        Listener(address=HostPort(HOST, free_bootstrap_port()), name="other", upstream=Upstream(bootstrap=(HostPort(HOST, other.port),))),
    )
    async with open_gateway(main, listeners=listeners, table=quotas(produce=1_000_000)) as sluice:
        if met:
            await until(lambda: sluice.gateway.routes.of("other").book.upstream != {})
            await until(lambda: all(probe.ended is not None for probe in other.probes))
            sluice.remember_descriptors()
        yield sluice


async def reported(sluice: RunningGateway, port: int) -> int:
    """Return the port of the broker in a Metadata response from a bootstrap port."""
    client = await sluice.client(port)
    (broker,) = read_topology(METADATA_V12, await client.ask(metadata_request())).brokers
    assert (broker.node_id, broker.host) == (NODE, HOST)
    client.close()
    return broker.port


async def test_each_listener_leads_to_its_own() -> None:
    """Each listener's Metadata response names its own ports, which lead to the broker through that listener's upstream."""
    async with ScriptedBroker() as plain, ScriptedBroker() as secure, two_routes(plain, secure) as sluice:
        first, second = (listener.bootstrap_port for listener in sluice.listeners)
        ports = [await reported(sluice, first), await reported(sluice, second)]
        assert ports == [listener.client_port(NODE) for listener in sluice.listeners]
        assert len({first, second, *ports}) == 4
        for broker, port in ((plain, ports[0]), (secure, ports[1])):
            before = len(broker.requests)
            client = await sluice.client(port)
            await client.ask(produce_of_size(2_000, 1))
            assert len(broker.requests) == before + 1
            client.close()


async def test_a_broker_counts_once() -> None:
    """Requests through two listeners to one broker are counted in one group."""
    async with ScriptedBroker() as plain, ScriptedBroker() as secure, two_routes(plain, secure) as sluice:
        sent = 0
        for listener in (*sluice.listeners, *sluice.listeners):
            client = await sluice.client(listener.client_port(NODE))
            frame = produce_of_size(2_000, 1)
            await client.ask(frame)
            sent += len(frame) - 4
            client.close()
        (scope,) = (scope for scope in sluice.app.scopes.all() if scope.label == str(NODE))
        (group,) = (group for group in scope.produce.groups() if group.recorded_total)
        assert scope.produce.quota_type is ClientQuotaType.PRODUCE
        assert group.recorded_total == pytest.approx(sent, abs=8)


async def test_a_route_that_leads_nowhere() -> None:
    """/readyz names the upstream that cannot be reached, and clients of the other listener are served."""
    async with ScriptedBroker() as plain, ScriptedBroker() as secure:
        await secure.stop_listening()
        async with two_routes(plain, secure, met=False) as sluice:
            await until(lambda: sluice.app.probers["listener.other.upstream"].error is not None)
            checks = {check.name: check.ok for check in sluice.app.state.readiness()}
            assert checks == {"listeners": True, "upstream": True, "listener.other.upstream": False, "quota_source": True}
            assert await reported(sluice, sluice.port) == sluice.broker_port(NODE)
            lost = await sluice.client(sluice.listeners[1].bootstrap_port)
            await lost.read_to_end()
            await sluice.until_closed("upstream_unreachable")
