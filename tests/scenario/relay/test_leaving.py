"""Rows D2, D3 and D4: clients that close or half-close, throttled or not."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import proxy.net.departure as departure_module
from proxy.net.connection import Connection
from proxy.net.relay.broker_channel import BrokerChannel
from proxy.net.relay.client_channel import ClientChannel
from proxy.session.session import Session
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import BrokerConnection, Hold, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import (
    PRODUCE,
    SASL_HANDSHAKE,
    Request,
    api_versions_request,
    correlation_id_of,
    fetch_request,
    metadata_request,
    produce_answer,
    produce_of_size,
    produce_request,
    throttle_ms_of,
)
from tests.support.scripted.scripted_sockets import End, for_a_while, until

pytestmark = pytest.mark.long

WINDOW_S = 10  # ten whole samples of one second, over which the first second's bytes are averaged
LONG_MS = 60_000
SHORT_MS = 1_000


async def mute(client: ScriptedClient, bound: float, throttle_ms: int, *, acks: int = 1) -> bytes:
    """Send one Produce that causes a throttle of about `throttle_ms`, and return its frame."""
    size = int(bound * (WINDOW_S + throttle_ms / 1_000)) + 1
    frame = produce_of_size(size, 1, acks=acks)
    await client.send(frame)
    return frame


async def until_paused(sluice: RunningGateway, reason: str = "throttle") -> None:
    """Wait until Sluice has paused reading of a client for `reason`."""
    await until(lambda: any(reason in connection.client.paused_for for connection in sluice.connections))


# --- D2


@pytest.mark.parametrize("mode", ["delay", "mute"])
@pytest.mark.parametrize(
    ("queued_bytes", "frame_bytes", "throttle_ms"),
    [
        pytest.param(4 << 10, 1 << 10, 200, id="4KiB-200ms"),
        pytest.param(64 << 10, 4 << 10, 1_000, id="64KiB-1000ms"),
        pytest.param(3 << 20, 64 << 10, 200, id="3MiB-200ms"),
    ],
)
async def test_d02_half_close_while_muted(mode: str, queued_bytes: int, frame_bytes: int, throttle_ms: int) -> None:
    """All frames that a throttled client sent before its half-close reach the broker before FIN, and all responses come back."""
    bound = 1e6
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, table=quotas(produce=bound)) as sluice:
        client = await sluice.client()
        first = await mute(client, bound, throttle_ms)
        await until_paused(sluice)
        queue = [produce_of_size(frame_bytes, at) for at in range(2, 2 + queued_bytes // frame_bytes)]
        await client.send(b"".join(queue))
        client.half_close()
        sluice.set_quotas({})  # the mute stays and what follows is free; else the queue waits until the first second has expired
        answers = await client.read_frames(1 + len(queue))
        assert [correlation_id_of(answer) for answer in answers] == list(range(1, 2 + len(queue)))
        assert await client.read_to_end() == b""
        assert client.ended is End.FIN
        connection = await broker.connection()
        assert await connection.until_ended() is End.FIN
        assert connection.received == first + b"".join(queue)
        assert sluice.closes == {"client_closed": 1}


@pytest.mark.parametrize("throttle_ms", [200, 1_000])
async def test_d02_close_while_muted_with_acks_0(throttle_ms: int) -> None:
    """Requests with acks=0 of a muted client that closes reach the broker when the mute is over, and not earlier."""
    bound = 10_000.0
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=bound)) as sluice:
        client = await sluice.client()
        first = await mute(client, bound, throttle_ms, acks=0)
        connection = await broker.connection()
        await until(lambda: len(connection.received) == len(first))
        queue = b"".join(produce_of_size(100, at, acks=0) for at in range(2, 12))
        await client.send(queue)
        await until_paused(sluice)
        client.close()
        sluice.set_quotas({})  # the mute stays and what follows is free
        await asyncio.sleep(0.05)  # the FIN has arrived in the kernel
        sluice.sweep()
        assert connection.received == first
        assert await connection.until_ended() is End.FIN
        assert connection.received == first + queue
        assert len(connection.requests) == 11
        assert sluice.closes == {"client_closed": 1}


async def test_d02_what_waits_longer_than_it_may_is_dropped() -> None:
    """Requests that a throttle holds for longer than `departed_ms` after the close are dropped and counted."""
    bound = 10_000.0
    limits = {"departed_ms": 300}
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", limits=limits, table=quotas(produce=bound)) as sluice:
        client = await sluice.client()
        first = await mute(client, bound, LONG_MS, acks=0)
        queue = b"".join(produce_of_size(100, at, acks=0) for at in range(2, 12))
        await client.send(queue)
        await until_paused(sluice)
        client.close()
        await asyncio.sleep(0.05)
        sluice.sweep()
        await sluice.until_closed("half_close_deadline")
        assert sluice.counters.discarded_request_bytes == len(queue)
        connection = await broker.connection()
        await connection.until_ended()
        assert connection.received == first


async def test_d02_reset_while_muted_leaves_a_prefix() -> None:
    """After a reset the broker has a prefix of what the client sent."""
    bound = 10_000.0
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=bound)) as sluice:
        client = await sluice.client()
        first = await mute(client, bound, LONG_MS)
        await client.read_frame()
        await until_paused(sluice)
        queue = b"".join(produce_of_size(1_000, at) for at in range(2, 22))
        await client.send(queue)
        client.reset()
        await asyncio.sleep(0.05)
        sluice.sweep()
        connection = await broker.connection()
        await connection.until_ended()
        assert (first + queue).startswith(bytes(connection.received))
        assert sum(sluice.closes.values()) == 1


# --- D3


@pytest.mark.parametrize("mode", ["delay", "mute"])
@pytest.mark.parametrize("leaves", ["fin", "reset"])
@pytest.mark.parametrize("queued", [0, 3])
async def test_d03_client_gone_while_muted(mode: str, leaves: str, queued: int) -> None:
    """The sweep finds a client that left during a mute, and its broker connection is closed at once."""
    bound = 10_000.0
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, table=quotas(produce=bound)) as sluice:
        client = await sluice.client()
        await mute(client, bound, SHORT_MS if leaves == "fin" else LONG_MS)  # what is queued before a FIN is served when the mute ends
        if mode == "mute":
            await client.read_frame()
        await until_paused(sluice)
        await client.send(b"".join(produce_of_size(1_000, at) for at in range(2, 2 + queued)))
        client.close() if leaves == "fin" else client.reset()
        await asyncio.sleep(0.05)
        sluice.sweep()
        await until(lambda: not sluice.connections)
        assert await (await broker.connection()).until_ended() is End.FIN
        (reason,) = sluice.closes
        expected = {"fin": {"client_closed", "client_reset"}, "reset": {"client_gone_while_paused"}}  # responses meet a closed socket
        assert reason in expected[leaves]


async def test_d03_the_sweep_leaves_a_muted_client_that_is_there_alone() -> None:
    """The sweep does not close a muted client that is connected, and the client is served after the mute."""
    bound = 10_000.0
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=bound)) as sluice:
        client = await sluice.client()
        await mute(client, bound, 700)
        assert 500 < throttle_ms_of(PRODUCE, 7, await client.read_frame()) < 1_000
        sluice.sweep()
        await client.send(produce_request(2))
        await until_paused(sluice)
        sluice.sweep()
        assert len((await broker.connection()).requests) == 1
        assert correlation_id_of(await client.read_frame()) == 2


# --- D4


async def test_d04_half_close_with_requests_in_flight() -> None:
    """A half-closed client gets all outstanding responses, and the broker sees the half-close at once."""
    hold = Hold()
    async with ScriptedBroker(hold, closes_after_client=False) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(b"".join(produce_request(at) for at in range(10)) + produce_request(10)[:40])
        client.half_close()
        connection = await broker.connection()
        await connection.until_requests(10)
        assert await connection.until_ended() is End.FIN
        await for_a_while(0.1, lambda: len(sluice.connections) == 1)
        hold.release()
        assert await client.read_to_end() == b"".join(produce_answer(9, at) for at in range(10))
        assert client.ended is End.FIN
        assert sluice.closes == {"client_closed": 1}
        await connection.close()


async def test_d04_half_close_that_is_never_answered() -> None:
    """A half-closed client whose request is never answered is closed after `departed_ms`."""
    limits = {"departed_ms": 300}
    async with ScriptedBroker(Hold(), closes_after_client=False) as broker, open_gateway(broker, limits=limits) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1))
        connection = await broker.connection()
        await connection.until_requests(1)
        client.half_close()
        await for_a_while(0.2, lambda: len(sluice.connections) == 1)
        assert await client.read_to_end() == b""
        assert sluice.closes == {"half_close_deadline": 1}
        assert not sluice.gateway._closing, "nothing lingers after its deadline"
        await connection.close()


async def test_d04_half_close_by_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-closed client that does not read its responses is closed after `UNTAKEN_MS`."""
    monkeypatch.setattr(departure_module, "UNTAKEN_MS", 300)
    async with ScriptedBroker(records=bytes(16 << 20), closes_after_client=False) as broker, open_gateway(broker) as sluice:
        client = await sluice.client(receive_bytes=16 * 1024)
        await client.send(fetch_request(1))
        await until(lambda: any(connection.broker.pauses for connection in sluice.connections))
        client.half_close()
        await sluice.until_closed("half_close_deadline")
        await until(lambda: not sluice.gateway._closing)
        await (await broker.connection()).close()


def test_d04_untaken_answers_are_dropped_within_five_seconds() -> None:
    """`UNTAKEN_MS` is a little below five seconds."""
    assert 4_500 <= departure_module.UNTAKEN_MS < 5_000


async def test_d04_half_close_during_a_hold() -> None:
    """A held response reaches a half-closed client when the hold is over."""
    bound = 10_000.0
    async with ScriptedBroker() as broker, open_gateway(broker, delay_max_ms=500, table=quotas(produce=bound)) as sluice:
        client = await sluice.client()
        await mute(client, bound, LONG_MS)
        await until_paused(sluice)
        client.half_close()
        await asyncio.sleep(0.05)
        sluice.sweep()
        await for_a_while(0.2, lambda: len(sluice.connections) == 1)
        assert correlation_id_of(await client.read_frame()) == 1
        assert await client.read_to_end() == b""
        assert await (await broker.connection()).until_ended() is End.FIN


async def test_d04_broker_half_closes() -> None:
    """When the broker half-closes, its responses are delivered and the connection ends."""

    async def script(connection: BrokerConnection, request: Request) -> None:
        await connection.answer(request)
        if request.correlation_id == 2:
            connection.half_close()

    async with ScriptedBroker(script) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1) + produce_request(2) + produce_request(3))
        assert await client.read_to_end() == produce_answer(9, 1) + produce_answer(9, 2)
        assert client.ended is End.FIN
        assert sluice.closes == {"broker_closed": 1}


# --- memory of a closed connection


@asynccontextmanager
async def without_collector() -> AsyncIterator[None]:
    """Disable the garbage collector for a block, at whose end no part of a connection may be left."""
    gc.collect()
    gc.disable()
    try:
        yield
        await asyncio.sleep(0)
        parts = (Connection, Session, ClientChannel, BrokerChannel)
        assert [part for part in gc.get_objects() if isinstance(part, parts)] == []
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "request_frame",
    [api_versions_request(1), metadata_request(1), produce_request(1), fetch_request(1)],
    ids=["api-versions", "metadata", "produce", "fetch"],
)
async def test_a_connection_that_ended_is_freed_at_once(request_frame: bytes) -> None:
    """The objects of a closed connection are freed without the garbage collector."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9, fetch=1e9)) as sluice, without_collector():
        for _ in range(5):
            async with await ScriptedClient.connect(sluice.port) as client:
                await client.ask(request_frame)
        await until(lambda: not sluice.gateway.connections and not sluice.gateway._closing)


@pytest.mark.parametrize(
    "request_frame",
    [b"\x80\0\0\0", struct.pack(">ihhihh", 12, SASL_HANDSHAKE, 1, 1, -1, 100)],
    ids=["no-size", "short-handshake"],
)
async def test_a_connection_that_an_error_ended_is_freed_at_once(request_frame: bytes) -> None:
    """So are those of a connection that an invalid request ended: the frames in the traceback of the error do not keep them.

    A client could end thousands in a second, and collections of 50 ms would stop all connections.
    """
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9, fetch=1e9)) as sluice, without_collector():
        for _ in range(5):
            async with await ScriptedClient.connect(sluice.port) as client:
                await client.send(request_frame)
                assert await client.read_some() == b""
        await until(lambda: not sluice.gateway._closing)
