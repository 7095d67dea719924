"""`python -m tests.support.monitoring.load BROKER_PORT... -- CLIENT_PORT LOGIN_PORT`: brokers, and clients that fill each panel of a board.

It ends with the end of its standard input. Each client has a quota that it exceeds, except `web`: see `QUOTAS`.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from protocol.api_keys import ApiKey
from tests.support.frames import sasl_frames, topic_frames
from tests.support.frames.kafka_frames import api_of, message, response
from tests.support.frames.topic_change_layouts import change_layout
from tests.support.processes.sluice_process import QuotaEntry
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ClosedByPeerError, ScriptedClient
from tests.support.scripted.scripted_frames import OFFERED, Node, Request, fetch_request, metadata_request, produce_of_size, request
from tests.support.tls import sasl_tokens

QUOTAS: Final[tuple[QuotaEntry, ...]] = (
    {"client-id": "etl", "producer_byte_rate": 10_000},
    {"client-id": "reports", "consumer_byte_rate": 10_000},
    {"client-id": "batch", "request_percentage": 0.1},
    {"client-id": "topics", "controller_mutation_rate": 1},
    {"user": "alice", "producer_byte_rate": 10_000},
    {"client-id": "<default>", "producer_byte_rate": 1_000_000, "consumer_byte_rate": 1_000_000},
    {"ip": "127.0.0.2", "connection_creation_rate": 1},
)
PAUSE_S: Final = 0.1
SLOW_ANSWER_S: Final = 0.05
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
ILLEGAL_LOGIN: Final = 58
_OFFERED: Final = OFFERED | {int(ApiKey.CREATE_TOPICS): (2, 7), SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}


async def answers(connection: BrokerConnection, asked: Request) -> None:
    """Answer as a broker: `alice` may log in, `batch` waits, and each topic can be created."""
    match asked.key:
        case 17:
            await connection.send(sasl_frames.handshake_answer(asked.correlation_id))
        case 36:
            code = 0 if b"alice" in asked.frame else ILLEGAL_LOGIN
            await connection.send(sasl_frames.authenticate_answer(asked.correlation_id, error_code=code))
        case ApiKey.CREATE_TOPICS:
            api = api_of(asked.key, asked.version)
            topics = [{"Name": name} for name in topic_frames.names_in(asked.frame)]
            await connection.send(response(api, message(change_layout(api, "response"), Topics=topics), asked.correlation_id))
        case _:
            if asked.client_id == b"batch":
                await asyncio.sleep(SLOW_ANSWER_S)
            await connection.answer(asked)


async def serve(ports: list[int]) -> list[ScriptedBroker]:
    """Start brokers at these ports; their node ids count from 1."""
    nodes = [Node(number, "127.0.0.1", port) for number, port in enumerate(ports, 1)]
    brokers = [ScriptedBroker(answers, node_id=node.node_id, nodes=nodes, records=b"f" * 4_000) for node in nodes]
    for broker, port in zip(brokers, ports, strict=True):
        broker.offered, broker.port = _OFFERED, port
        broker.listen()
    return brokers


async def asks(port: int, frame: Callable[[int], bytes], source: str | None = None) -> None:
    """Send requests on one connection, each after the answer to the one before."""
    async with await ScriptedClient.connect(port, source=source) as client:
        for number in itertools.count(1):
            await client.ask(frame(number))
            await asyncio.sleep(PAUSE_S)


async def logs_in(port: int, user: str) -> None:
    """Log in by PLAIN, and produce for a while."""
    async with await ScriptedClient.connect(port) as client:
        await client.ask(sasl_frames.handshake("PLAIN"))
        await client.ask(sasl_frames.authenticate(sasl_tokens.plain(user, "password")))
        for number in range(3, 23):
            await client.ask(produce_of_size(2_000, number, client_id=b"app"))
            await asyncio.sleep(PAUSE_S)


async def visits(port: int) -> None:
    """Connect from an address with a low quota of connections, and leave."""
    async with await ScriptedClient.connect(port, source="127.0.0.2") as client:
        await client.ask(metadata_request(1, client_id=b"visitor"))


def describe_quotas(number: int) -> bytes:
    """Return DescribeClientQuotas v0 of all quotas, which no client may read here."""
    return request(int(ApiKey.DESCRIBE_CLIENT_QUOTAS), 0, bytes(5), number, client_id=b"web")


async def again(once: Callable[[], Awaitable[None]]) -> None:
    """Repeat, whatever ends it: a worker that dies, a refused login."""
    while True:
        with contextlib.suppress(ConnectionError, ClosedByPeerError):
            await once()
        await asyncio.sleep(PAUSE_S)


def clients(port: int, broker_ports: list[int], login_port: int) -> list[Coroutine[Any, Any, None]]:
    """Return the clients.

    Args:
        port: bootstrap port.
        broker_ports: ports of the brokers at the proxy.
        login_port: bootstrap port where clients log in.
    """
    first, second = broker_ports
    return [
        again(lambda: asks(first, lambda number: produce_of_size(2_000, number, client_id=b"etl"))),
        again(lambda: asks(second, lambda number: fetch_request(number, client_id=b"reports"))),
        again(lambda: asks(first, lambda number: produce_of_size(200, number, client_id=b"batch"))),
        again(lambda: asks(second, lambda number: produce_of_size(1_000, number, client_id=b"web"))),
        again(lambda: asks(first, lambda number: fetch_request(number, client_id=b"web"))),
        again(lambda: asks(port, lambda number: topic_frames.create(number, {f"made-{number}": 9}, client_id="topics"))),
        again(lambda: asks(port, describe_quotas)),
        again(lambda: logs_in(login_port, "alice")),
        again(lambda: logs_in(login_port, "mallory")),
        again(lambda: visits(port)),
    ]


async def main(brokers: list[int], port: int, login_port: int) -> None:
    """Run until standard input ends."""
    await serve(brokers)
    tasks = [asyncio.create_task(one) for one in clients(port, [port + 1 + number for number in range(1, 1 + len(brokers))], login_port)]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    at = sys.argv.index("--")
    asyncio.run(main([int(one) for one in sys.argv[1:at]], *map(int, sys.argv[at + 1 :])))
