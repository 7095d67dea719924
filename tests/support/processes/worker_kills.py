"""Kills and stops processes of a Sluice under traffic, then checks records at the broker, usage over the bound, and remaining processes."""

import bisect
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from confluent_kafka import Message

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

UNDISTURBED = "nothing"
KILLS = ("worker killed", "supervisor killed", "all killed")
"""A worker is killed; the supervisor is killed, and another one started; all processes are, and Sluice is started again."""
STOPS = ("worker stopped", "supervisor stopped", "all stopped")
"""These processes are stopped with SIGSTOP, and continue after a while."""
KINDS = (*KILLS, *STOPS)
QUIET_S = 45
END_S_MAX = 30
SPAN_MS = 10_000
BURST_MS = 12_000
"""The first window, in which a client may send a whole window at once."""
HELD_NUMBER = 2
"""The number of the producer over its quota among those of `Traffic`."""


@dataclass
class WorkerStretch:
    """The result of a series of kills or stops of one kind: `problems`, `failed_sends` and `processes_left` must be 0 or empty.

    Attributes:
        in_flight: records without an answer at the times of the kills.
        processes_left: processes that still ran after the last client had closed and Sluice had ended.
        worst_bytes: most bytes of records of the producer over its quota that the broker stored in 10 s, after the first window.
    """

    kind: str
    seed: int
    mode: str
    workers: int
    times: int = 0
    acknowledged: int = 0
    in_flight: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    failed_sends: int = 0
    processes_left: int = 0
    worst_bytes: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost, duplicated, out of order or left."""
        return not (self.problems or self.failed_sends or self.processes_left)


def kill_workers_often(
    upstream: str, topic: str, directory: Path, kind: str, times: int, seed: int, workers: int, stop_s: float
) -> WorkerStretch:
    """Kill or stop processes of a Sluice repeatedly in front of a real broker; check records and processes, and return the result.

    Args:
        topic: an empty topic with `PARTITIONS` partitions, whose timestamps are the broker's.
        directory: an empty folder for settings.
        kind: one of `KINDS`, or `UNDISTURBED`.
        times: number of kills or stops.
        seed: seed of the times of the kills, and of the mode.
        workers: the number of worker processes.
        stop_s: duration of a stop in seconds.
    """
    dice = random.Random(seed)
    stretch = WorkerStretch(kind, seed, MODES[seed % 2], workers)
    quotas = write_quotas(directory / "quotas.toml", [{"client-id": HELD, "producer_byte_rate": HELD_BYTES_PER_SECOND}])
    sluice = SluiceProcess(
        upstream, quotas=quotas, enforcement=stretch.mode, arguments=("--workers", str(workers)), name="sluice-workers-killed"
    )
    seen: set[int] = set()
    try:
        sluice.start()
        traffic = Traffic(sluice.bootstrap, topic)
        if kind == UNDISTURBED:
            traffic.go_on(QUIET_S)
        for _ in range(0 if kind == UNDISTURBED else times):
            traffic.until_answered()
            traffic.go_on(dice.uniform(0, KILL_AFTER_S_MAX))
            stretch.in_flight += traffic.in_flight
            seen.update(workers_of(sluice))
            _DISTURBANCES[kind](sluice, traffic, dice, stop_s)
            stretch.times += 1
        stretch.failed_sends = unsent(traffic)
        messages = confluent.read_all(upstream, topic, PARTITIONS)
        acknowledged = [entry for producer in traffic.producers for entry in producer.acknowledged]
        stretch.acknowledged = len(acknowledged)
        stretch.problems = traffic.ledger.judge(acknowledged, as_stored(messages)).problems()
        stretch.worst_bytes = _worst_bytes(traffic, messages)
        for producer in traffic.producers:
            producer.close()  # workers without a supervisor serve their connections to the end
        seen.update(workers_of(sluice))
        sluice.stop()
    finally:
        sluice.kill()
        stretch.processes_left = _left(seen)
    return stretch


def _kill_worker(sluice: SluiceProcess, traffic: Traffic, dice: random.Random, _stop_s: float) -> None:
    ready = len(sluice.events("worker_ready"))
    os.kill(dice.choice(workers_of(sluice)), signal.SIGKILL)
    deadline = time.monotonic() + ANSWER_S_MAX
    while len(sluice.events("worker_ready")) == ready:
        traffic.go_on(0.01)
        assert time.monotonic() < deadline, "no worker came in the place of one that was killed"


def _kill_supervisor(sluice: SluiceProcess, traffic: Traffic, _dice: random.Random, _stop_s: float) -> None:
    sluice.send(signal.SIGKILL)
    _start_again(sluice, traffic)


def _kill_all(sluice: SluiceProcess, traffic: Traffic, _dice: random.Random, _stop_s: float) -> None:
    workers = workers_of(sluice)
    sluice.send(signal.SIGKILL)
    _send(workers, signal.SIGKILL)
    _start_again(sluice, traffic)


def _start_again(sluice: SluiceProcess, traffic: Traffic) -> None:
    sluice.wait()
    traffic.go_on(0)
    sluice.start()


def _stop_worker(sluice: SluiceProcess, traffic: Traffic, dice: random.Random, stop_s: float) -> None:
    _stop([dice.choice(workers_of(sluice))], traffic, stop_s)


def _stop_supervisor(sluice: SluiceProcess, traffic: Traffic, _dice: random.Random, stop_s: float) -> None:
    _stop([sluice.pid], traffic, stop_s)


def _stop_all(sluice: SluiceProcess, traffic: Traffic, _dice: random.Random, stop_s: float) -> None:
    _stop([*workers_of(sluice), sluice.pid], traffic, stop_s)


def _stop(pids: Sequence[int], traffic: Traffic, stop_s: float) -> None:
    _send(pids, signal.SIGSTOP)
    try:
        traffic.go_on(stop_s)
    finally:
        _send(pids, signal.SIGCONT)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


_DISTURBANCES: dict[str, Callable[[SluiceProcess, Traffic, random.Random, float], None]] = dict(
    zip(KINDS, (_kill_worker, _kill_supervisor, _kill_all, _stop_worker, _stop_supervisor, _stop_all), strict=True)
)


def _worst_bytes(traffic: Traffic, messages: Sequence[Message]) -> int:
    """Return the most bytes of the producer over its quota in any 10 s, by the broker's clock, after the first window."""
    stored = []
    for message in messages:
        value = message.value()
        entry = traffic.ledger.read(value)
        if entry is not None and entry.producer == HELD_NUMBER:
            stored.append((message.timestamp()[1], len(value)))
    return most_in_a_span(stored)


def most_in_a_span(stored: Sequence[tuple[int, int]]) -> int:
    """Return the most bytes in any span of `SPAN_MS` that begins `BURST_MS` after the first record, or later.

    Args:
        stored: time in ms and bytes of each record.
    """
    if not stored:
        return 0
    ordered = sorted(stored)
    times = [at_ms for at_ms, _ in ordered]
    sums = [0, *accumulate(size for _, size in ordered)]
    first = bisect.bisect_left(times, times[0] + BURST_MS)
    return max((sums[bisect.bisect_left(times, times[at] + SPAN_MS)] - sums[at] for at in range(first, len(times))), default=0)


def _left(pids: set[int]) -> int:
    """Return processes that still run, and kill them; workers of a killed supervisor end with their last connection."""
    deadline = time.monotonic() + END_S_MAX
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in pids if is_alive(pid)]
    _send(left, signal.SIGKILL)
    return len(left)
