"""Long responses are read into one buffer that all connections share, and every byte reaches its own client."""

import asyncio
import random
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from protocol.limits import LENGTH_BYTES
from protocol.messages.fetch.tail import find_tail_in_steps
from protocol.steps import finished
from proxy.net.connection import Connection
from proxy.net.relay.flow import TO_CLIENT_LIMITS_BYTES
from proxy.net.relay.long_frame_memory import STEP_BYTES, WHOLE_BYTES
from proxy.net.relay.long_frames import LongFrameReader
from tests.support.frames.kafka_frames import api_of, endpoint, fetched
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import Request, fetch_answer, fetch_request
from tests.support.scripted.scripted_sockets import until
from tests.support.tls.tls_fixture import ProxyFixture

VERSION = 12
FOLLOWED = 18
"""Responses of this version can end with addresses, so Sluice follows them."""
_random = random.Random(7)


def some_records(size: int) -> bytes:
    """Return random bytes."""
    return _random.randbytes(size)


def reads_long(connection: Connection) -> bool:
    """Return whether the broker's socket is read into the shared buffer."""
    transport = connection.broker.transport
    return transport is not None and isinstance(transport.get_protocol(), LongFrameReader)


async def ask(broker: ScriptedBroker, client: ScriptedClient, correlation_id: int, records: bytes) -> None:
    """Make the broker send `records` to a client that does not read yet."""
    broker.records = records
    served = len(broker.requests)
    await client.send(fetch_request(correlation_id))
    await until(lambda: len(broker.requests) > served)


@pytest.mark.parametrize("version", [VERSION, FOLLOWED])
async def test_answers_of_all_sizes_arrive_as_they_were_sent(version: int) -> None:
    """Responses of all sizes arrive unchanged; long ones are read into the shared buffer and short ones are not."""
    sizes = [3_000_000, 700_000, 256_000, STEP_BYTES, WHOLE_BYTES + 1, 1_000_000, 2_000_000, 40_000, 1_500_000, 10, 900_000, 5]
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        for number, size in enumerate(sizes):
            broker.records = some_records(size)
            assert await client.ask(fetch_request(number, version=version)) == fetch_answer(version, number, broker.records)
            (connection,) = sluice.connections
            if size == 3_000_000:
                assert reads_long(connection)
            if size < 1_000:
                assert not reads_long(connection)


@pytest.mark.parametrize("version", [VERSION, FOLLOWED])
async def test_pipelined_answers_share_reads(version: int) -> None:
    """Pipelined long responses arrive unchanged although one read may contain two of them."""
    async with ScriptedBroker(records=some_records(600_000)) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(b"".join(fetch_request(number, version=version) for number in range(20)))
        for number in range(20):
            assert await client.read_frame() == fetch_answer(version, number, broker.records)


SIZES = (0, 1, 300, 40_000, 255_000, 300_000, STEP_BYTES, 700_000, WHOLE_BYTES, 1_500_000)


@pytest.mark.parametrize("seed", range(6))
async def test_followed_answers_of_many_partitions(seed: int) -> None:
    """Responses whose partitions have records of all sizes arrive unchanged but for the addresses at their end, however they are cut."""
    chance = random.Random(seed)
    fetch = api_of(ApiKey.FETCH, FOLLOWED)
    answers: list[bytes] = []
    for number in range(8):
        records = [some_records(size) for size in chance.choices(SIZES, k=chance.randint(1, 5))]
        endpoints = [endpoint(1, "kafka-1.internal", 9092)] if chance.random() < 0.5 else None
        answers.append(fetched(number, version=FOLLOWED, records=records, endpoints=endpoints))

    async def in_pieces(connection: BrokerConnection, request: Request) -> None:
        frame, at = answers[request.correlation_id], 0
        while at < len(frame):
            size = chance.choice((1, 1_000, 65_536, 400_000, 3_000_000))
            await connection.send(frame[at : at + size])
            at += size

    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.ask(fetch_request(100, version=FOLLOWED))
        broker.script = in_pieces
        for number, frame in enumerate(answers):
            tail_at = finished(find_tail_in_steps(fetch, frame))
            answer = await client.ask(fetch_request(number, version=FOLLOWED))
            assert answer[LENGTH_BYTES:tail_at] == frame[LENGTH_BYTES:tail_at]
            assert b"kafka-1.internal" not in answer[tail_at:]
            assert answer == frame or b"kafka-1.internal" in frame[tail_at:]


async def test_slow_and_quick_clients_do_not_get_each_others_bytes() -> None:
    """A slow client's unread bytes are not overwritten by other responses, and each slow client counts the memory of one read."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        slow = [await sluice.client(receive_bytes=16_384) for _ in range(3)]
        wanted = [some_records(8_000_000) for _ in slow]
        for number, (client, records) in enumerate(zip(slow, wanted, strict=True)):
            await ask(broker, client, number, records)
        await until(lambda: len(sluice.connections) == 3 and all(connection.broker.released_bytes for connection in sluice.connections))
        assert all(reads_long(connection) for connection in sluice.connections)
        await until(lambda: sluice.counters.buffered_bytes == sum(connection.broker.released_bytes for connection in sluice.connections))
        assert {connection.broker.released_bytes for connection in sluice.connections} <= {STEP_BYTES, WHOLE_BYTES}
        quick = await sluice.client()
        for number in range(10, 30):
            broker.records = some_records(1_000_000)
            assert await quick.ask(fetch_request(number)) == fetch_answer(VERSION, number, broker.records)
        answers = await asyncio.gather(*(client.read_frame() for client in slow))
        assert answers == [fetch_answer(VERSION, number, records) for number, records in enumerate(wanted)]
        assert [connection.broker.released_bytes for connection in sluice.connections] == [0] * 4


async def test_a_short_answer_gives_the_client_its_room_back() -> None:
    """The write buffer limit is 0 while responses are long, and normal again after a short one."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        limits = []
        for number, size in enumerate((2_000_000, 100)):
            broker.records = some_records(size)
            await client.ask(fetch_request(number))
            (connection,) = sluice.connections
            assert connection.client.transport is not None
            limits.append(connection.client.transport.get_write_buffer_limits()[1])
        assert limits == [0, TO_CLIENT_LIMITS_BYTES[0]]


async def test_a_broker_and_a_client_that_leave_in_a_long_answer() -> None:
    """A long response that the broker cuts is delivered up to its end, and a client that resets affects no other client."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        await _broker_leaves(broker, sluice)
        leaving, staying = [await sluice.client(receive_bytes=16_384) for _ in range(2)]
        records = some_records(8_000_000)
        for number, client in enumerate((leaving, staying)):
            await ask(broker, client, number, records)
        await until(lambda: all(connection.broker.pauses for connection in sluice.connections))
        leaving.reset()
        await sluice.until_connections(1)
        assert await staying.read_frame() == fetch_answer(VERSION, 1, records)


async def _broker_leaves(broker: ScriptedBroker, sluice: RunningGateway) -> None:
    client = await sluice.client()
    whole = fetch_answer(VERSION, 1, some_records(3_000_000))

    async def half(connection: BrokerConnection, _: Request) -> None:
        await connection.send(whole[:2_000_000])
        await connection.close()

    broker.script, before = half, broker.script
    await client.send(fetch_request(1))
    received = bytearray()
    while data := await client.read_some():
        received += data
    assert received == whole[:2_000_000]
    await sluice.until_closed("broker_closed")
    broker.script = before


async def test_a_client_by_tls(tmp_path: Path) -> None:
    """A long response arrives unchanged at a client that uses TLS."""
    proxy = ProxyFixture(tmp_path)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(proxy.listener(),), clean=False) as sluice:
        client = await proxy.connect(sluice.broker_port(1))
        for number in range(5):
            broker.records = some_records(2_000_000)
            assert await client.ask(fetch_request(number)) == fetch_answer(VERSION, number, broker.records)
        (connection,) = sluice.connections
        assert reads_long(connection)
        await client.close()
