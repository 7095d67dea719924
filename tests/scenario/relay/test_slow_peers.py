"""Rows D5, D6 and D16: clients that read slowly, send slowly, or are idle."""

import asyncio

import pytest

from proxy.net.relay.flow import TO_CLIENT_LIMITS_BYTES
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import BrokerConnection, Hold, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import Request, correlation_id_of, fetch_answer, fetch_request, produce_of_size, produce_request
from tests.support.scripted.scripted_sockets import End, for_a_while, until

READ_BYTES_MAX = 256 * 1024
"""The most that one read of a socket adds, on the event loop where it is larger."""
ANSWER_BYTES = 16 << 20
IDLE_MS = 600_000


def _held_bytes(sluice: RunningGateway) -> int:
    """Return the bytes of responses that Sluice buffers."""
    held = 0
    for connection in sluice.connections:
        transport = connection.client.transport
        assert transport is not None
        held += connection.session.responses.held_bytes + transport.get_write_buffer_size()
    return held


async def _until_settled(sluice: RunningGateway) -> None:
    """Wait until Sluice reads no more bytes from brokers."""
    seen = -1
    while seen != sum(connection.broker.bytes_in for connection in sluice.connections):
        seen = sum(connection.broker.bytes_in for connection in sluice.connections)
        await asyncio.sleep(0.1)


async def ask_and_not_read(sluice: RunningGateway, count: int) -> list[ScriptedClient]:
    """Return clients with small receive buffers that have requested a large response and do not read it."""
    clients = [await sluice.client(receive_bytes=16 * 1024) for _ in range(count)]
    for client in clients:
        await client.send(fetch_request(5))
    await until(lambda: len(sluice.connections) == count and all(connection.broker.pauses for connection in sluice.connections))
    await _until_settled(sluice)
    return clients


# --- D5


async def test_d05_slow_readers_hold_no_more_than_the_high_water_mark() -> None:
    """Sluice buffers a bounded part of an unread response, and the client gets all of it when it reads."""
    count = 4
    async with ScriptedBroker(records=bytes(ANSWER_BYTES)) as broker, open_gateway(broker) as sluice:
        clients = await ask_and_not_read(sluice, count)
        assert _held_bytes(sluice) <= count * (TO_CLIENT_LIMITS_BYTES[0] + READ_BYTES_MAX)
        assert all(connection.broker.paused_for == ("peer_full",) for connection in sluice.connections)
        quick = await sluice.client()
        broker.records = b"small"
        assert await quick.ask(fetch_request(6)) == fetch_answer(12, 6, b"small")
        for client in clients[:2]:
            assert await client.read_frame() == fetch_answer(12, 5, bytes(ANSWER_BYTES))
        for client in clients[2:]:
            client.reset()


@pytest.mark.parametrize("unfinished", [b"", produce_request(9)[:60]], ids=["nothing-sent", "in-mid-request"])
async def test_d05_a_reader_that_takes_nothing_is_dropped(unfinished: bytes) -> None:
    """A client that reads nothing for `undrained_ms` is closed, and one that reads slowly is not."""
    limits = {"undrained_ms": 2_500}  # on a busy machine the slow reader may not run for a second
    async with ScriptedBroker(records=bytes(ANSWER_BYTES)) as broker, open_gateway(broker, limits=limits) as sluice:
        silent, slow = await ask_and_not_read(sluice, 2)
        slow_peer = slow.socket.getsockname()
        await silent.send(unfinished)
        while not sluice.closes:
            await slow.read_some(100_000)
            await asyncio.sleep(0.05)
        assert sluice.closes == {"slow_reader": 1}
        assert [connection.peer for connection in sluice.connections] == [slow_peer]
        slow.reset()


async def test_d05_others_do_not_wait_for_a_slow_reader() -> None:
    """A client that leaves responses unread for 10 s while a Fetch behind them counts for its group is closed; one without it is not."""
    async with ScriptedBroker(records=bytes(ANSWER_BYTES)) as broker, open_gateway(broker, table=quotas(fetch=1e9)) as sluice:
        one, several = await ask_and_not_read(sluice, 2)
        (group,) = sluice.groups()
        assert group.pending == 0
        await several.send(fetch_request(6))
        await until(lambda: group.pending > 0)
        sluice.sweep(9_000)
        assert sluice.closes == {}
        sluice.sweep(11_000)
        assert sluice.closes == {"slow_reader": 1}
        assert [connection.peer for connection in sluice.connections] == [one.socket.getsockname()]
        assert group.pending == 0
        for client in (one, several):
            client.reset()


# --- D6


async def test_d06_slow_writers_are_dropped() -> None:
    """A client without a first frame within 10 s, or below 4 KiB/s within a frame, is closed; another one is not."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        silent = [await sluice.client() for _ in range(5)]
        in_length = [await sluice.client() for _ in range(5)]
        in_head = [await sluice.client() for _ in range(5)]
        in_body = [await sluice.client() for _ in range(5)]
        quick = await sluice.client()
        frame = produce_request(1, bytes(50_000))
        for client in in_length:
            await client.send(frame[:2])
        for client in in_head:
            await client.send(frame[:20])
        for client in in_body:
            await client.send(frame[:1_000])
        assert correlation_id_of(await quick.ask(frame)) == 1
        await sluice.until_connections(21)
        await until(lambda: sum(1 for connection in sluice.connections if connection.client.bytes_in) == 16)
        sluice.sweep(1_500)
        sluice.sweep(9_000)
        assert sluice.closes == {}
        for client in in_body:
            await client.send(frame[1_000:1_010])
        await until(lambda: sum(1 for connection in sluice.connections if connection.client.bytes_in == 1_010) == 5)
        sluice.sweep(12_500)
        assert sluice.closes == {"first_frame_deadline": 5, "slow_frame": 15}
        for client in silent + in_length + in_head + in_body:
            assert await client.read_to_end() == b""
        assert correlation_id_of(await quick.ask(frame)) == 1


async def test_d06_a_frame_that_comes_along_is_not_slow() -> None:
    """A large frame above the minimum rate closes no connection, however long it takes."""
    frame = produce_request(1, bytes(600_000))
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        step = 60_000
        for at in range(0, len(frame), step):
            await client.send(frame[at : at + step])
            await until_read(sluice, min(at + step, len(frame)))
            sluice.sweep(at // step * 12_000)
        assert correlation_id_of(await client.read_frame()) == 1


async def until_read(sluice: RunningGateway, count: int) -> None:
    """Wait until Sluice has read `count` bytes from clients."""
    await until(lambda: sum(connection.client.bytes_in for connection in sluice.connections) == count)


async def test_d06_time_in_which_sluice_did_not_read_does_not_count() -> None:
    """A client that is muted in the middle of a frame is not closed as slow."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=10_000)) as sluice:
        client = await sluice.client()
        await client.ask(produce_of_size(110_000, 1))
        await client.send(produce_request(2)[:50])
        await until(lambda: all("throttle" in connection.client.paused_for for connection in sluice.connections))
        for later_ms in range(0, 60_000, 10_000):
            sluice.sweep(later_ms)
        assert sluice.closes == {}
        client.reset()
        await asyncio.sleep(0.05)
        sluice.sweep()


# --- D16


async def test_d16_idle() -> None:
    """A connection without a byte in either direction for ten minutes is closed."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.ask(produce_request(1))
        sluice.sweep(IDLE_MS - 2_000)
        assert sluice.closes == {}
        sluice.sweep(IDLE_MS + 1_000)
        assert await client.read_to_end() == b""
        assert client.ended is End.FIN
        assert sluice.closes == {"idle": 1}


async def test_d16_idle_while_muted() -> None:
    """A muted connection that is idle for ten minutes is closed."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=10)) as sluice:
        client = await sluice.client()
        await client.ask(produce_of_size(50_000, 1))
        await until(lambda: all("throttle" in connection.client.paused_for for connection in sluice.connections))
        sluice.sweep(IDLE_MS - 2_000)
        assert sluice.closes == {}
        sluice.sweep(IDLE_MS + 1_000)
        assert sluice.closes == {"idle": 1}


async def test_d16_a_request_in_flight_is_not_idle() -> None:
    """A connection with a request in flight is not idle, and closes when the broker closes."""

    async def script(connection: BrokerConnection, request: Request) -> None:
        if request.correlation_id == 2:
            connection.half_close()

    async with ScriptedBroker(script) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1))
        await (await broker.connection()).until_requests(1)
        sluice.sweep(IDLE_MS * 3)
        await for_a_while(0.05, lambda: sluice.closes == {})
        await client.send(produce_request(2))
        assert await client.read_to_end() == b""
        assert sluice.closes == {"broker_closed": 1}


@pytest.mark.parametrize("released", [True, False])
async def test_d16_answers_count_as_life(*, released: bool) -> None:
    """A response from the broker renews the time of the last read."""
    hold = Hold()
    async with ScriptedBroker(hold) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1))
        await (await broker.connection()).until_requests(1)
        (connection,) = sluice.connections
        read_ms = connection.broker.read_ms
        if released:
            await asyncio.sleep(0.01)
            hold.release()
            await client.read_frame()
        assert (connection.broker.read_ms > read_ms) is released
