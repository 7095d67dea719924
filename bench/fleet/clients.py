"""Clients that always have more to send or to fetch, spread over the members of a fleet: of raw sockets, Java and librdkafka."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from bench.fleet.members import Fleet
from bench.fleet.relay import Address
from bench.harness.engine import ROOT
from bench.harness.raw_client import Place, saturating
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import CONSUMER_PERFORMANCE, ProducerLoad, start_producer

CONNECTIONS: Final = 16
LOADS: Final = ("even", "skewed", "moving")
MOVE_S: Final = 10.0
SPREAD_S: Final = 10.0
"""Clients begin within this time. If all began at once, the waves of one process would be the same in each run."""
RECORD_BYTES: Final = 1_000
QUEUE_BYTES: Final = 400_000
"""What a producer of a library keeps: some seconds of its part of the bound."""
OFFERED: Final = 4
"""What each Java producer sends at most, in parts of the bound."""
JAVA_HEAP_MB: Final = 768
MANY: Final = 10**9


class Load(NamedTuple):
    """What clients do.

    Attributes:
        kind: produce or fetch.
        name: one of `LOADS`.
        fleet: where they connect.
        client_id: all clients have this one.
        topic: of one partition.
        node_id: the broker of the topic.
        request_bytes: the value in a raw produce request, or the most bytes of a fetch.
    """

    kind: str
    name: str
    fleet: Fleet
    client_id: str
    topic: str
    node_id: int
    request_bytes: int

    @property
    def counts(self) -> list[int]:
        """The number of clients at each member; not for a load that moves."""
        size = self.fleet.size
        return [CONNECTIONS // size] * size if self.name == "even" else [CONNECTIONS - size + 1] + [1] * (size - 1)

    @property
    def places(self) -> list[tuple[Address, int]]:
        """Where clients of a library begin, and their number there."""
        if self.name == "moving":
            return [(self.fleet.balanced_address, CONNECTIONS)]
        return [(self.fleet.address(number), count) for number, count in enumerate(self.counts)]


Clients = Callable[[Load], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def raw_clients(load: Load) -> AsyncIterator[None]:
    """Clients over sockets, each with one request in flight; those of a load that moves connect anew, at once."""
    addresses = [load.fleet.broker_address(number, load.node_id) for number in range(load.fleet.size)]
    places = [Place(address.port, load.client_id, load.topic, load.request_bytes, host=address.host) for address in addresses]
    async with AsyncExitStack() as stack:
        if load.name == "moving":
            await stack.enter_async_context(_running(_move_raw(load.kind, places)))
        else:
            for place, count in zip(places, load.counts, strict=True):
                await stack.enter_async_context(saturating(load.kind, place, count, within_s=SPREAD_S))
        yield


async def _move_raw(kind: str, places: Sequence[Place]) -> None:
    within_s = SPREAD_S
    while True:
        for place in places:
            async with saturating(kind, place, CONNECTIONS, within_s=within_s):
                await asyncio.sleep(MOVE_S)
            within_s = 0.0


@asynccontextmanager
async def java_clients(load: Load) -> AsyncIterator[None]:
    """Kafka's own performance tools with the client of Java 4.3, in one JVM, which ends with the block."""
    tools = await asyncio.to_thread(JavaTools, KRAFT, JAVA_HEAP_MB)
    addresses = [address for address, count in load.places for _ in range(count)]

    async def start(number: int, address: Address) -> None:
        await asyncio.sleep(random.uniform(0.0, SPREAD_S))
        _start_java(tools, load, f"{address.host}:{address.port}", f"{load.client_id}-{number}")

    try:
        async with _balanced(load), AsyncExitStack() as stack:
            for number, address in enumerate(addresses):
                await stack.enter_async_context(_running(start(number, address)))
            yield
    finally:
        await asyncio.to_thread(tools.close)


def _start_java(tools: JavaTools, load: Load, bootstrap: str, group: str) -> None:
    if load.kind == "produce":
        rate = OFFERED * 1_000_000 // RECORD_BYTES
        settings = {"buffer.memory": str(QUEUE_BYTES)}
        start_producer(tools, bootstrap, ProducerLoad(load.topic, MANY, RECORD_BYTES, load.client_id, settings, rate))
        return
    words = ["--bootstrap-server", bootstrap, "--topic", load.topic, "--group", group, "--timeout", str(MANY), "--num-records", str(MANY)]
    words += ["--command-property", f"client.id={load.client_id}", "--fetch-size", str(load.request_bytes)]
    tools.start(CONSUMER_PERFORMANCE, *words)


@asynccontextmanager
async def librdkafka_clients(load: Load) -> AsyncIterator[None]:
    """Clients of librdkafka, in one process for each member."""
    processes: list[asyncio.subprocess.Process] = []
    try:
        async with _balanced(load):
            for address, count in load.places:
                words = [load.kind, f"{address.host}:{address.port}", load.topic, load.client_id]
                numbers = map(str, (count, load.request_bytes, SPREAD_S))
                command = [sys.executable, "-m", "bench.fleet.librdkafka_app", *words, *numbers]
                processes.append(await asyncio.create_subprocess_exec(*command, cwd=ROOT))
            yield
    finally:
        for process in processes:
            process.kill()
            await process.wait()


@asynccontextmanager
async def _balanced(load: Load) -> AsyncIterator[None]:
    """Run a balancer that sends all clients to one member for 10 s, then to the next one; only for a load that moves."""
    if load.name != "moving":
        yield
        return
    async with load.fleet.balancer() as balancer:

        async def move() -> None:
            number = 0
            while True:
                await asyncio.sleep(MOVE_S)
                number = (number + 1) % load.fleet.size
                balancer.move(load.fleet.behind_balancer(number))

        async with _running(move()):
            yield


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a task inside the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


CLIENTS: Final[dict[str, Clients]] = {"raw": raw_clients, "java": java_clients, "librdkafka": librdkafka_clients}
