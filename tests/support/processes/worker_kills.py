"""Kills and stops workers and supervisors under traffic, then checks the records at the broker and the remaining processes."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.clients import confluent
from tests.support.clients.recorder import as_stored
from tests.support.processes.kills import (
    ANSWER_S_MAX,
    HELD,
    HELD_BYTES_PER_SECOND,
    KILL_AFTER_S_MAX,
    MODES,
    PARTITIONS,
    Traffic,
    unsent,
)
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import is_alive, workers_of

KINDS = ("worker", "supervisor", "both", "stop")
"""A worker is killed; the supervisor is killed, and another one started; both are; a worker is stopped for a while."""
STOP_S = (0.2, 1.5)
"""The supervisor detects a stopped worker after a second."""
END_S_MAX = 30


@dataclass
class WorkerStretch:
    """The result of a series of kills: all fields but the first six must be 0 or empty.

    Attributes:
        kills: number of kills by kind.
        in_flight: records without an answer at the times of the kills.
        processes_left: processes that still ran after the last client had closed and Sluice had ended.
    """

    seed: int
    mode: str
    workers: int
    kills: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    in_flight: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    failed_sends: int = 0
    processes_left: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost, duplicated, out of order or left."""
        return not (self.problems or self.failed_sends or self.processes_left)


def kill_workers_often(upstream: str, topic: str, directory: Path, kills: int, seed: int, workers: int) -> WorkerStretch:
    """Kill processes of a Sluice repeatedly in front of a real broker, check records and processes, and return the result.

    Args:
        topic: an empty topic with `PARTITIONS` partitions.
        directory: an empty folder for settings.
        seed: seed of the times and kinds of the kills, and of the mode.
        workers: the number of worker processes.
    """
    dice = random.Random(seed)
    stretch = WorkerStretch(seed, MODES[seed % 2], workers)
    quotas = write_quotas(directory / "quotas.toml", [{"client-id": HELD, "producer_byte_rate": HELD_BYTES_PER_SECOND}])
    sluice = SluiceProcess(
        upstream, quotas=quotas, enforcement=stretch.mode, arguments=("--workers", str(workers)), name="sluice-workers-killed"
    )
    seen: set[int] = set()
    counts: Counter[str] = Counter()
    try:
        sluice.start()
        traffic = Traffic(sluice.bootstrap, topic)
        for _ in range(kills):
            traffic.until_answered()
            traffic.go_on(dice.uniform(0, KILL_AFTER_S_MAX))
            stretch.in_flight += traffic.in_flight
            kind = dice.choice(KINDS)
            _befall(kind, sluice, traffic, dice, seen)
            counts[kind] += 1
        stretch.failed_sends = unsent(traffic)
        stored = as_stored(confluent.read_all(upstream, topic, PARTITIONS))
        acknowledged = [entry for producer in traffic.producers for entry in producer.acknowledged]
        stretch.acknowledged = len(acknowledged)
        stretch.problems = traffic.ledger.judge(acknowledged, stored).problems()
        for producer in traffic.producers:
            producer.close()  # workers without a supervisor serve their connections to the end
        seen.update(workers_of(sluice))
        sluice.stop()
    finally:
        sluice.kill()
        stretch.processes_left = _left(seen)
    stretch.kills = dict(counts)
    return stretch


def _befall(kind: str, sluice: SluiceProcess, traffic: Traffic, dice: random.Random, seen: set[int]) -> None:
    workers = workers_of(sluice)
    seen.update(workers)
    if kind == "worker":
        ready = len(sluice.events("worker_ready"))
        os.kill(dice.choice(workers), signal.SIGKILL)
        _until_ready(sluice, traffic, ready)
    elif kind == "stop":
        stopped = dice.choice(workers)
        os.kill(stopped, signal.SIGSTOP)
        try:
            traffic.go_on(dice.uniform(*STOP_S))
        finally:
            os.kill(stopped, signal.SIGCONT)
    else:
        sluice.send(signal.SIGKILL)
        for worker in workers if kind == "both" else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        sluice.wait()
        traffic.go_on(0)
        sluice.start()


def _until_ready(sluice: SluiceProcess, traffic: Traffic, ready: int) -> None:
    deadline = time.monotonic() + ANSWER_S_MAX
    while len(sluice.events("worker_ready")) == ready:
        traffic.go_on(0.01)
        assert time.monotonic() < deadline, "no worker came in the place of one that was killed"


def _left(pids: set[int]) -> int:
    """Return processes that still run, and kill them; workers of a killed supervisor end with their last connection."""
    deadline = time.monotonic() + END_S_MAX
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in pids if is_alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)
