"""A Sluice of several processes without load: spread of connections, memory, and time to replace a worker."""

import json
import os
import signal
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack

from bench.cost.memory import ask
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine
from bench.harness.frames import api_versions_request
from bench.memory import SETTLE_SECONDS, memory_mib

READY_SECONDS_MAX = 30
LOOK_S = 0.002
OLD_ENOUGH_S = 1.5
"""Longer than the second within which an ended worker is replaced with a delay."""


def started(engine: Engine, stack: ExitStack, workers: int) -> Arm:
    """Start a Sluice with this many workers in front of a stub broker."""
    stub, stub_port = engine.stub(1)
    stack.callback(stub.stop)
    arm = start_sluice(stub_port, engine.folder, flags=["--workers", str(workers)])
    stack.callback(arm.stop)
    return arm


def spread(engine: Engine, workers: int, connections: int) -> tuple[float, float]:
    """Return the connections of the busiest worker over its share: of all connections, and after half of them were replaced."""
    with ExitStack() as stack:
        arm = started(engine, stack, workers)
        time.sleep(SETTLE_SECONDS)  # the connection that learnt the port has closed
        parts = [ExitStack() for _ in range(2)]
        for at in range(connections):
            ask(parts[at % 2], arm.port, api_versions_request(3).whole())
        came = _busiest(arm) * workers / connections
        parts[0].close()
        time.sleep(SETTLE_SECONDS)
        for _ in range(connections // 2):
            ask(parts[0], arm.port, api_versions_request(3).whole())
        changed = _busiest(arm) * workers / connections
        for part in parts:
            part.close()
        return came, changed


def _busiest(arm: Arm) -> int:
    time.sleep(SETTLE_SECONDS)  # a page is cached for a second
    with urllib.request.urlopen(f"http://{arm.admin}/connections", timeout=5) as answer:
        page = json.load(answer)
    return max(Counter(one["worker"] for one in page["connections"]).values())


def memory(engine: Engine, workers: int) -> list[dict[str, float]]:
    """Return the memory at the start, in MiB by the names of smaps_rollup: of the supervisor, then of each worker."""
    with ExitStack() as stack:
        arm = started(engine, stack, workers)
        time.sleep(SETTLE_SECONDS)
        return [memory_mib(pid) for pid in (arm.process.pid, *arm.workers())]


def replacement_ms(engine: Engine, workers: int, kills: int) -> list[float]:
    """Return the times from `kill -9` of a worker until the next one serves, in milliseconds."""
    times = []
    with ExitStack() as stack:
        arm = started(engine, stack, workers)
        for turn in range(kills):
            time.sleep(OLD_ENOUGH_S)
            ready = _ready(arm)
            began = time.monotonic()
            os.kill(arm.workers()[turn % workers], signal.SIGKILL)
            while _ready(arm) == ready:
                if time.monotonic() - began > READY_SECONDS_MAX:
                    raise RuntimeError(f"no worker came within {READY_SECONDS_MAX} s")
                time.sleep(LOOK_S)
            times.append((time.monotonic() - began) * 1_000)
    return times


def _ready(arm: Arm) -> int:
    return arm.log.read_text().count("worker_ready")
