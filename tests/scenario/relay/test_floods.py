"""Rows F3 and F4: clients that send ten times their quota, and more clients than file descriptors."""

import asyncio
import errno
import os
import socket

import pytest

from proxy.config.model import Connections
from tests.support.scripted.descriptors import few_descriptors
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of, produce_of_size
from tests.support.scripted.scripted_sockets import HOST, until

READ_BYTES_MAX = 256 * 1024
FLOOD_S = 1.2


def _held_bytes(sluice: RunningGateway) -> int:
    """Return the bytes of requests and responses that Sluice buffers for both sides."""
    held = 0
    for connection in sluice.connections:
        held += connection.session.requests.pending.kept_bytes + connection.session.responses.held_bytes
        for channel in (connection.client, connection.broker):
            held += 0 if channel.transport is None else channel.transport.get_write_buffer_size()
    return held


async def _flood(client: ScriptedClient, frame: bytes) -> None:
    """Send the frame without end and discard the responses."""

    async def read() -> None:
        while await client.read_some(1 << 16):
            pass

    reading = asyncio.ensure_future(read())
    try:
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_sendall(client.socket, frame)
    finally:
        reading.cancel()
        await asyncio.wait([reading])


@pytest.mark.parametrize("mode", ["delay", "mute"])
async def test_f03_flooding_clients_wait_in_their_own_buffers(mode: str) -> None:
    """While clients send far over their quota, Sluice buffers a bounded number of their bytes, which does not grow with time."""
    count = 20
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, table=quotas(produce=20_000.0)) as sluice:
        clients = [await sluice.client() for _ in range(count)]
        floods = [asyncio.ensure_future(_flood(client, produce_of_size(20_000, 1))) for client in clients]
        await until(lambda: sum("throttle" in connection.client.paused_for for connection in sluice.connections) == count)
        held, received = [], []
        loop = asyncio.get_running_loop()
        end = loop.time() + FLOOD_S
        while loop.time() < end:
            await asyncio.sleep(0.05)
            held.append(_held_bytes(sluice))
            received.append(sum(len(connection.received) for connection in broker.connections))
        assert max(held) <= count * READ_BYTES_MAX
        assert max(held[len(held) // 2 :]) <= max(held[: len(held) // 2]) + READ_BYTES_MAX
        assert received[-1] - received[0] <= count * READ_BYTES_MAX
        for flood in floods:
            flood.cancel()
        await asyncio.wait(floods)
        for client in clients:
            client.reset()


async def test_f04_descriptors_run_out() -> None:
    """Without free descriptors connected clients are served; with free descriptors new clients are served again."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        early = await sluice.client()
        assert correlation_id_of(await early.ask(api_versions_request(1))) == 1
        crowd = []
        for _ in range(60):
            sock = socket.create_connection((HOST, sluice.port))  # they wait in the kernel's queue, because the loop does not run
            sock.setblocking(False)
            crowd.append(ScriptedClient(sock))
        sluice.clients += crowd
        with few_descriptors(20):
            await until(lambda: sluice.counters.accepts_exhausted > 0)
            for number in range(2, 50):
                assert correlation_id_of(await early.ask(api_versions_request(number))) == number
        served = refused = 0
        for client in crowd:
            try:
                await client.send(api_versions_request(7))
                assert correlation_id_of(await client.read_frame()) == 7
                served += 1
            except ConnectionError:
                refused += 1
        assert served + refused == len(crowd)
        assert served >= 5
        fresh = await sluice.client()
        assert correlation_id_of(await fresh.ask(api_versions_request(8))) == 8


async def test_f04_the_spare_descriptor_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another thread takes the spare descriptor, accepting pauses without an error and resumes later."""

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "taken by another thread")

    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        crowd = []
        for _ in range(40):
            sock = socket.create_connection((HOST, sluice.port))
            sock.setblocking(False)
            crowd.append(ScriptedClient(sock))
        sluice.clients += crowd
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", none_left)
            with few_descriptors(10):
                await until(lambda: sluice.counters.accepts_exhausted > 2)
        fresh = await sluice.client()
        assert correlation_id_of(await fresh.ask(api_versions_request(1))) == 1
        assert sluice.counters.internal_errors == 0


async def test_f04_connections_at_their_limit_wait_outside() -> None:
    """Above `max_connections` clients wait in the kernel's queue until a connection ends."""
    async with ScriptedBroker() as broker, open_gateway(broker, connections=Connections(max_connections=5)) as sluice:
        inside = [await sluice.client() for _ in range(5)]
        for client in inside:
            await client.ask(api_versions_request(1))
        outside = [await sluice.client() for _ in range(3)]
        for client in outside:
            await client.send(api_versions_request(2))
        await asyncio.sleep(0.3)
        assert len(sluice.connections) == 5
        assert [client.take_waiting() for client in outside] == [b""] * 3
        for client in inside:
            assert correlation_id_of(await client.ask(api_versions_request(3))) == 3
            client.close()
        for client in outside:
            assert correlation_id_of(await client.read_frame()) == 2
