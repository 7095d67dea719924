"""The loads of `bench.handler_time`, from a low rate to full speed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.harness.arms import Arm
from bench.harness.engine import Child, Engine
from bench.harness.frames import Template, fetch_request, metadata_request, offset_commit_request, produce_request, write_templates
from bench.harness.raw_client import FETCH_VERSION, PRODUCE_VERSION
from bench.harness.records import record_batch

SMALL, LARGE, MIB = 200, 100_000, 1_000_000
TOPICS = ("small", "large", "old", "empty", "slow", "backlog", "group", "packed")
REPLICATED = "replicated"
COMMIT_GROUP = "handler-commits"
BUSY_LOOPS = 2
Make = Callable[[str], Template]
Clients = list[dict[str, Any]]
Start = Callable[["Stage", str], list[Child]]


@dataclass(frozen=True, slots=True)
class Stage:
    """A Sluice in front of a warmed-up cluster."""

    engine: Engine
    arm: Arm

    def raw(self, requests: list[Template], *, rate: float = 0, depth: int = 1) -> Child:
        """Send each of `requests` on its own connection repeatedly: `rate` per second in all, 0 = as fast as answers arrive."""
        return self.engine.load(requests, self.arm.port, conns=len(requests), depth=depth, rate=rate)

    def clients(self, clients: Clients) -> Child:
        """Start clients of `bench.handler_time.app`."""
        return Child([sys.executable, "-m", "bench.handler_time.app", self.arm.bootstrap, json.dumps(clients)])

    def bursts(self, template: Template, client_id: str, *, depth: int, rate: float) -> Child:
        """Start a connection that sends `depth` requests at once."""
        files = {"templates": str(self.engine.file(write_templates([template]))), "counter": str(self.engine.file(bytes(8)))}
        one = {"kind": "bursts", "client_id": client_id, "port": self.arm.port, "depth": depth, "rate": rate / depth, **files}
        return self.clients([one])


@dataclass(frozen=True, slots=True)
class HandlerLoad:
    """One row.

    Attributes:
        start: starts the load; its client-ids begin with a prefix.
        brokers: the number of brokers behind Sluice.
        saturated: the load saturates the machine; the row is shown and not judged.
        waits: every request waits at the broker; the row has a goal of its own.
        busy: two endless loops run at the same time.
    """

    name: str
    what: str
    start: Start
    brokers: int = 1
    saturated: bool = False
    waits: bool = False
    busy: bool = False


@contextmanager
def running(load: HandlerLoad, stage: Stage, prefix: str) -> Iterator[None]:
    """Run the load for the length of the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS if load.busy else 0)]
    children: list[Child] = []
    try:
        children += load.start(stage, prefix)
        yield
    finally:
        for child in children:
            child.stop()
        for loop in loops:
            loop.kill()
            loop.wait()


def produce_small(client_id: str) -> Template:
    """One record of 200 bytes."""
    return _produce("small", SMALL, client_id)


def produce_large(client_id: str) -> Template:
    """One record of 100 kB."""
    return _produce("large", LARGE, client_id)


def _produce(topic: str, record_bytes: int, client_id: str) -> Template:
    return produce_request(PRODUCE_VERSION, record_batch(bytes(record_bytes)), topic=topic, client_id=client_id)


def fetch_old(client_id: str, record_bytes: int = MIB) -> Template:
    """Existing data."""
    limits = {"max_bytes": record_bytes, "partition_max_bytes": record_bytes}
    return fetch_request(FETCH_VERSION, topic="old", client_id=client_id, **limits)


def fetch_nothing(client_id: str) -> Template:
    """A topic without records: the answer comes after half a second."""
    return fetch_request(FETCH_VERSION, topic="empty", client_id=client_id)


def ask_metadata(client_id: str) -> Template:
    """All topics."""
    return metadata_request(client_id=client_id)


def commit_offset(client_id: str) -> Template:
    """One partition of a group without members."""
    return offset_commit_request(COMMIT_GROUP, "small", client_id=client_id)


def raw(make: Make, connections: int = 1, *, rate: float = 0, depth: int = 1) -> Start:
    """Connections with a client-id each that send the same request."""
    return lambda stage, prefix: [stage.raw([make(f"{prefix}-{n}") for n in range(connections)], rate=rate, depth=depth)]


def in_bursts(make: Make, *, depth: int, rate: float) -> Start:
    """One connection, several requests at once."""
    return lambda stage, prefix: [stage.bursts(make(f"{prefix}-0"), f"{prefix}-0", depth=depth, rate=rate)]


def mixed(rate: float) -> Start:
    """18 connections of six kinds, all at the same rate."""
    kinds: list[tuple[str, Make, int]] = [
        ("produce", produce_small, 6),
        ("large", produce_large, 2),
        ("metadata", ask_metadata, 4),
        ("old", lambda client_id: fetch_old(client_id, LARGE), 2),
        ("wait", fetch_nothing, 2),
        ("commit", commit_offset, 2),
    ]
    return lambda stage, prefix: [stage.raw([make(f"{prefix}-{kind}-{n}") for kind, make, count in kinds for n in range(count)], rate=rate)]


def producers(*clients: dict[str, Any], count: int = 1) -> Start:
    """Start `count` of each of these producers."""
    return lambda stage, prefix: [
        stage.clients(
            [
                {"kind": "produce", **client, "client_id": f"{prefix}-{client.get('called', 'producer')}-{n}"}
                for client in clients
                for n in range(count)
            ]
        )
    ]


def both(one: Start, other: Start) -> Start:
    """Two loads at once."""
    return lambda stage, prefix: [*one(stage, prefix), *other(stage, prefix)]


def waiting_consumers(stage: Stage, prefix: str) -> list[Child]:
    """Eight consumers of a topic with few new records."""
    clients = [{"kind": "consume", "client_id": f"{prefix}-{n}", "group": f"{prefix}-{n}", "topic": "slow"} for n in range(8)]
    producer = {"kind": "produce", "client_id": f"{prefix}-producer", "topic": "slow", "rate": 4, "record_bytes": SMALL}
    return [stage.clients([*clients, producer])]


def catching_up(stage: Stage, prefix: str) -> list[Child]:
    """A consumer reads the existing records, then waits."""
    return [stage.clients([{"kind": "consume", "client_id": f"{prefix}-0", "group": prefix, "topic": "backlog"}])]


def rebalancing(stage: Stage, prefix: str) -> list[Child]:
    """A group of three, one of which leaves and joins again, and a producer."""
    clients: Clients = [{"kind": "consume", "client_id": f"{prefix}-{n}", "group": prefix, "topic": "group"} for n in range(3)]
    clients[0]["rejoin_seconds"] = 3
    producer = {"kind": "produce", "client_id": f"{prefix}-producer", "topic": "group", "rate": 50, "record_bytes": SMALL}
    return [stage.clients([*clients, producer])]


IDEMPOTENT = {"enable.idempotence": True}
ONE_ACK = {"acks": 1}
ALL_ACKS = {"acks": "all"}


def _records(topic: str, rate: float, settings: dict[str, Any], *, size: int = SMALL, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "rate": rate, "record_bytes": size, "settings": settings, **more}


CALM = [
    HandlerLoad("produce-200B", "produce 200 B acks=1, 100/s", raw(produce_small, rate=100)),
    HandlerLoad("produce-200B-4", "... 4 x 300/s", raw(produce_small, 4, rate=1_200)),
    HandlerLoad("produce-200B-full-speed", "... 1 at full speed", raw(produce_small), saturated=True),
    HandlerLoad("produce-100kB", "produce 100 kB, 30/s", raw(produce_large, rate=30)),
    HandlerLoad("produce-100kB-2", "... 2 x 150/s", raw(produce_large, 2, rate=300)),
    HandlerLoad("idempotent", "idempotent acks=all, 100/s", producers(_records("small", 100, IDEMPOTENT))),
    HandlerLoad(
        "idempotent-2",
        "... 2 x 1,500 records/s, linger 2 ms",
        producers(_records("small", 1_500, {**IDEMPOTENT, "linger.ms": 2}), count=2),
    ),
    HandlerLoad("fetch-waiting", "waiting fetch, 5 x 2/s", raw(fetch_nothing, 5), waits=True),
    HandlerLoad("consumers-slow-topic", "8 consumers, slow topic", waiting_consumers),
    HandlerLoad("fetch-1MB", "old data 1 MB, 10/s", raw(fetch_old, rate=10)),
    HandlerLoad("fetch-1MB-2", "... 2 x 60/s", raw(fetch_old, 2, rate=120)),
    HandlerLoad("consumer-catching-up", "consumer catching up, then waiting", catching_up),
    HandlerLoad("metadata", "Metadata 100/s", raw(ask_metadata, rate=100)),
    HandlerLoad("metadata-full-speed-1", "... 1 at full speed", raw(ask_metadata), saturated=True),
    HandlerLoad("metadata-full-speed", "... 4 at full speed", raw(ask_metadata, 4), saturated=True),
    HandlerLoad("commit", "OffsetCommit 100/s", raw(commit_offset, rate=100), waits=True),
    HandlerLoad("commit-full-speed", "... 4 at full speed", raw(commit_offset, 4), saturated=True),
    HandlerLoad("mixed-200", "18 connections mixed, 200/s", mixed(200)),
    HandlerLoad("mixed-1000", "... 1,000/s", mixed(1_000)),
    HandlerLoad("bursts-produce", "produce, 5 deep, bursts, 100/s", in_bursts(produce_small, depth=5, rate=100)),
    HandlerLoad("deep-full-speed", "... 2 at full speed", raw(produce_small, 2, depth=5), saturated=True),
    HandlerLoad("bursts-metadata", "Metadata, 5 deep, 500/s", in_bursts(ask_metadata, depth=5, rate=500)),
    HandlerLoad("group-rebalancing", "group of 3, rebalancing, and a producer", rebalancing),
    HandlerLoad(
        "lz4",
        "lz4 produce, 40 kB as 1.5 kB, 50/s",
        producers(_records("packed", 50, {**ONE_ACK, "compression.type": "lz4"}, size=40_000, noise_bytes=1_300)),
    ),
]
THREE_BROKERS = [
    HandlerLoad("rf3", "3 brokers, RF 3: acks=1, 100/s", producers(_records(REPLICATED, 100, ONE_ACK)), 3),
    HandlerLoad("rf3-idempotent", "... idempotent acks=all, 100/s", producers(_records(REPLICATED, 100, IDEMPOTENT)), 3),
    HandlerLoad("rf3-all-2", "... acks=all, 2 x 800/s", producers(_records(REPLICATED, 800, ALL_ACKS), count=2), 3),
    HandlerLoad(
        "rf3-all-10kB",
        "... acks=all, 10 kB batches, 100/s",
        producers(_records(REPLICATED, 1_000, {**ALL_ACKS, "linger.ms": 10}, size=1_000)),
        3,
    ),
    HandlerLoad(
        "rf3-all-beside-1",
        "... acks=all beside acks=1, 100/s each",
        producers(_records(REPLICATED, 100, ALL_ACKS, called="all"), _records(REPLICATED, 100, ONE_ACK, called="one")),
        3,
    ),
]
WARM_UP = {
    1: HandlerLoad("warm-up", "", both(mixed(1_000), producers(_records("small", 100, IDEMPOTENT)))),
    3: HandlerLoad("warm-up", "", producers(_records(REPLICATED, 200, ALL_ACKS, called="all"), _records(REPLICATED, 200, ONE_ACK)), 3),
}
BESIDE_LOOPS = ("produce-200B", "idempotent", "fetch-1MB", "metadata", "mixed-200")
BUSY = [replace(load, name=f"{load.name}-busy", what=f"{load.what}, +busy", busy=True) for load in CALM if load.name in BESIDE_LOOPS]
LOADS = [*CALM, *BUSY, *THREE_BROKERS]
