"""Rows A1, A2, A7 and A8: brokers that die, that stop reading or answering, or that send invalid lengths."""

import asyncio
import random
import struct

import pytest

from proxy.net import connection_deadlines
from proxy.net.connection import Connection
from proxy.net.connection_deadlines import HUNG_MS, SLICES
from proxy.net.relay.long_frame_memory import WHOLE_BYTES
from tests.support.frames.kafka_frames import answer_ids
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import (
    PRODUCE,
    Request,
    api_versions_request,
    correlation_id_of,
    fetch_request,
    produce_answer,
    produce_of_size,
    produce_request,
)
from tests.support.scripted.scripted_sockets import End, until

KILLS = 25
PIECE_BYTES = 64 * 1024


async def silent(_connection: BrokerConnection, _request: Request) -> None:
    """Answer no request."""


# --- A1


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("point", ["before", "during", "after"])
async def test_a01_killed_in_mid_produce(point: str, how: str) -> None:
    """When the broker dies during a Produce, the client's connection ends, and Sluice neither answers in its place nor sends it again."""
    frame = produce_of_size(20_000, 5)
    async with ScriptedBroker(silent) as broker, open_gateway(broker) as sluice:
        for kill in range(KILLS):
            client = await sluice.client()
            at_broker = await broker.connection(kill)
            part = {"before": 0, "during": 9_000, "after": len(frame)}[point]
            if part:
                await client.send(frame[:part])
                await until(lambda at_broker=at_broker, part=part: len(at_broker.received) == part)  # type: ignore[misc]
            await (at_broker.reset() if how == "reset" else at_broker.close())
            assert await client.read_to_end() == b"", "an answer that no broker gave"
            client.close()
        await until(lambda: sum(sluice.closes.values()) == KILLS)
        assert set(sluice.closes) <= {"broker_reset", "broker_closed"}
        assert [len(connection.received) for connection in broker.connections] == [part] * KILLS
        assert sluice.counters.upstream_connects == KILLS, "one attempt per client"


async def test_a01_what_the_broker_answered_is_delivered() -> None:
    """Responses that the broker sent before it closed the connection reach the client."""

    async def two_then_dead(connection: BrokerConnection, request: Request) -> None:
        await connection.answer(request)
        if request.correlation_id == 2:
            await connection.close()

    async with ScriptedBroker(two_then_dead) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(b"".join(produce_request(number) for number in (1, 2, 3)))
        assert answer_ids(await client.read_to_end()) == [1, 2]
        await sluice.until_closed("broker_closed")


async def test_a01_a_held_answer_is_delivered() -> None:
    """A response that is held for a throttle reaches the client although the broker dies meanwhile."""

    async def answer_then_die(connection: BrokerConnection, request: Request) -> None:
        await connection.answer(request)
        if request.key == PRODUCE:
            await connection.broker.connections[0].close()

    async with ScriptedBroker(answer_then_die) as broker, open_gateway(broker, table=quotas(produce=1_000)) as sluice:
        client = await sluice.client()
        await client.send(produce_of_size(10_500, 1))
        assert answer_ids(await client.read_to_end()) == [1]
        await until(lambda: sum(sluice.closes.values()) == 1)


# --- A2


async def fill(sluice: RunningGateway, client: ScriptedClient) -> Connection:
    """Send parts of a large frame to a broker that does not read, until Sluice stops reading the client; a FIN can still arrive."""
    assert correlation_id_of(await client.ask(api_versions_request(1))) == 1
    connection = sluice.connections[0]
    (await sluice.brokers[0].connection(0)).may_read.clear()
    piece = produce_of_size(64 << 20, 2)[:PIECE_BYTES]  # the head of the frame, then bytes that may be its body
    await until(lambda: "peer_full" in connection.client.paused_for or client.send_some(piece) < 0)
    return connection


async def test_a02_a_broker_that_stops_reading_stops_only_its_client() -> None:
    """A broker that stops reading blocks only its own client: at most one read is buffered, and a reset by that client is seen at once."""
    async with ScriptedBroker(receive_bytes=4_096) as broker, open_gateway(broker) as sluice:
        client, other = await sluice.client(), await sluice.client()
        connection = await fill(sluice, client)
        await until(lambda: not client.send_some(bytes(PIECE_BYTES)))
        assert connection.broker.transport is not None
        assert connection.broker.transport.get_write_buffer_size() <= WHOLE_BYTES
        for number in range(50):
            assert correlation_id_of(await other.ask(produce_request(number))) == number
        client.reset()
        await sluice.until_closed("client_gone_while_paused")
        assert connection.broker.lost, "nothing is waited for: what is left cannot be sent"
        (await broker.connection(0)).may_read.set()


async def test_a02_a_client_that_leaves_a_hung_broker_in_order() -> None:
    """After a client closes, its last bytes are dropped once the broker has read nothing for `HUNG_MS`, and not earlier."""
    async with ScriptedBroker(receive_bytes=4_096) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        connection = await fill(sluice, client)
        client.close()
        await until(lambda: connection.departure is not None)
        sluice.sweep(HUNG_MS // 2)
        assert sluice.closes == {}
        sluice.sweep(HUNG_MS + 100)
        assert sluice.closes == {"client_gone_while_paused": 1}
        await until(lambda: connection.broker.lost)
        (await broker.connection(0)).may_read.set()


async def test_a02_a_client_that_leaves_a_broker_hung_for_long() -> None:
    """When the broker had read nothing for `HUNG_MS` before the client closed, the connection ends at once."""
    async with ScriptedBroker(receive_bytes=4_096) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        connection = await fill(sluice, client)
        connection.broker.write_full_since_ms -= HUNG_MS + 1
        client.close()
        await sluice.until_closed("client_gone_while_paused")
        (await broker.connection(0)).may_read.set()


async def test_a02_a_broker_that_only_paused_gets_what_a_client_left_behind() -> None:
    """A broker that pauses for less than `HUNG_MS` receives everything that a client sent before its FIN."""
    async with ScriptedBroker(receive_bytes=4_096) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        assert correlation_id_of(await client.ask(api_versions_request(1))) == 1
        stuck = await broker.connection(0)
        before = len(stuck.received)
        stuck.may_read.clear()
        connection = sluice.connections[0]
        frame = produce_of_size(PIECE_BYTES, 2, acks=0)
        sent = 0
        while "peer_full" not in connection.client.paused_for:
            await client.send(frame)
            sent += len(frame)
            await asyncio.sleep(0.001)
        client.close()
        await until(lambda: connection.departure is not None)
        sluice.sweep(HUNG_MS // 2)
        stuck.may_read.set()
        assert await stuck.until_ended() is End.FIN
        assert len(stuck.received) - before == sent
        assert sluice.closes == {"client_closed": 1}


async def test_a02_a_silent_broker_delays_no_other_client() -> None:
    """A broker that does not answer one client delays no other client, and no timeout ends the connection that waits."""

    async def mute(connection: BrokerConnection, request: Request) -> None:
        if request.client_id != b"unlucky":
            await connection.answer(request)

    async with ScriptedBroker(mute) as broker, open_gateway(broker) as sluice:
        unlucky, other = await sluice.client(), await sluice.client()
        await unlucky.send(produce_request(1, client_id=b"unlucky"))
        for number in range(50):
            assert correlation_id_of(await other.ask(produce_request(number))) == number
        sluice.sweep(later_ms=300_000)
        assert unlucky.take_waiting() == b""
        assert len(sluice.connections) == 2, "no blanket timer on answers: JoinGroup may wait for minutes"
        unlucky.close()
        await until(lambda: len(sluice.connections) == 1)


async def test_a02_a_broker_whose_machine_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to a broker closes with `broker_silent` when the kernel has heard nothing from the broker for `BROKER_SILENT_MS`."""
    monkeypatch.setattr(connection_deadlines, "ASK_KERNEL_AFTER_MS", 0)
    async with ScriptedBroker(silent) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1))
        await (await broker.connection()).until_requests(1)
        for _ in range(SLICES):
            sluice.sweep(5_000)
        assert sluice.closes == {}, "the kernel was asked, and had heard of the broker"
        monkeypatch.setattr(connection_deadlines, "BROKER_SILENT_MS", 100)
        await asyncio.sleep(0.2)
        for _ in range(SLICES):
            sluice.sweep(5_000)
        assert await client.read_to_end() == b""
        assert sluice.closes == {"broker_silent": 1}


# --- A7


NONSENSE = {
    "length-negative": struct.pack(">ii", -1, 1),
    "length-smallest": struct.pack(">ii", -(2**31), 1),
    "length-zero": struct.pack(">ii", 0, 1),
    "length-three": struct.pack(">ii", 3, 1),
}


@pytest.mark.parametrize("name", NONSENSE)
@pytest.mark.parametrize("cut", [1, 100])
async def test_a07_a_length_that_cannot_be(name: str, cut: int) -> None:
    """A response with an invalid length closes both sides, and no byte of it reaches the client."""

    async def nonsense(connection: BrokerConnection, request: Request) -> None:
        for at in range(0, len(NONSENSE[name]), cut):
            await connection.send(NONSENSE[name][at : at + cut])

    async with ScriptedBroker(nonsense) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(fetch_request(1))
        assert await client.read_to_end() == b""
        await sluice.until_closed("frame_size")
        await (await broker.connection()).until_ended()


@pytest.mark.parametrize("answered", ["produce", "fetch", "api-versions"])
async def test_a07_a_huge_length_allocates_nothing(answered: str) -> None:
    """A response of 2 GiB that has to be rewritten closes the connection; one that is forwarded unchanged passes as it arrives."""
    huge = 2**31 - 1
    request = {"produce": produce_request(1), "fetch": fetch_request(1), "api-versions": api_versions_request(1)}[answered]

    async def claim(connection: BrokerConnection, request: Request) -> None:
        await connection.send(struct.pack(">ii", huge, 1) + bytes(100))

    async with ScriptedBroker(claim) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(request)
        if answered == "fetch":
            assert len(await client.read_exactly(108)) == 108
            await (await broker.connection()).close()
            assert await client.read_to_end() == b""
            await sluice.until_closed("broker_closed")
        else:
            assert await client.read_to_end() == b""
            await sluice.until_closed("rewrite_limit")


@pytest.mark.parametrize("seed", range(5))
async def test_a07_truncated_then_closed(seed: int) -> None:
    """A response that is cut by the broker's close reaches the client as a prefix or not at all, and is never padded."""
    cuts = random.Random(seed)
    whole = produce_answer(9, 2)

    async def truncate(connection: BrokerConnection, request: Request) -> None:
        if request.correlation_id == 1:
            await connection.answer(request)
            return
        await connection.send(whole[: cuts.randrange(1, len(whole))])
        await connection.close()

    async with ScriptedBroker(truncate) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1, version=9) + produce_request(2, version=9))
        assert correlation_id_of(await client.read_frame()) == 1
        rest = await client.read_to_end()
        assert whole.startswith(rest)
        assert len(rest) < len(whole)
        await sluice.until_closed("broker_closed")


# --- A8


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a08_closed_to_signal_an_error_with_acks_0(how: str) -> None:
    """When the broker closes the connection because a Produce with acks=0 failed, the client's connection closes too, throttled or not."""

    async def fail(connection: BrokerConnection, request: Request) -> None:
        await (connection.reset() if how == "reset" else connection.close())

    for table in (None, quotas(produce=1_000)):
        async with ScriptedBroker(fail) as broker, open_gateway(broker, table=table) as sluice:
            client = await sluice.client()
            await client.send(produce_of_size(60_000, 1, acks=0))
            assert await client.read_to_end() == b""
            assert client.ended in (End.FIN, End.RESET)
            await until(lambda: sum(sluice.closes.values()) == 1)
            assert len(broker.connections) == 1
