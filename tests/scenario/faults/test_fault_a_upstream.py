"""Rows A3, A4, A5 and A9: brokers that cannot be reached, that move, that start later, or that are newer than Sluice."""

import socket

import pytest

from protocol.api_keys import API_VERSIONS as TABLE
from protocol.api_keys import HIDDEN_KEYS, MAX_VERSIONS
from protocol.messages.api_versions import read_api_keys
from protocol.messages.metadata import read_topology
from proxy.base.host_port import HostPort
from proxy.config.model import Upstream
from tests.support.frames.kafka_frames import api_versions, plain
from tests.support.ports import free_port
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_frames import (
    API_VERSIONS,
    METADATA,
    Node,
    Request,
    correlation_id_of,
    metadata_request,
    produce_request,
)
from tests.support.scripted.scripted_sockets import HOST, until

CLIENTS = 10


def ready(sluice: RunningGateway) -> dict[str, bool]:
    """Return what /readyz reports for each check."""
    return {check.name: check.ok for check in sluice.app.state.readiness()}


async def warmed_up(sluice: RunningGateway) -> int:
    """Let one client fail, because uvloop opens a descriptor of its own at the first failure, and return the number of failed clients."""
    client = await sluice.client()
    assert await client.read_to_end() == b""
    await sluice.until_closed("upstream_unreachable")
    client.close()
    sluice.remember_descriptors()
    return 1


# --- A3


async def test_a03_refused() -> None:
    """When the broker refuses connections, each client is closed after one connection attempt."""
    async with ScriptedBroker() as broker:
        await broker.stop_listening()
        async with open_gateway(broker, probed=False, serves=False) as sluice:
            for _ in range(CLIENTS - await warmed_up(sluice)):
                client = await sluice.client()
                assert await client.read_to_end() == b""
            await sluice.until_closed("upstream_unreachable", CLIENTS)
            assert sluice.counters.upstream_connects == sluice.counters.upstream_connect_failures == CLIENTS
            assert set(sluice.counters.brokers_reached.values()) == {0}


async def test_a03_black_hole() -> None:
    """A connection attempt that is not answered ends after `upstream_connect_ms`, and its client is closed."""
    hole = socket.socket()
    hole.bind((HOST, 0))
    hole.listen(0)
    fill = [socket.socket() for _ in range(4)]
    for sock in fill:
        sock.setblocking(False)
        sock.connect_ex(hole.getsockname())
    try:
        upstream = Upstream(bootstrap=(HostPort(HOST, hole.getsockname()[1]),))
        async with open_gateway(upstream=upstream, limits={"upstream_connect_ms": 200}, probed=False, serves=False) as sluice:
            clients = [await sluice.client() for _ in range(CLIENTS - await warmed_up(sluice))]
            for client in clients:
                assert await client.read_to_end() == b""
            await sluice.until_closed("upstream_unreachable", CLIENTS)
            assert sluice.counters.upstream_connects == CLIENTS
    finally:
        for sock in (*fill, hole):
            sock.close()


async def test_a03_a_name_that_leads_nowhere() -> None:
    """A broker's host name that does not resolve closes the client with `upstream_unreachable`."""
    upstream = Upstream(bootstrap=(HostPort("no-such-host.invalid", 9092),))
    async with open_gateway(upstream=upstream, probed=False, serves=False) as sluice:
        client = await sluice.client()
        assert await client.read_to_end() == b""
        await sluice.until_closed("upstream_unreachable")


async def test_a03_a_client_that_leaves_while_we_connect() -> None:
    """A client that resets while Sluice connects to its broker leaves no connection behind."""
    hole = socket.socket()
    hole.bind((HOST, 0))
    hole.listen(0)
    fill = [socket.socket() for _ in range(4)]
    for sock in fill:
        sock.setblocking(False)
        sock.connect_ex(hole.getsockname())
    try:
        upstream = Upstream(bootstrap=(HostPort(HOST, hole.getsockname()[1]),))
        async with open_gateway(upstream=upstream, limits={"upstream_connect_ms": 300}, probed=False, serves=False) as sluice:
            await warmed_up(sluice)
            client = await sluice.client()
            await until(lambda: sluice.counters.upstream_connects == 2)
            client.reset()
            await sluice.until_closed("upstream_unreachable", 2)
    finally:
        for sock in (*fill, hole):
            sock.close()


# --- A4


async def test_a04_a_broker_at_a_new_address() -> None:
    """After a Metadata response with a broker's new address, the port that clients know leads to that address."""
    async with ScriptedBroker(node_id=2) as old, ScriptedBroker(node_id=2) as new, ScriptedBroker() as bootstrap:
        bootstrap.nodes = [bootstrap.node, old.node]
        async with open_gateway(bootstrap) as sluice:
            port = sluice.broker_port(2)
            client = await sluice.client(port)
            assert correlation_id_of(await client.ask(produce_request(1))) == 1
            await (await old.connection()).close()
            await old.stop_listening()
            assert await client.read_to_end() == b""
            bootstrap.nodes = [bootstrap.node, new.node]
            asking = await sluice.client()
            topology = read_topology(TABLE[METADATA << 16 | 12], await asking.ask(metadata_request(1)))
            assert {broker.node_id: broker.port for broker in topology.brokers} == {1: sluice.broker_port(1), 2: port}
            again = await sluice.client(port)
            assert correlation_id_of(await again.ask(produce_request(2))) == 2
            assert [len(old.connections), len(new.connections)] == [1, 1]
            await old.until_quiet()


async def test_a04_a_restart_at_the_same_address() -> None:
    """Clients are closed while a broker is down, and served as soon as it listens again."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        assert correlation_id_of(await client.ask(produce_request(1))) == 1
        await broker.stop_listening()
        await (await broker.connection()).reset()
        assert await client.read_to_end() == b""
        refused = await sluice.client()
        assert await refused.read_to_end() == b""
        broker.listen()
        again = await sluice.client()
        assert correlation_id_of(await again.ask(produce_request(2))) == 2


async def test_a04_a_broker_with_a_new_id() -> None:
    """The port of a new broker accepts connections before the response that names the broker leaves."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        broker.nodes = [broker.node, Node(7, HOST, broker.port)]
        client = await sluice.client()
        topology = read_topology(TABLE[METADATA << 16 | 12], await client.ask(metadata_request(1)))
        port = next(known.port for known in topology.brokers if known.node_id == 7)
        other = await sluice.client(port)
        assert correlation_id_of(await other.ask(produce_request(1))) == 1
        for one in (client, other):
            one.close()
        await sluice.until_connections(0)
        await broker.until_quiet()
        sluice.remember_descriptors()  # the new broker's port stays open


# --- A5


async def test_a05_no_broker_at_the_start() -> None:
    """A Sluice that starts without a broker is not ready, and becomes ready when a broker listens."""
    async with ScriptedBroker() as broker:
        await broker.stop_listening()
        async with open_gateway(broker, probed=False) as sluice:
            await until(lambda: sluice.app.prober.error is not None)
            assert ready(sluice)["upstream"] is False
            broker.listen()
            await until(lambda: ready(sluice)["upstream"])
            sluice.remember_descriptors()


async def test_a05_the_first_that_can_be_reached_is_taken() -> None:
    """Clients are served when the first bootstrap addresses refuse connections."""
    async with ScriptedBroker() as broker:
        dead = [HostPort(HOST, free_port()) for _ in range(2)]
        upstream = Upstream(bootstrap=(*dead, HostPort(HOST, broker.port)))
        async with open_gateway(broker, upstream=upstream) as sluice:
            for number in range(CLIENTS):
                client = await sluice.client()
                assert correlation_id_of(await client.ask(produce_request(number))) == number
            assert sluice.counters.upstream_connect_failures == 0
            assert set(sluice.counters.brokers_reached.values()) == {1}


async def test_a05_one_that_goes_down_later() -> None:
    """When the first bootstrap broker goes down, at most one client is closed, and the next ones are served by the second broker."""
    async with ScriptedBroker() as first, ScriptedBroker() as second, open_gateway(first, second) as sluice:
        client = await sluice.client()
        assert correlation_id_of(await client.ask(produce_request(1))) == 1
        await first.stop_listening()
        await first.connections[0].reset()
        assert await client.read_to_end() == b""
        served = []
        for number in range(3):
            later = await sluice.client()
            await later.send(produce_request(number))
            served.append(await later.read_some() != b"")
        assert served in ([False, True, True], [True, True, True])
        assert len(second.connections) >= 2


# --- A9


@pytest.mark.parametrize("above", [1, 5])
@pytest.mark.parametrize("version", range(5))
async def test_a09_a_broker_that_is_newer(above: int, version: int) -> None:
    """A response to any version of ApiVersions lists only the keys and versions that Sluice knows."""
    async with ScriptedBroker() as broker:
        broker.offered = {key: (0, highest + above) for key, highest in MAX_VERSIONS.items()}
        broker.offered |= dict.fromkeys((*HIDDEN_KEYS, 500, 999), (0, 3))
        async with open_gateway(broker) as sluice:
            client = await sluice.client()
            offered = read_api_keys(version, await client.ask(api_versions(1, version)))
            assert {key: highest for key, _, highest in offered} == MAX_VERSIONS
            assert {lowest for _, lowest, _ in offered} == {0}, "minima are never raised"


@pytest.mark.parametrize("key", sorted(MAX_VERSIONS))
async def test_a09_a_version_that_we_do_not_know(key: int) -> None:
    """A request with an unknown version is not forwarded: ApiVersions gets error 35 (KIP-511), any other closes the connection."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        if key == API_VERSIONS:
            answer = await client.ask(api_versions(1, MAX_VERSIONS[key] + 1))
            assert answer[8:10] == b"\0\x23"
        else:
            frame = bytearray(plain(1, key))
            frame[6:8] = (MAX_VERSIONS[key] + 1).to_bytes(2, "big")
            await client.send(bytes(frame))
            assert await client.read_to_end() == b""
            await until(lambda: sum(sluice.closes.values()) == 1)
            assert set(sluice.closes) <= {"version_unknown", "bad_request", "api_unknown", "api_refused"}
        assert (await broker.connection()).received == b""


@pytest.mark.parametrize(("key", "reason"), [(999, "api_unknown"), (-1, "api_unknown"), (4, "api_refused"), (58, "api_refused")])
async def test_a09_keys_that_are_not_for_clients(key: int, reason: str) -> None:
    """A request with an unknown key, or a key of the inter-broker APIs, closes the connection without a response."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        frame = bytearray(plain(1))
        frame[4:8] = (key & 0xFFFF).to_bytes(2, "big") + b"\0\0"
        await client.send(bytes(frame))
        assert await client.read_to_end() == b""
        await sluice.until_closed(reason)
        assert (await broker.connection()).received == b""


async def test_a09_unknown_keys_may_pass() -> None:
    """With `unknown_apis = "pass"` an unknown API key is advertised, and its requests are forwarded."""

    async def echo(connection: BrokerConnection, request: Request) -> None:
        if request.key == 999:
            await connection.send(b"\0\0\0\x05\0\0\0\x01\x2a")
        else:
            await connection.answer(request)

    async with ScriptedBroker(echo) as broker:
        broker.offered = {METADATA: (0, 12), API_VERSIONS: (0, 4), 999: (0, 0)}
        async with open_gateway(broker, unknown_apis="pass") as sluice:
            client = await sluice.client()
            assert [key for key, _, _ in read_api_keys(0, await client.ask(api_versions(1)))] == [METADATA, API_VERSIONS, 999, 48, 49]
            frame = bytearray(plain(1))
            frame[4:8] = (999).to_bytes(2, "big") + b"\0\0"
            assert await client.ask(bytes(frame)) == b"\0\0\0\x05\0\0\0\x01\x2a"
