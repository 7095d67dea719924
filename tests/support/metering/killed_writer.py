"""A process that meters until it is killed: decisions in real time, short file sets, and an independent count of the decisions."""

import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from metering_format.places import SEGMENTS
from proxy.base.files import make_directory
from proxy.meter.buffer import DecisionBuffer
from proxy.meter.usage import PRODUCE, Place
from proxy.metering.facts.names import Names
from proxy.metering.facts.usage_facts import usage_facts
from proxy.metering.layout import pending_path
from proxy.telemetry.client_usage import OTHER, Usage
from quota.entity import ANONYMOUS
from tests.support.metering.metering_writer_fixture import WALL_MS, MeteringWriterFixture

FLUSH_S = 0.05
PER_MS = 20
FLUSH_DECISIONS_MAX = 20_000
"""Slightly more than the decisions of a flush of 250 ms, since nothing here waits for the disk and a busy machine is late."""


CLIENTS = 3


def play(directory: str, run_id: str, truth: "Synchronized[int] | Any", used: Any, seed: int) -> None:
    """Decide without end; `truth` counts decisions, `used` the requests of each client."""
    place = Path(directory)
    make_directory(place / SEGMENTS)
    buffer = DecisionBuffer(pending_path(place, run_id))
    proxy = MeteringWriterFixture(place, buffer=buffer, header={"run_id": run_id}, rotate_ms=150)
    others, served_at = Usage(OTHER, OTHER), Place(("b", 1), "default")
    cells = [proxy.meter.usage.cell(served_at, Usage("ANONYMOUS", f"c{at}"), ANONYMOUS, PRODUCE, others) for at in range(CLIENTS)]
    proxy.writer.start()
    proxy.meter.flush()
    while not proxy.writer.counts.segments:
        time.sleep(0.001)
    flushed_s = time.monotonic()
    while True:
        for _ in range(PER_MS):
            proxy.play(1, seed, every_ms=(0, 0, 0, 1))
            seed += 1
            cells[seed % CLIENTS].requests += 1
            used[seed % CLIENTS] += 1
            truth.value = proxy.meter.next_seq
        if time.monotonic() - flushed_s > FLUSH_S:
            flushed_s = time.monotonic()
            for fact in usage_facts(proxy.meter.usage, Names(), proxy.now_ms + WALL_MS, lambda _address: 1):
                proxy.meter.add_fact(fact)
            proxy.meter.flush()
        time.sleep(0.001)
