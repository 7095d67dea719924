"""A cut of the bus for 30 s under load, in two ways: the broker of the topic is stopped, or a relay before it carries nothing.

The cluster has two brokers: clients use the topic of one of them, and the bus is the topic of the other one. So clients are not affected.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from confluent_kafka.admin import AdminClient, NewTopic

from bench.fleet.clients import Load, raw_clients
from bench.fleet.members import BOUND, Fleet, Sample, Samples, fleet_topic
from bench.fleet.relay import Address, Relay
from bench.harness.engine import Engine
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.ports import free_port
from tests.support.processes.sluice_process import SluiceProcess

DATA_NODE: Final = 1
BUS_NODE: Final = 2
BEGIN_S: Final = 20
"""Beginning of the figures: the burst of the first window is over."""
CUT_S: Final = 55
HEAL_S: Final = 85
AFTER_S: Final = 87
END_S: Final = 122
LOW_GOAL: Final = 0.85
HIGH_GOAL: Final = 1.35
HEALED_GOAL_S: Final = 2.0
PATIENCE_S: Final = 30.0
REQUEST_BYTES: Final = 100_000
TOPIC: Final = "cut-data"
TOPIC_SETTINGS: Final = {"message.timestamp.type": "LogAppendTime", "retention.ms": "60000", "segment.ms": "60000"}
WAYS: Final = ("broker stopped", "relay")
LOADS: Final = ("even", "skewed", "moving")


@dataclass
class CutResult:
    """A cut under a load.

    Attributes:
        before, during, after: rate / bound before the cut, in it, and from 2 s after it on.
        noticed: number of members that reported the cut.
        healed_s: time from the end of the cut until the last of them exchanged usage again; None: it had not at the end.
    """

    way: str
    load: str
    members: int
    before: float
    during: float
    after: float
    noticed: int
    healed_s: float | None

    @property
    def is_good(self) -> bool:
        """Whether the goals are met; the rate of a load that moves has none."""
        is_even = self.load == "moving" or LOW_GOAL <= self.during / self.before <= HIGH_GOAL
        return is_even and self.noticed == self.members and self.healed_s is not None and self.healed_s <= HEALED_GOAL_S


class CutFleets:
    """Two brokers, a relay before that of the bus, and fleets of these sizes. A context manager.

    Args:
        sizes: numbers of members.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._stack = ExitStack()
        self._fleets: list[Fleet] = []

    def __enter__(self) -> Self:
        with self._stack as stack:
            engine = Engine()
            stack.callback(engine.close)
            relay_port = free_port()
            cluster = KafkaCluster(KRAFT, nodes=2, name="fleet-cuts", advertised_port={BUS_NODE: relay_port})
            stack.enter_context(cluster)
            self._bus = cluster.nodes[BUS_NODE]
            self._targets = {relay_port: Address("127.0.0.1", self._bus.ports.client)}
            upstream = cluster.nodes[DATA_NODE].address
            asyncio.run(self._create_topics(upstream))
            self._upstream, self._folder = upstream, engine.folder
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    async def _create_topics(self, upstream: str) -> None:
        """Create all topics. The relay runs meanwhile: with KRaft the client may be told that the broker behind it is the controller."""
        async with Relay(self._targets):
            await asyncio.to_thread(_create_topics, upstream, self._sizes)

    async def run(self, ways: Sequence[str], loads: Sequence[str]) -> list[CutResult]:
        """Run each load with each way of a cut."""
        found: list[CutResult] = []
        async with Relay(self._targets) as relay:
            for size in self._sizes:
                fleet = Fleet(size, self._upstream, (DATA_NODE, BUS_NODE), self._folder, "create = false")
                self._fleets.append(await asyncio.to_thread(self._stack.enter_context, fleet))
            for way in ways:
                for load in loads:
                    found += await self._run(relay, way, load)
                    print("\n".join(lines_of(found)[-len(self._sizes) :]), flush=True)
            await asyncio.to_thread(self._stack.close)
        return found

    async def _run(self, relay: Relay, way: str, load: str) -> list[CutResult]:
        cut: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "broker stopped": (lambda: self._signal(signal.SIGSTOP), lambda: self._signal(signal.SIGCONT)),
            "relay": (relay.hold, relay.carry),
        }
        begin, end = cut[way]
        runs = [asyncio.create_task(self._load(fleet, way, load)) for fleet in self._fleets]
        await asyncio.sleep(CUT_S)
        begun_s = time.time()
        begin()
        try:
            await asyncio.sleep(HEAL_S - CUT_S)
        finally:
            end()
        ended_s = time.time()
        samples = await asyncio.gather(*runs)
        return [self._result(way, load, fleet, some, begun_s, ended_s) for fleet, some in zip(self._fleets, samples, strict=True)]

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self._bus.process.pid, number)

    async def _load(self, fleet: Fleet, way: str, load: str) -> list[Sample]:
        client_id = f"{way.replace(' ', '-')}-{load}-{fleet.size}"
        samples = Samples(fleet, "produce", client_id)
        async with raw_clients(Load("produce", load, fleet, client_id, TOPIC, DATA_NODE, REQUEST_BYTES)):
            await samples.take(END_S, PATIENCE_S)
        return samples.samples

    def _result(self, way: str, load: str, fleet: Fleet, samples: list[Sample], begun_s: float, ended_s: float) -> CutResult:
        rates = [_rate(samples, *span) for span in ((BEGIN_S, CUT_S), (CUT_S, HEAL_S), (AFTER_S, END_S))]
        noticed = [member for member in fleet.members if _times(member, "fleet_cut_off", begun_s)]
        joined = [min(_times(member, "fleet_joined", ended_s), default=None) for member in noticed]
        healed = [at_s - ended_s for at_s in joined if at_s is not None]
        healed_s = max(healed) if healed and len(healed) == len(joined) else None
        return CutResult(way, load, fleet.size, *rates, len(noticed), healed_s)


def _create_topics(bootstrap: str, sizes: Sequence[int]) -> None:
    """Create the topic of the clients at one broker, and those of the fleets at the other one."""
    topics = [NewTopic(TOPIC, num_partitions=1, replica_assignment=[[DATA_NODE]])]
    topics += [NewTopic(fleet_topic(size), num_partitions=1, replica_assignment=[[BUS_NODE]], config=TOPIC_SETTINGS) for size in sizes]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics(topics).values():
        created.result(timeout=30)


def _rate(samples: Sequence[Sample], begin_s: float, end_s: float) -> float:
    """Return rate / bound between two times; between two samples as much is used in each moment."""
    return (_used(samples, end_s) - _used(samples, begin_s)) / (end_s - begin_s) / BOUND


def _used(samples: Sequence[Sample], at_s: float) -> float:
    before = max((sample for sample in samples if sample[0] <= at_s), key=lambda sample: sample[0])
    after = min((sample for sample in samples if sample[0] >= at_s), key=lambda sample: sample[0], default=samples[-1])
    span_s = after[0] - before[0]
    part = (at_s - before[0]) / span_s if span_s else 0.0
    return sum(before[1]) + part * (sum(after[1]) - sum(before[1]))


def _times(member: SluiceProcess, event: str, after_s: float) -> list[float]:
    """Return when a member logged an event after this time, both in seconds since 1970."""
    times = (datetime.fromisoformat(line["time"]).timestamp() for line in member.events(event))
    return [at_s for at_s in times if at_s >= after_s]


def lines_of(results: Sequence[CutResult]) -> list[str]:
    """Return the results in Markdown."""
    lines = [
        "| cut | load | members | noticed by | before | during | after | during over before | healed after | |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for one in results:
        healed = "not" if one.healed_s is None else f"{one.healed_s:.1f} s"
        rates = f"{one.before:.2f} | {one.during:.2f} | {one.after:.2f} | {one.during / one.before:.2f}"
        verdict = "ok" if one.is_good else "miss"
        lines.append(f"| {one.way} | {one.load} | {one.members} | {one.noticed} | {rates} | {healed} | {verdict} |")
    return lines
