"""One port for all brokers, selected by the server name (SNI) of a client's TLS hello."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.messages.metadata import read_topology
from proxy.base.networks import networks_of
from proxy.config.model import Connections, Enforcement, Scope
from proxy.config.sections.credentials import TlsFiles, client_context
from proxy.config.sections.tls import ListenerSni
from proxy.net.accept import first_bytes
from tests.support.frames.tls_hellos import hello
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.proxy_headers import v2_header
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import metadata_request, produce_answer, produce_request
from tests.support.scripted.scripted_sockets import HOST, until
from tests.support.scripted.scripted_tls import ScriptedTls
from tests.support.tls.tls_fixture import ProxyFixture, TlsClient

BOOTSTRAP = "kafka.example.org"
SNI = ListenerSni(bootstrap=BOOTSTRAP, broker="broker-{node_id}.kafka.example.org")
GENEROUS = msgspec.structs.replace(SNI, others="bootstrap")
UNRECOGNIZED_NAME = bytes.fromhex("15030300020270")


@pytest.fixture
def proxy(tmp_path: Path) -> ProxyFixture:
    """Return TLS files with one certificate for all names."""
    return ProxyFixture(tmp_path, BOOTSTRAP, "*.kafka.example.org")


Running = tuple[RunningGateway, ScriptedBroker, ScriptedBroker]


@contextlib.asynccontextmanager
async def in_front_of_two(proxy: ProxyFixture, sni: ListenerSni = SNI, **settings: Any) -> AsyncIterator[Running]:
    """Run Sluice with SNI before brokers 1 (bootstrap) and 2, and check at the end that no connection is left."""
    async with ScriptedBroker() as first, ScriptedBroker(node_id=2) as second:
        first.nodes = second.nodes = [first.node, second.node]
        listeners = settings.pop("listeners", (proxy.listener(sni),))
        async with open_gateway(first, listeners=listeners, clean=False, **settings) as sluice:
            await until(lambda: len(sluice.gateway.book.upstream) == 2)
            yield sluice, first, second
            await until(lambda: not sluice.gateway.connections and not sluice.gateway._closing and not sluice.gateway._tasks)
            assert sluice.listeners[0].admission.quota.connections == 0
            assert len(sluice.app.client_listeners._hellos) == 0
            assert sluice.counters.internal_errors == 0


def to(node_id: int) -> str:
    """Return the host name of a broker."""
    return f"broker-{node_id}.kafka.example.org"


async def produce(client: TlsClient, correlation_id: int = 1) -> None:
    """Send a Produce and check its response."""
    assert await client.ask(produce_request(correlation_id, bytes(200_000))) == produce_answer(9, correlation_id)


async def test_the_name_chooses_the_broker_and_answers_name_names(proxy: ProxyFixture) -> None:
    """Metadata names each broker by a host name at the same port, and a connection with that name reaches that broker."""
    async with in_front_of_two(proxy) as (sluice, first, second):
        client = await proxy.connect(sluice.port, name=BOOTSTRAP)
        topology = read_topology(API_VERSIONS[ApiKey.METADATA << 16 | 12], await client.ask(metadata_request(3)))
        reported = {broker.node_id: (broker.host, broker.port) for broker in topology.brokers}
        assert reported == {node_id: (to(node_id), sluice.port) for node_id in (1, 2)}
        for node_id, broker in ((1, first), (2, second)):
            host, port = reported[node_id]
            at_broker = await proxy.connect(port, name=host.upper())
            await produce(at_broker, node_id)
            assert broker.connections[-1].requests[-1].frame == produce_request(node_id, bytes(200_000))
            await at_broker.close()
        await client.close()
        assert list(sluice.listeners[0].acceptors) == [None], "brokers have no ports of their own"
        await sluice.until_closed("client_closed", 3)


async def test_clients_receive_the_port_of_the_balancer_before(proxy: ProxyFixture) -> None:
    """Metadata responses carry `advertised_port` instead of the listener's own port."""
    async with in_front_of_two(proxy, msgspec.structs.replace(SNI, advertised_port=443)) as (sluice, _, _):
        client = await proxy.connect(sluice.port, name=BOOTSTRAP)
        topology = read_topology(API_VERSIONS[ApiKey.METADATA << 16 | 12], await client.ask(metadata_request(3)))
        assert {(broker.host, broker.port) for broker in topology.brokers} == {(to(1), 443), (to(2), 443)}
        await client.close()


@pytest.mark.parametrize("name", [None, "other.example.org", to(3)])
async def test_a_name_that_leads_nowhere_is_refused(proxy: ProxyFixture, name: str | None) -> None:
    """An unknown server name gets the TLS alert `unrecognized_name`, and no broker is connected."""
    async with in_front_of_two(proxy) as (sluice, _, _):
        client = await sluice.client()
        await client.send(hello(name))
        assert await client.read_to_end() == UNRECOGNIZED_NAME
        await sluice.until_closed("server_name_unknown")
        assert sluice.counters.upstream_connects == 0


async def test_a_client_understands_the_refusal(proxy: ProxyFixture) -> None:
    """OpenSSL reports the refusal of an unknown server name as `unrecognized_name`."""
    async with in_front_of_two(proxy) as (sluice, _, _):
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            await proxy.connect(sluice.port, name="other.example.org")
        await sluice.until_closed("server_name_unknown")


@pytest.mark.parametrize("name", ["", "other.example.org"])
async def test_other_names_may_lead_to_the_bootstrap(proxy: ProxyFixture, name: str) -> None:
    """With `others = "bootstrap"` other names lead to the bootstrap broker, and the name of an unknown broker is still refused."""
    async with in_front_of_two(proxy, GENEROUS) as (sluice, first, _):
        context = client_context(TlsFiles(), verify=False, now_s=0)
        client = TlsClient(*await asyncio.open_connection(HOST, sluice.port, ssl=context, server_hostname=name))
        await produce(client)
        assert len(first.connections) == 1
        await client.close()
        stranger = await sluice.client()
        await stranger.send(hello(to(3)))
        assert await stranger.read_to_end() == UNRECOGNIZED_NAME


async def test_a_hello_that_comes_byte_by_byte(proxy: ProxyFixture) -> None:
    """A hello that arrives byte by byte is read for its name, and the handshake then gets all of its bytes."""
    async with in_front_of_two(proxy) as (sluice, _, second):
        client = ScriptedTls(await sluice.client(), proxy.context(), to(2))
        for byte in client.next_words():
            await client.client.send(bytes([byte]))
            await asyncio.sleep(0)
        await client.shake_hands()
        assert await client.ask(produce_request(7)) == produce_answer(9, 7)
        assert len(second.connections) == 1
        client.client.close()


async def test_what_says_nothing_or_something_else(proxy: ProxyFixture) -> None:
    """Other protocols, silent clients and unfinished hellos are closed with their reasons, and no broker is connected."""
    async with in_front_of_two(proxy, limits={"tls_handshake_ms": 600}) as (sluice, _, _):
        for first in (b"GET / HTTP/1.1\r\n\r\n", metadata_request(1)):
            client = await sluice.client()
            await client.send(first)
            await client.read_to_end()
        await sluice.until_closed("not_tls", 2)
        for first in (b"", hello(to(1))[:100]):
            client = await sluice.client()
            await client.send(first)
            await client.read_to_end()
        await sluice.until_closed("tls_handshake_deadline", 2)
        leaving = await sluice.client()
        await leaving.send(hello(to(1))[:100])
        leaving.close()
        await sluice.until_closed("client_closed")
        stalled = await sluice.client()
        await stalled.send(hello(to(1)))  # nothing follows: the deadline applies to the whole handshake
        await sluice.until_closed("tls_handshake_deadline", 3)
        assert sluice.counters.upstream_connects == 0


async def test_too_many_silent_clients_keep_no_client_out(proxy: ProxyFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """When too many clients have sent no hello, the oldest is closed, and a new client is served."""
    monkeypatch.setattr(first_bytes, "WAITING_MAX", 3)
    async with in_front_of_two(proxy) as (sluice, _, _):
        silent = [await sluice.client() for _ in range(3)]
        await until(lambda: len(sluice.app.client_listeners._hellos) == 3)
        good = await proxy.connect(sluice.port, name=BOOTSTRAP)
        await produce(good)
        assert await silent[0].read_to_end() == b""
        assert sluice.closes == {"tls_handshake_deadline": 1}
        for client in silent:
            client.close()
        await good.close()


@pytest.mark.parametrize(("scope", "second"), [("broker", True), ("cluster", False)])
async def test_addresses_count_at_each_broker(proxy: ProxyFixture, scope: Scope, *, second: bool) -> None:
    """With scope `broker` an address has one connection to each broker, with scope `cluster` one in all."""
    limits = Connections(max_connections_per_ip=1)
    async with in_front_of_two(proxy, connections=limits, enforcement=Enforcement(scope=scope)) as (sluice, _, _):
        client = await proxy.connect(sluice.port, name=to(1))
        await produce(client)
        for name, may in ((to(2), second), (to(1), False)):
            if may:
                other = await proxy.connect(sluice.port, name=name)
                await produce(other)
                await other.close()
            else:
                with pytest.raises((OSError, ssl.SSLError)):
                    await proxy.connect(sluice.port, name=name)
        await sluice.until_closed("max_connections_per_ip", 1 if second else 2)
        await client.close()


async def test_behind_a_balancer(proxy: ProxyFixture) -> None:
    """After a PROXY header the hello selects the broker, and the connection has the address of the header."""
    listener = msgspec.structs.replace(proxy.listener(SNI), proxy_protocol_from=networks_of(["127.0.0.0/8"]))
    async with in_front_of_two(proxy, listeners=(listener,)) as (sluice, _, second):
        reader, writer = await asyncio.open_connection(HOST, sluice.port)
        writer.write(v2_header(("192.0.2.7", 56_324)))
        await writer.start_tls(proxy.context(), server_hostname=to(2))
        client = TlsClient(reader, writer)
        await produce(client)
        assert [connection.peer for connection in sluice.connections] == [("192.0.2.7", 56_324)]
        assert len(second.connections) == 1
        await client.close()


async def test_the_end_of_the_process_ends_who_waits(proxy: ProxyFixture) -> None:
    """A drain closes connections that have sent no hello yet."""
    async with in_front_of_two(proxy) as (sluice, _, _):
        silent = await sluice.client()
        await until(lambda: len(sluice.app.client_listeners._hellos) == 1)
        await sluice.app.drain()
        assert await silent.read_to_end() == b""
        assert sluice.closes == {"drain": 1}
