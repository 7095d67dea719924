"""The byte budget for buffers of a running process: it bounds what attackers make Sluice buffer, and honest clients are served."""

import asyncio
from typing import Any

import pytest

from protocol.api_keys import API_VERSIONS as APIS
from protocol.api_keys import ApiKey
from protocol.layout import layout_of
from protocol.messages.metadata import read_topology
from tests.support.frames import kafka_frames, sasl_frames
from tests.support.reserved import reserved_by
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import METADATA, Request, correlation_id_of, metadata_request, produce_request
from tests.support.scripted.scripted_sockets import HOST, until

KIB = 1024
BUDGET = 2_000 * KIB
ATTACKER, HONEST = "127.0.0.66", "127.0.0.2"
METADATA_VERSION = 12


def alteration(entries: int, correlation_id: int = 1) -> bytes:
    """Return a validate-only AlterClientQuotas request with `entries` entries of some 170 bytes."""
    entry = {
        "Entity": [{"EntityType": "client-id", "EntityName": "c" * 120}],
        "Ops": [{"Key": "producer_byte_rate", "Value": 1e6, "Remove": False}],
    }
    layout = layout_of(ApiKey.ALTER_CLIENT_QUOTAS, "request", 1)
    body = kafka_frames.message(layout, Entries=[entry] * entries, ValidateOnly=True)
    return kafka_frames.request(kafka_frames.api_of(ApiKey.ALTER_CLIENT_QUOTAS, 1), body, correlation_id)


async def crowd(sluice: RunningGateway, count: int, data: bytes) -> list[ScriptedClient]:
    """Return the attacker's connections after each has sent `data`; some of them may be closed already."""
    clients = [await sluice.client(source=ATTACKER) for _ in range(count)]
    await asyncio.gather(*(client.send(data) for client in clients), return_exceptions=True)
    return clients


async def lets_in(connection: BrokerConnection, request: Request) -> None:
    """Accept every login and answer other requests as usual."""
    if request.key == ApiKey.SASL_HANDSHAKE:
        await connection.send(sasl_frames.handshake_answer(request.correlation_id))
    elif request.key == ApiKey.SASL_AUTHENTICATE:
        await connection.send(sasl_frames.authenticate_answer(request.correlation_id))
    else:
        await connection.answer(request)


async def test_unfinished_frames_are_bounded_and_the_crowd_pays() -> None:
    """When unfinished requests exceed the budget, the attacker's connections are closed, and honest clients are served."""
    async with ScriptedBroker() as broker, open_gateway(broker, limits={"process_buffer_bytes_max": BUDGET}) as sluice:
        asks = alteration(1_000, 5)
        honest = await sluice.client(source=HONEST)
        await honest.send(asks[:-1])
        await until(lambda: reserved_by(sluice.buffers, HONEST) > 100 * KIB)
        await crowd(sluice, 30, alteration(2_000)[:-1])
        await until(lambda: sluice.closes.get("buffer_limit", 0) >= 20)
        assert sluice.buffers.reserved_bytes <= 0.9 * BUDGET
        late = await sluice.client(source=HONEST)
        await late.send(asks[:-1])
        assert correlation_id_of(await late.ask(asks[-1:])) == 5
        assert correlation_id_of(await honest.ask(asks[-1:])) == 5
        assert correlation_id_of(await late.ask(produce_request(6))) == 6
        assert sluice.counters.memory_pressure < 2


async def test_what_is_kept_is_in_the_metric_byte_for_byte() -> None:
    """`buffered_bytes` counts a cut head, an unfinished request and an unfinished token, and is 0 when the clients have left."""
    async with ScriptedBroker(script=lets_in) as broker, open_gateway(broker) as sluice:
        clients = [await sluice.client() for _ in range(3)]
        await clients[0].send(produce_request(1)[:9])
        await clients[1].send(alteration(100)[:10_000])
        await clients[2].ask(sasl_frames.handshake("PLAIN"))
        await clients[2].send(sasl_frames.authenticate(bytes(60_000))[:-1])
        await until(lambda: sluice.buffers.reserved_bytes >= 9 + 10_000 + 60_000)
        assert sluice.buffers.reserved_bytes <= 9 + 10_000 + 128 * KIB
        await until(lambda: sluice.counters.buffered_bytes == sluice.buffers.reserved_bytes)
        for client in clients:
            client.close()
        await until(lambda: sluice.buffers.reserved_bytes == 0)


async def test_tokens_that_never_end_are_bounded_and_the_crowd_pays() -> None:
    """Unfinished SASL tokens stay within the budget of the process, and another client can log in."""
    async with (
        ScriptedBroker(script=lets_in) as broker,
        open_gateway(broker, limits={"process_buffer_bytes_max": BUDGET}) as sluice,
    ):
        for _ in range(40):
            client = await sluice.client(source=ATTACKER)
            await client.ask(sasl_frames.handshake("PLAIN"))
            await client.send(sasl_frames.authenticate(bytes(64 * KIB - 100))[:-1])
        await until(lambda: sluice.closes.get("buffer_limit", 0) >= 5)
        assert sluice.buffers.reserved_bytes <= 0.9 * BUDGET
        honest = await sluice.client(source=HONEST)
        assert correlation_id_of(await honest.ask(sasl_frames.handshake("PLAIN", correlation_id=3))) == 3
        assert correlation_id_of(await honest.ask(sasl_frames.authenticate(b"\0alice\0secret", correlation_id=4))) == 4
        assert correlation_id_of(await honest.ask(produce_request(5))) == 5


def metadata_of(correlation_id: int, brokers: dict[int, tuple[str, int]], topic_bytes: int) -> bytes:
    """Return a Metadata response with topics of `topic_bytes` in total."""
    layout = layout_of(ApiKey.METADATA, "response", METADATA_VERSION)
    partitions = [{"PartitionIndex": number, "LeaderId": 1, "ReplicaNodes": [1], "IsrNodes": [1]} for number in range(200)]
    topic = {"Name": "t" * 200, "Partitions": partitions}
    entries = [{"NodeId": node_id, "Host": host, "Port": port, "Rack": None} for node_id, (host, port) in brokers.items()]
    few: dict[str, Any] = {"Brokers": entries, "ControllerId": 1, "Topics": [topic] * 20}
    one = kafka_frames.message(layout, **few)
    few["Topics"] = [topic] * max(20 * topic_bytes // len(one), 20)
    api = kafka_frames.api_of(ApiKey.METADATA, METADATA_VERSION)
    return kafka_frames.response(api, kafka_frames.message(layout, **few), correlation_id)


@pytest.fixture(scope="module")
def topics() -> bytes:
    """Return a Metadata response of some 3 MB that names one broker."""
    return metadata_of(0, {1: (HOST, 9)}, 3_000_000)


async def test_metadata_is_not_kept_although_its_addresses_change(topics: bytes) -> None:
    """A Metadata response of 3 MB is not buffered for clients that do not read, and arrives complete with rewritten addresses."""

    async def answers(connection: BrokerConnection, request: Request) -> None:
        if request.key == METADATA and request.client_id == b"scripted":
            mine = topics.replace(b"\x0a127.0.0.1\x00\x00\x00\x09", b"\x0a127.0.0.1" + broker.port.to_bytes(4, "big"), 1)
            await connection.send(mine[:4] + request.correlation_id.to_bytes(4, "big") + mine[8:])
        else:
            await connection.answer(request)

    async with ScriptedBroker() as broker, open_gateway(broker, limits={"process_buffer_bytes_max": 16_000 * KIB}) as sluice:
        broker.script = answers
        slow = [await sluice.client(receive_bytes=4_096) for _ in range(10)]
        for client in slow:
            await client.send(metadata_request(1))
        await until(lambda: sum("peer_full" in connection.broker.paused_for for connection in sluice.connections) == 10)
        assert sluice.buffers.reserved_bytes == 0
        quick = await sluice.client()
        answer = await quick.ask(metadata_request(9))
        found = read_topology(APIS[METADATA << 16 | METADATA_VERSION], answer)
        expected = read_topology(APIS[METADATA << 16 | METADATA_VERSION], topics)
        assert [broker.port for broker in found.brokers] == [sluice.broker_port(1)]
        assert found.partitions == expected.partitions
        broker.script = None
