"""Fleets of real processes at a real broker, and loads on them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Self

from bench.fleet.cells import Cell
from bench.fleet.clients import CLIENTS, Load
from bench.fleet.members import Fleet, Samples
from bench.harness.engine import Engine
from bench.harness.raw_client import preload
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic

KINDS: Final = ("produce", "fetch")
PRODUCE_BYTES: Final = 100_000
START_S_MAX: Final = 60.0
_PRELOADED: Final = (640, 100_000)
"""Batches in the topic of the fetchers, and the bytes of each. A Java consumer reads the topic once."""


class Fleets:
    """A broker, one Sluice without a fleet, and fleets of these sizes; a context manager.

    Args:
        sizes: numbers of members.
        fetch_bytes: the most that a fetch may return.
    """

    def __init__(self, sizes: Sequence[int], fetch_bytes: int) -> None:
        self._sizes = sizes
        self._bytes = {"produce": PRODUCE_BYTES, "fetch": fetch_bytes}
        self._stack = ExitStack()
        self._fleets: list[Fleet] = []

    def __enter__(self) -> Self:
        with self._stack as stack:
            engine = Engine()
            stack.callback(engine.close)
            cluster = stack.enter_context(KafkaCluster(KRAFT, name="fleet", settings={"log.retention.bytes": 2_000_000_000}))
            (self._node_id,) = cluster.nodes
            with JavaTools(KRAFT) as tools:
                for kind in KINDS:
                    create_topic(tools, cluster.bootstrap, _topic(kind))
            asyncio.run(preload(int(cluster.bootstrap.rsplit(":", 1)[1]), _topic("fetch"), *_PRELOADED))
            for size in (1, *self._sizes):
                fleet = Fleet(size, cluster.bootstrap, [self._node_id], engine.folder)
                self._fleets.append(stack.enter_context(fleet))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    async def run(self, client: str, kind: str, load: str, seconds: float, run: int = 0) -> list[Cell]:
        """Run one load at all fleets at the same time; `run` is its number, since each run has client-ids of its own."""
        return await asyncio.gather(*(self._run(fleet, client, kind, load, seconds, run) for fleet in self._fleets))

    async def _run(self, fleet: Fleet, client: str, kind: str, load: str, seconds: float, run: int) -> Cell:
        client_id = f"{client}-{kind}-{load}-{fleet.size}-{run}"
        samples = Samples(fleet, kind, client_id)
        async with CLIENTS[client](Load(kind, load, fleet, client_id, _topic(kind), self._node_id, self._bytes[kind])):
            await samples.take(seconds, START_S_MAX)
        return Cell(client, kind, load, fleet.size, samples.samples, await asyncio.to_thread(lambda: fleet.lag_ms))


def _topic(kind: str) -> str:
    return f"fleet-{kind}"
