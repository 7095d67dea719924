"""Row A6: responses that match no request in flight, or that come out of order."""

import asyncio
import itertools
import random
from typing import Any

import pytest

from proxy.base.close_reason import CloseReason
from tests.support.frames.kafka_frames import answer_ids, answered, plain
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import Request, produce_answer, produce_request
from tests.support.scripted.scripted_sockets import until

ORDERS = 10_000


def test_a06_ten_thousand_orders() -> None:
    """For any order of responses, the client receives the prefix that is in request order, and the first wrong one closes both sides."""
    order = random.Random(6)
    with ProxyFixture() as proxy:
        for number in range(ORDERS):
            count = order.randrange(1, 8)
            ids = [order.randrange(-5, 5) for _ in range(count)] if number % 2 else list(range(count))
            given = [*ids]
            order.shuffle(given)
            if number % 3 == 0:
                given.insert(order.randrange(count + 1), order.choice([*ids, 77, -(2**31)]))
            right = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ids, given, strict=False)))
            peer = proxy.connect()
            assert peer.sends(*map(plain, ids)) == [correlation_id & 0xFFFFFFFF for correlation_id in ids]
            proxy.closed.clear()
            data = b"".join(map(answered, given))
            step = order.choice([1, 3, 9, 1_000])
            for at in range(0, len(data), step):
                peer.broker.arrive(data[at : at + step])
            delivered = [int.from_bytes(frame.to_bytes(4, "big"), "big", signed=True) for frame in answer_ids(peer.client.take())]
            assert delivered == [pair[0] for pair in right]
            if len(given) == len(right):
                assert proxy.closed == []
            elif len(right) == len(ids):
                assert [reason for reason, _ in proxy.closed] == [CloseReason.RESPONSE_UNSOLICITED]
            else:
                assert [reason for reason, _ in proxy.closed] == [CloseReason.RESPONSE_MISMATCH]
            peer.connection.close(CloseReason.SHUTDOWN)


@pytest.mark.parametrize(
    ("given", "delivered", "reason"),
    [
        pytest.param([2, 1, 3], [], "response_mismatch", id="out-of-order"),
        pytest.param([1, 1], [1], "response_mismatch", id="used-twice"),
        pytest.param([1, 2, 3, 3], [1, 2, 3], "response_unsolicited", id="one-too-many"),
        pytest.param([1, 9], [1], "response_mismatch", id="unheard-of"),
    ],
)
async def test_a06_over_sockets(given: list[int], delivered: list[int], reason: str) -> None:
    """A response out of order closes both connections with its reason, and the client receives no byte of that response."""

    async def answer_as_reported(connection: BrokerConnection, request: Request) -> None:
        if request.correlation_id == 3:
            await connection.send(b"".join(produce_answer(7, number) for number in given))

    async with ScriptedBroker(answer_as_reported) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(b"".join(produce_request(number, version=7) for number in (1, 2, 3)))
        assert answer_ids(await client.read_to_end()) == delivered
        await sluice.until_closed(reason)
        await (await broker.connection()).until_ended()


async def test_a06_an_answer_without_a_request() -> None:
    """A response that the broker sends before any request closes the connection."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await (await broker.connection()).send(produce_answer(7, 1))
        assert await client.read_to_end() == b""
        await sluice.until_closed("response_unsolicited")


@pytest.mark.parametrize(("closes", "reason"), [(False, "response_unsolicited"), (True, "broker_closed")])
@pytest.mark.parametrize("delay_s", [0.0, 0.05])
async def test_a06_a_broker_that_speaks_or_leaves_at_once(
    monkeypatch: pytest.MonkeyPatch, delay_s: float, reason: str, *, closes: bool
) -> None:
    """A broker that answers or closes before the client's socket is taken over ends both connections, and nothing of them stays."""
    start, loop = BrokerConnection.start, asyncio.get_running_loop()
    connect = loop.connect_accepted_socket

    def speak_or_leave(connection: BrokerConnection) -> None:
        if closes:
            connection.socket.close()
            return
        connection.socket.send(produce_answer(7, 1))
        start(connection)

    async def connect_late(*arguments: Any) -> Any:
        await asyncio.sleep(delay_s)
        return await connect(*arguments)

    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        with monkeypatch.context() as patched:
            patched.setattr(BrokerConnection, "start", speak_or_leave)
            patched.setattr(loop, "connect_accepted_socket", connect_late)
            clients = [await sluice.client() for _ in range(20)]
            assert [await ended(client) for client in clients] == [b""] * 20
            await until(lambda: sluice.closes == {reason: 20})
        assert sluice.connections == []
        assert sluice.counters.connections_open == 0


async def ended(client: ScriptedClient) -> bytes:
    """Return what a client receives until its connection ends, in whichever way."""
    try:
        return await client.read_to_end()
    except ConnectionError:
        return b""
