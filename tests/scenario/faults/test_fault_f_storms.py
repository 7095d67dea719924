"""Rows F1 and F2: storms of connections from one address, and from thousands of addresses."""

import asyncio
import contextlib
import socket

import pytest

from proxy.config.model import Connections, Quotas
from quota.entity import DEFAULT
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of
from tests.support.scripted.scripted_sockets import HOST, guarded

ATTEMPTS = 2_000
RATE = 20
HELD_MAX = 1_024
STORM_HOST, CALM_HOST = "127.0.0.2", "127.0.0.3"


async def _attempt(port: int, source: str) -> socket.socket | None:
    """Connect from an address; return None when the connection fails."""
    sock = socket.socket()
    sock.setblocking(False)
    try:
        sock.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
    except OSError:
        sock.close()
        return None
    return sock


async def _storm(sluice: RunningGateway, sources: list[str]) -> list[socket.socket]:
    """Connect once from each source, a hundred at a time."""
    sockets: list[socket.socket] = []
    for at in range(0, len(sources), 100):
        batch = await asyncio.gather(*(_attempt(sluice.port, source) for source in sources[at : at + 100]))
        sockets += [sock for sock in batch if sock is not None]
    return sockets


@pytest.mark.timeout(120)
async def test_f01_a_storm_from_one_address() -> None:
    """A storm from one address gets no more connections than its rate allows, and a client of another address is served meanwhile."""
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=Quotas(window_num=2), clean=False) as sluice:
        sluice.app.connection_limits.apply_rates({DEFAULT: RATE})
        admission = sluice.app.admission
        held_most = 0

        async def watch() -> None:
            nonlocal held_most
            while True:
                held_most = max(held_most, admission.held)
                await asyncio.sleep(0.001)

        loop = asyncio.get_running_loop()
        began = loop.time()
        watching = asyncio.ensure_future(watch())
        storm = asyncio.ensure_future(_storm(sluice, [STORM_HOST] * ATTEMPTS))
        for number in range(10):
            async with await sluice.client(source=CALM_HOST) as calm:
                assert correlation_id_of(await calm.ask(api_versions_request(number))) == number
        sockets = await guarded(storm)
        let_in = sluice.counters.upstream_connects - 10
        elapsed_s = loop.time() - began
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        assert RATE <= let_in <= RATE * (elapsed_s + 1) + 1
        assert len(broker.connections) >= sluice.counters.upstream_connects - 1
        assert 0 < held_most <= HELD_MAX
        refused = sluice.closes.get("ip_connection_rate", 0) + sluice.closes.get("ip_connection_rate_unheld", 0) + admission.held
        assert sluice.counters.connections_accepted["test"] == let_in + 10 + refused
        assert admission.quotas.total == len(sluice.connections)
        for sock in sockets:
            sock.close()


@pytest.mark.timeout(120)
async def test_f02_a_storm_from_two_thousand_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm from 2,000 addresses is limited by the rate of the process, and the table of addresses keeps its limit of entries."""
    limits = Connections(max_connection_creation_rate=1_000)
    sources = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(ATTEMPTS)]
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=Quotas(window_num=2), connections=limits) as sluice:
        ips = sluice.app.admission.quotas.ips
        monkeypatch.setattr(ips, "_rates_max", 500)
        sluice.app.connection_limits.apply_rates({DEFAULT: RATE})
        loop = asyncio.get_running_loop()
        began = loop.time()
        sockets = await guarded(_storm(sluice, sources))
        let_in = sluice.counters.upstream_connects
        assert let_in <= 1_000 * (loop.time() - began + 1) + 1
        for sock in sockets:
            sock.close()
        async with await sluice.client() as fresh:
            assert correlation_id_of(await fresh.ask(api_versions_request(1))) == 1
        assert len(ips) == 500
        assert ips.forgotten >= ATTEMPTS - 500
