"""Rows D13, D14, D15 and F9: pipelined requests, the order of responses, and fairness between clients."""

import asyncio
import random
import struct

import pytest

from proxy.session.requests.request_side import FRAMES_PER_TURN
from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import BrokerConnection, Hold, ScriptedBroker
from tests.support.scripted.scripted_frames import (
    PRODUCE_VERSIONS,
    Request,
    acks_of,
    correlation_id_of,
    fetch_answer,
    fetch_request,
    framed,
    metadata_request,
    produce_answer,
    produce_of_size,
    produce_request,
    request,
)
from tests.support.scripted.scripted_sockets import End, for_a_while, until

IN_FLIGHT_MAX = 64
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


# --- D13


async def test_d13_pipelined_requests_keep_their_order() -> None:
    """Of 1,000 pipelined requests at most 64 are in flight, and all responses arrive in request order."""
    count = 1_000
    hold = Hold()
    async with ScriptedBroker(hold) as broker, open_gateway(broker, table=quotas(produce=1e9)) as sluice:
        client = await sluice.client()
        await client.send(b"".join(produce_request(at) for at in range(count)))
        connection = await broker.connection()
        await connection.until_requests(IN_FLIGHT_MAX)
        await for_a_while(0.1, lambda: len(connection.requests) == IN_FLIGHT_MAX)
        assert sluice.connections[0].client.paused_for == ("in_flight",)
        hold.release()
        answers = await client.read_frames(count)
        assert answers == [produce_answer(9, at) for at in range(count)]
        assert [asked.correlation_id for asked in connection.requests] == list(range(count))


@pytest.mark.parametrize("mode", ["delay", "mute"])
async def test_d13_mute_takes_effect_at_the_first_violation(mode: str) -> None:
    """After a violation the broker gets only requests that were in flight already."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, table=quotas(produce=10_000)) as sluice:
        client = await sluice.client()
        await client.send(produce_of_size(150_000, 1) + b"".join(produce_request(at) for at in range(2, 502)))
        connection = await broker.connection()
        await until(lambda: any("throttle" in open_one.client.paused_for for open_one in sluice.connections))
        seen = len(connection.requests)
        assert seen <= 1 + IN_FLIGHT_MAX
        await for_a_while(0.3, lambda: len(connection.requests) <= max(seen, 1 + IN_FLIGHT_MAX))
        (open_one,) = sluice.connections
        assert open_one.session.requests.pending.kept_bytes <= 256 * 1024
        client.reset()
        await asyncio.sleep(0.05)
        sluice.sweep()


# --- D14


async def test_d14_any_correlation_ids() -> None:
    """With repeated, random and negative correlation ids each response arrives in the place of its request."""
    rng = random.Random(14)
    ids = [rng.choice((INT32_MIN, -1, 0, 7, INT32_MAX, rng.randint(INT32_MIN, INT32_MAX))) for _ in range(3_000)]

    async def script(connection: BrokerConnection, asked: Request) -> None:
        await connection.send(fetch_answer(12, asked.correlation_id, struct.pack(">i", len(connection.requests))))

    async with ScriptedBroker(script) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        sending = asyncio.ensure_future(client.send(b"".join(fetch_request(correlation_id) for correlation_id in ids)))
        for number, correlation_id in enumerate(ids, 1):
            assert await client.read_frame() == fetch_answer(12, correlation_id, struct.pack(">i", number))
        await sending


# --- D15


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_d15_acks_0_takes_no_place_in_the_order(version: int) -> None:
    """Requests with acks=0 between others do not disturb the matching of responses."""
    rng = random.Random(version)
    kinds = [rng.random() < 0.5 for _ in range(200)]
    frames = [produce_request(at, b"r" * (at % 50), version=version, acks=0 if silent else 1) for at, silent in enumerate(kinds)]
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9)) as sluice:
        client = await sluice.client()
        await client.send(b"".join(frames) + metadata_request(9_999))
        answered = [at for at, silent in enumerate(kinds) if not silent]
        assert await client.read_frames(len(answered)) == [produce_answer(version, at) for at in answered]
        assert correlation_id_of(await client.read_frame()) == 9_999
        assert [asked.frame for asked in broker.connections[0].requests][:-1] == frames
        assert [acks_of(asked) == 0 for asked in broker.connections[0].requests[:-1]] == kinds
        (connection,) = sluice.connections
        assert connection.session.requests.frames == 201
        (group,) = sluice.groups()
        assert group.recorded_total == sum(len(frame) - 4 for frame in frames)


async def test_d15_acks_0_then_close() -> None:
    """All of 1,000 requests with acks=0 that are followed by a close reach the broker."""
    frames = [produce_request(at, bytes(200), acks=0) for at in range(1_000)]
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9)) as sluice:
        client = await sluice.client()
        await client.send(b"".join(frames))
        client.close()
        connection = await broker.connection()
        assert await connection.until_ended() is End.FIN
        assert connection.received == b"".join(frames)
        assert len(connection.requests) == 1_000


async def test_d15_acks_0_is_muted_on_a_violation() -> None:
    """A Produce with acks=0 over the quota is forwarded whole, and the request after it waits."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=100_000)) as sluice:
        client = await sluice.client()
        violating = produce_of_size(1_030_000, 1, acks=0)
        await client.send(violating)
        connection = await broker.connection()
        await until(lambda: bool(sluice.connections and sluice.connections[0].client.pauses))
        await client.send(produce_of_size(500, 2, acks=0))
        await until(lambda: len(connection.received) == len(violating))
        assert sluice.connections[0].client.paused_for == ("throttle",)
        assert len(await connection.until_requests(2)) == 2


async def test_d15_a_produce_that_cannot_be_read_closes() -> None:
    """A Produce whose acks cannot be parsed closes the connection."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        for body in (b"", b"\x00", struct.pack(">h", 20_000) + b"x"):
            client = await sluice.client()
            await client.send(request(0, 7, body))
            assert await client.read_to_end() == b""
        await broker.until_quiet()
        assert all(connection.received == b"" for connection in broker.connections)
        assert sum(sluice.closes.values()) == 3
        assert sluice.closes.keys() <= {"bad_request", "bad_header"}


# --- F9


async def test_f09_a_neighbour_is_served_between_the_frames_of_greedy_clients() -> None:
    """While eight clients have thousands of requests queued, another client's request waits for a bounded number of theirs."""
    greedy_count, frames_each = 8, 3_000
    answered = 0

    async def script(connection: BrokerConnection, asked: Request) -> None:
        nonlocal answered
        answered += 1
        await connection.send(framed(struct.pack(">ii", asked.correlation_id, 0)))

    load = request(11, 0, bytes(30)) * frames_each  # a JoinGroup, which is forwarded unparsed
    async with ScriptedBroker(script) as broker, open_gateway(broker) as sluice:
        probe = await sluice.client()
        await probe.ask(request(11, 0, b""))
        greedy = [await sluice.client() for _ in range(greedy_count)]
        sends = [asyncio.ensure_future(client.send(load)) for client in greedy]
        reads = [asyncio.ensure_future(client.read_frames(frames_each)) for client in greedy]
        waits = []
        while not all(read.done() for read in reads):
            before = answered
            await probe.ask(request(11, 0, b""))
            waits.append(answered - before)
        await asyncio.gather(*sends, *reads)
        assert len(waits) >= 5
        assert sorted(waits)[len(waits) // 2] <= 8 * greedy_count * FRAMES_PER_TURN
