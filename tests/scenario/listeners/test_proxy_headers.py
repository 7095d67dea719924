"""Connections through load balancers, whose PROXY protocol header names the client."""

import asyncio
import logging

import pytest

from proxy.base.host_port import HostPort
from proxy.base.networks import networks_of
from proxy.config.model import Connections, Listener
from proxy.net.accept import first_bytes, proxy_headers
from tests.support.ports import free_bootstrap_port
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.proxy_headers import AF_UNIX, PROXY, STREAM, tlv, v1_header, v2_header, v2_local, v2_raw
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ClosedByPeerError
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of, metadata_request, produce_request
from tests.support.scripted.scripted_sockets import HOST, End, for_a_while, until

BALANCER = "127.9.9.9"
CLIENT = ("192.0.2.7", 56_324)
CLIENT6 = ("2001:db8::7", 56_324)


def behind_balancers() -> tuple[Listener, ...]:
    """Return one listener that expects a PROXY header from the balancers' network only."""
    return (Listener(address=HostPort(HOST, free_bootstrap_port()), name="test", proxy_protocol_from=networks_of(["127.9.0.0/16"])),)


def accepted_and_done(sluice: RunningGateway) -> bool:
    """Return whether each accepted connection is either open or closed with a reason."""
    return sum(sluice.counters.connections_accepted.values()) == len(sluice.connections) + sum(sluice.closes.values())


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        pytest.param(v1_header(CLIENT), CLIENT, id="v1"),
        pytest.param(v1_header(CLIENT6, ("::1", 9092)), CLIENT6, id="v1-ipv6"),
        pytest.param(v2_header(CLIENT), CLIENT, id="v2"),
        pytest.param(v2_header(CLIENT6, ("::1", 9092), tlv(4, bytes(3_000))), CLIENT6, id="v2-ipv6-tlvs"),
        pytest.param(v2_header(("::ffff:192.0.2.7", 7), ("::1", 9092)), ("192.0.2.7", 7), id="v2-mapped"),
    ],
)
@pytest.mark.parametrize("pieces", ["with-the-first-request", "alone", "byte-by-byte"])
async def test_the_client_is_who_the_header_names(header: bytes, peer: tuple[str, int], pieces: str) -> None:
    """The connection gets the address of the PROXY header, and all bytes after the header reach the broker."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        client = await sluice.client(source=BALANCER)
        if pieces == "byte-by-byte":
            for at in range(min(len(header), 110)):
                await client.send(header[at : at + 1])
                await asyncio.sleep(0)
            header = header[110:]
        if pieces != "with-the-first-request" and header:
            await client.send(header)
            header = b""
        frames = produce_request(1, b"one", version=9) + metadata_request(2)
        await client.send(header + frames)
        assert [correlation_id_of(await client.read_frame()) for _ in range(2)] == [1, 2]
        (connection,) = sluice.connections
        assert connection.peer == peer
        assert [one.peer for one in sluice.app.state.connections(0, 10)] == [f"{peer[0]}:{peer[1]}"]
        assert bytes(broker.connections[-1].received) == frames
        assert sluice.counters.proxy_headers == {"address": 1}


@pytest.mark.parametrize(
    ("header", "outcome"),
    [
        pytest.param(b"PROXY UNKNOWN\r\n", "unknown", id="v1-unknown"),
        pytest.param(v2_raw(PROXY, AF_UNIX, STREAM, bytes(216)), "unknown", id="v2-unix"),
        pytest.param(v2_local(), "local", id="v2-local"),
    ],
)
async def test_a_header_without_an_address(header: bytes, outcome: str) -> None:
    """A header without an address is accepted, and the connection keeps the address of its socket."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        client = await sluice.client(source=BALANCER)
        await client.send(header + api_versions_request(5))
        assert correlation_id_of(await client.read_frame()) == 5
        assert sluice.connections[0].peer[0] == BALANCER
        assert sluice.counters.proxy_headers == {outcome: 1}


async def test_others_are_taken_as_they_are() -> None:
    """A client outside the balancers' networks needs no header, and a header that it sends closes the connection."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        client = await sluice.client()
        assert correlation_id_of(await client.ask(api_versions_request(5))) == 5
        assert sluice.connections[0].peer[0] == HOST
        liar = await sluice.client()
        await liar.send(v1_header(CLIENT) + api_versions_request(5))
        await liar.read_to_end()
        assert sluice.closes == {"not_kafka_proxy_header": 1}
        assert sluice.counters.proxy_headers == {}


@pytest.mark.parametrize(
    ("first", "says"),
    [
        pytest.param(api_versions_request(1), "no PROXY header came first", id="kafka"),
        pytest.param(b"GET / HTTP/1.1\r\n", "no PROXY header came first", id="http"),
        pytest.param(b"PROXY TCP4 192.0.2.7 elsewhere 1 2\r\n", "an address that is not IPv4", id="v1"),
        pytest.param(v2_raw(PROXY, 7, STREAM, bytes(12)), "family 7", id="v2"),
        pytest.param(v2_raw(PROXY, 1, STREAM, b"", length=65_535), "limit 4096", id="v2-too-long"),
    ],
)
async def test_a_balancer_that_sends_no_right_header(first: bytes, says: str, caplog: pytest.LogCaptureFixture) -> None:
    """A connection from a balancer without a valid header is closed, its problem is logged, and no broker is connected."""
    caplog.set_level(logging.INFO)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        client = await sluice.client(source=BALANCER)
        await client.send(first)
        await client.read_to_end()
        await sluice.until_closed("proxy_header")
        assert (sluice.counters.upstream_connects, broker.connections) == (0, [])
        (fields,) = [record.fields for record in caplog.records if record.message == "connection_closed"]  # type: ignore[attr-defined]
        assert fields["peer"].startswith(BALANCER)
        assert says in fields["detail"]


@pytest.mark.parametrize("sent", [b"", b"PROXY TC", v2_header(CLIENT)[:20], v2_local()], ids=["nothing", "v1", "v2", "local"])
async def test_a_slow_header_costs_a_socket_and_time(sent: bytes) -> None:
    """A header that is not complete by `first_frame_ms` closes the connection, and no broker is connected for it."""
    limits = {"first_frame_ms": 300}
    reason = "first_frame_deadline" if sent == v2_local() else "proxy_header_deadline"
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers(), limits=limits) as sluice:
        clients = [await sluice.client(source=BALANCER) for _ in range(5)]
        for client in clients:
            await client.send(sent)
        await until(lambda: sluice.counters.proxy_headers_waiting == 5)
        for client in clients:
            await client.read_to_end()
        assert sluice.closes == {reason: 5}
        assert sluice.counters.proxy_headers_waiting == 0
        assert (sluice.counters.upstream_connects, broker.connections) == (0, [])


async def test_who_waited_longest_leaves_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """When too many connections wait for a header, the oldest is closed, and one with a header is served."""
    monkeypatch.setattr(first_bytes, "WAITING_MAX", 3)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        silent = [await sluice.client(source=BALANCER) for _ in range(3)]
        await until(lambda: sluice.counters.proxy_headers_waiting == 3)
        good = await sluice.client(source=BALANCER)
        await good.send(v1_header(CLIENT))
        assert correlation_id_of(await good.ask(api_versions_request(5))) == 5
        assert await silent[0].read_to_end() == b""
        assert sluice.closes == {"proxy_header_deadline": 1}
        assert sluice.counters.proxy_headers_waiting == 2


@pytest.mark.parametrize("leaves", ["fin", "reset"])
@pytest.mark.parametrize("says", [b"", v2_local()], ids=["nothing", "local"])
async def test_health_checks_are_no_news(leaves: str, says: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A balancer that connects and closes, with or without a LOCAL header, is counted as a health check and is not logged."""
    caplog.set_level(logging.INFO)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        for _ in range(10):
            client = await sluice.client(source=BALANCER)
            await client.send(says)
            client.close() if leaves == "fin" else client.reset()
        await sluice.until_closed("health_check", 10)
        assert sluice.closes == {"health_check": 10}
        assert sluice.counters.proxy_headers.get("local", 0) <= (10 if says else 0)  # a reset may discard the header
        assert sluice.counters.upstream_connects == 0
        assert [record for record in caplog.records if record.message == "connection_closed"] == []


async def test_a_balancer_that_leaves_in_the_middle() -> None:
    """A connection that closes in the middle of its header is not counted as a health check."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        client = await sluice.client(source=BALANCER)
        await client.send(v2_header(CLIENT)[:20])
        client.close()
        await sluice.until_closed("client_closed")
        assert sluice.closes == {"client_closed": 1}


async def test_waiting_headers_count_for_max_connections() -> None:
    """A connection that waits for its header counts for `max_connections`."""
    async with (
        ScriptedBroker() as broker,
        open_gateway(broker, listeners=behind_balancers(), connections=Connections(max_connections=2)) as sluice,
    ):
        silent = await sluice.client(source=BALANCER)
        client = await sluice.client(source=BALANCER)
        await client.send(v1_header(CLIENT))
        assert correlation_id_of(await client.ask(api_versions_request(1))) == 1
        outside = await sluice.client(source=BALANCER)
        await outside.send(v1_header(CLIENT) + api_versions_request(2))
        await for_a_while(0.25, lambda: outside.take_waiting() == b"")
        silent.close()
        assert correlation_id_of(await outside.read_frame()) == 2
        client.close()


async def test_limits_of_addresses_see_the_client() -> None:
    """`max_connections_per_ip` applies to the address in the header, and a refused client causes no broker connection."""
    limits = Connections(max_connections_per_ip=1)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers(), connections=limits) as sluice:
        for last in range(1, 6):
            client = await sluice.client(source=BALANCER)
            await client.send(v1_header((f"192.0.2.{last}", 7)))
            assert correlation_id_of(await client.ask(api_versions_request(last))) == last
        for again in range(1, 6):
            client = await sluice.client(source=BALANCER)
            await client.send(v2_header((f"192.0.2.{again}", 8)) + api_versions_request(1))
            assert await client.read_to_end() == b""
        assert sluice.closes == {"max_connections_per_ip": 5}
        assert (len(sluice.connections), sluice.counters.upstream_connects) == (5, 5)


async def test_the_end_does_not_wait_for_headers() -> None:
    """A drain closes connections that wait for their header."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers(), clean=False) as sluice:
        silent = await sluice.client(source=BALANCER)
        await until(lambda: sluice.counters.proxy_headers_waiting == 1)
        await sluice.app.drain()
        assert await silent.read_to_end() == b""
        assert silent.ended is End.FIN
        assert sluice.closes == {"drain": 1}
        assert accepted_and_done(sluice)


async def test_a_bug_of_ours_costs_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception while a header is read closes that connection with `internal_error` and no other."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=behind_balancers()) as sluice:
        sluice.expects_internal_errors = True
        with monkeypatch.context() as patched:
            patched.setattr(proxy_headers.ProxyHeaderReader, "feed", lambda *_: 1 / 0)
            client = await sluice.client(source=BALANCER)
            await client.send(v1_header(CLIENT))
            with pytest.raises(ClosedByPeerError):
                await client.read_frame()
        assert sluice.closes == {"internal_error": 1}
        assert sluice.counters.proxy_headers_waiting == 0
        assert accepted_and_done(sluice)
