"""The cost of a metered request to the loop, by short slices of one process.

On a shared machine a process may be tens of percent slower from one second to the next, and two equal processes differ by some percent, so
neither shows a difference of two percent. Here one Sluice has three sets of connections, two of which are not metered. Each set runs for
some milliseconds while the others are stopped, then the next one, and a slice is compared with its neighbours. The difference between the
two sets without metering is measured in the same way and printed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Final

from bench.cost.cost import CostLoad
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine, Load, cpu_seconds

OFF, OTHER_OFF, ON = "off", "off too", "on"
SETS: Final = (OFF, ON, OTHER_OFF)
SLICE_SECONDS, SETTLE_SECONDS = 0.02, 0.005
HEARD_SECONDS = 0.2
"""The time until a signal is handled, and until requests in flight of a stopped set are answered."""

WARM_SECONDS = 0.5
STEADY_SECONDS = 2.5
"""Metering is written each second."""


@dataclass
class Slices:
    """By set of connections: microseconds of the loop's thread per request of each slice, and requests per second.

    Attributes:
        others_us: CPU microseconds per request of all other threads, the writer included, over some seconds of each set.
    """

    loop_us: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SETS})
    per_second: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SETS})
    others_us: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SETS})


@dataclass(frozen=True)
class Median:
    """The median of ratios less one, in percent, and its interval of 95 %."""

    percent: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.percent:+.1f} % ({self.low:+.1f} to {self.high:+.1f})"


def compared(figures: Mapping[str, list[float]], name: str, *others: str) -> Median:
    """Return how much more the slices of one set take than their neighbours of others."""
    ratios = sorted(100.0 * (its / beside - 1.0) for other in others for its, beside in zip(figures[name], figures[other], strict=True))
    reach = 1.96 * sqrt(len(figures[name])) / 2 * len(others)  # one value per turn, since ratios of one turn are not independent
    middle = len(ratios) / 2
    return Median(median(ratios), ratios[max(0, int(middle - reach))], ratios[min(len(ratios) - 1, int(middle + reach))])


def measured(engine: Engine, load: CostLoad, processes: int, turns: int) -> Slices:
    """Run a load through some Sluices in sequence, with this many slices of each set of connections through each."""
    stub, stub_port = engine.stub(load.fetch_record_bytes)
    slices = Slices()
    try:
        for seed in range(processes):
            directory = engine.folder / f"metering-{load.name}-{seed}"
            flags = ["--metering", str(directory)]
            arm = start_sluice(stub_port, engine.folder, flags=flags, module="bench.metering.app", seed=seed)
            try:
                _run(engine, load, arm, slices, turns, seed)
            finally:
                arm.stop()
    finally:
        stub.stop()
    return slices


def _run(engine: Engine, load: CostLoad, arm: Arm, slices: Slices, turns: int, seed: int) -> None:
    with _connected(engine, load, arm, SETS if seed % 2 else SETS[::-1]) as loads:
        metered, requests = _metered(arm), loads[ON].done()
        for turn in range(turns):
            reported = {name: _slice(arm, loads[name]) for name in (SETS if turn % 2 else SETS[::-1])}
            if all(done for done, _, _ in reported.values()):  # the machine may stall for as long
                for name, (done, loop_s, elapsed_s) in reported.items():
                    slices.loop_us[name].append(1e6 * loop_s / done)
                    slices.per_second[name].append(done / elapsed_s)
        metered, requests = _metered(arm) - metered, loads[ON].done() - requests
        assert abs(metered - requests) <= load.conns * load.depth, (metered, requests)  # requests in flight when the set is stopped
        for name in (OFF, ON):
            others_s = _other_threads_seconds(arm)
            done, _, _ = _slice(arm, loads[name], STEADY_SECONDS)
            slices.others_us[name].append(1e6 * (_other_threads_seconds(arm) - others_s) / max(done, 1))


def _metered(arm: Arm) -> float:
    """Return the number of written decisions, which are written each second; accepted connections are some of them."""
    time.sleep(1 + HEARD_SECONDS)
    written = arm.metric("kafka_sluice_metering_decisions_total")
    assert written is not None
    return written


@contextmanager
def _connected(engine: Engine, load: CostLoad, arm: Arm, order: tuple[str, ...]) -> Iterator[dict[str, Load]]:
    """Connect each set, and stop it."""
    loads: dict[str, Load] = {}
    metered = True
    try:
        for name in order:
            if metered != (name == ON):
                arm.process.send_signal(signal.SIGUSR1)
                metered = not metered
                time.sleep(HEARD_SECONDS)
            loads[name] = engine.load(load.request, arm.port, conns=load.conns, depth=load.depth)
            time.sleep(WARM_SECONDS)
            os.kill(loads[name].pid, signal.SIGSTOP)
            time.sleep(HEARD_SECONDS)
        yield loads
    finally:
        for running in loads.values():
            os.kill(running.pid, signal.SIGCONT)
            running.stop()


def _slice(arm: Arm, running: Load, seconds: float = SLICE_SECONDS) -> tuple[int, float, float]:
    """Let one set run; return its requests, and the seconds of the loop's thread and of the clock."""
    os.kill(running.pid, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    loop_s, done, start = _loop_seconds(arm), running.done(), time.monotonic()
    time.sleep(seconds)
    loop_s, done, elapsed = _loop_seconds(arm) - loop_s, running.done() - done, time.monotonic() - start
    os.kill(running.pid, signal.SIGSTOP)
    time.sleep(SETTLE_SECONDS)
    return done, loop_s, elapsed


def _loop_seconds(arm: Arm) -> float:
    """Return the CPU time of the loop's thread; the kernel updates that of a single thread only when it leaves its core."""
    return cpu_seconds([arm.process.pid]) - _other_threads_seconds(arm)


def _other_threads_seconds(arm: Arm) -> float:
    pid = arm.process.pid
    threads = [thread for thread in Path(f"/proc/{pid}/task").iterdir() if thread.name != str(pid)]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
