"""Paced decisions and decisions of windows, judged in turns on one core: are all right, and which is judged faster?"""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.metering.trace import Shape, totals
from bench.pipeline.proof import make
from pipeline.memory import ARROW_KEEPS, keep_memory
from pipeline.validation.local import validate

WINDOW, PACED = "window", "paced"
TURNS: Final = 6
CONNECTIONS: Final = 10_000
"""Of each group: requests that come whatever the waits are then stay below the ceiling of Kafka's algorithm."""


class Judged(NamedTuple):
    """Two traces of the same requests.

    Attributes:
        waits: number of decisions with a wait, by trace.
        differences: divergences, and decisions that were not judged.
        cpu_seconds: CPU time of each turn, by trace.
    """

    events: int
    waits: dict[str, int]
    differences: dict[str, int]
    cpu_seconds: dict[str, list[float]]

    @property
    def ratio(self) -> float:
        """Speed of the paced trace over that of the windows: the median of the turns."""
        return median(one / other for one, other in zip(self.cpu_seconds[WINDOW], self.cpu_seconds[PACED], strict=True))

    def lines(self) -> Iterator[str]:
        """Yield a row for each trace, and the ratio of their speeds."""
        yield "| decisions of | events | with a wait | differences | million decisions/s of CPU time, median | best |"
        yield "|---|--:|--:|--:|--:|--:|"
        for name in (WINDOW, PACED):
            times, millions = self.cpu_seconds[name], self.events / 1e6
            speeds = f"{millions / median(times):.2f} | {millions / min(times):.2f}"
            yield f"| {name} | {self.events:,} | {self.waits[name]:,} | {self.differences[name]:,} | {speeds} |"
        yield ""
        yield f"Speed of paced decisions over that of windows, median of {TURNS} turns in CPU time: {self.ratio:.2f} (goal: 1 or more)"


def judged_paced(folder: Path, events: int) -> Judged:
    """Make both traces unless they exist, and judge them in turns; the first turn, which reads files from the disk, does not count.

    They are judged in a process of their own, with the memory settings of the command: Arrow takes them when it is loaded.
    """
    for name in (WINDOW, PACED):
        make(folder, name, Shape(events, paced=name == PACED, connections=CONNECTIONS))
    os.environ.update([ARROW_KEEPS])
    times: dict[str, list[float]] = {WINDOW: [], PACED: []}
    differences = {}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin) as judge:
        for turn in range(TURNS + 1):
            for name in (WINDOW, PACED) if turn % 2 else (PACED, WINDOW):
                spent, decisions, violations = judge.submit(_judge, folder / name).result()
                differences[name] = violations + events - decisions
                if turn:
                    times[name].append(spent)
                print(f"  {name}: {spent:.2f} s", file=sys.stderr, flush=True)
    waits = {name: totals(folder / name)["throttled"] for name in (WINDOW, PACED)}
    return Judged(events, waits, differences, times)


def _begin() -> None:
    keep_memory()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])


def _judge(directory: Path) -> tuple[float, int, int]:
    """Return the CPU time in seconds, and the number of decisions and of divergences."""
    began = time.process_time()
    verdict = validate(directory)
    return time.process_time() - began, verdict.decisions, verdict.violations
