"""Arms of the pipeline's bench in turns: each turn runs every arm once, the next one in the opposite order.

Other users of the machine make it slower, never faster, and by more than arms differ. So there are two ratios of two arms: of their best
times, which requires an idle moment for both, and the median of the ratios of all turns.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.harness.engine import ROOT
from pipeline.memory import ARROW_KEEPS


class Arm(NamedTuple):
    """A task, its directory, and its number of cores."""

    what: str
    name: str
    cores: int = 1


class Turns:
    """Times of arms; every number of cores has one process for the whole time."""

    def __init__(self, folder: Path, workers: dict[int, "subprocess.Popen[str]"]) -> None:
        self._folder = folder
        self._workers = workers
        self.found: dict[Arm, list[dict[str, Any]]] = {}

    def take(self, arms: Sequence[Arm], turns: int, *, unseen: int, in_a_row: int = 1) -> None:
        """Run the arms in turns.

        Args:
            unseen: earlier turns that are not counted, in which the JVM compiles its code.
            in_a_row: how often an arm runs in each turn. If more than once, the first run is not counted: the caches of a process that
                was idle are cold.
        """
        for turn in range(unseen + turns):
            for arm in arms if turn % 2 else reversed(arms):
                reported = [self._once(arm) for _ in range(in_a_row)]
                if turn >= unseen:
                    self.found.setdefault(arm, []).extend(reported[1:] or reported)
        for arm in arms:
            times = ", ".join(f"{reported['seconds']:.2f}" for reported in self.found[arm])
            print(f"  {arm.what} {arm.name} on {arm.cores}: {times} s", file=sys.stderr, flush=True)

    def _once(self, arm: Arm) -> dict[str, Any]:
        worker = self._workers[arm.cores]
        assert worker.stdin is not None
        assert worker.stdout is not None
        print(f"{arm.what}:{self._folder / arm.name}", file=worker.stdin, flush=True)
        line = worker.stdout.readline()
        if not line:
            raise SystemExit(f"{arm}: its process ended with exit code {worker.wait()}")
        reported: dict[str, Any] = json.loads(line)
        return reported

    def outcome(self, arm: Arm) -> Any:
        """Return the result of an arm, the same each time."""
        first, *others = (reported["outcome"] for reported in self.found[arm])
        assert all(other == first for other in others), (arm, first, others)
        return first

    def times(self, arm: Arm, figure: str = "seconds") -> list[float]:
        """Return `seconds` or `cpu_seconds` of each turn."""
        return [reported[figure] for reported in self.found[arm]]

    def best_ratio(self, above: Arm, below: Arm) -> float:
        """Return one arm's best time over another's."""
        return min(self.times(above)) / min(self.times(below))

    def median_ratio(self, above: Arm, below: Arm, figure: str = "seconds") -> float:
        """Return the median of the ratios of all turns; an arm that ran once is compared with the median."""
        times, others = self.times(above, figure), self.times(below, figure)
        if len(times) == len(others):
            return median(one / other for one, other in zip(times, others, strict=True))
        return median(times) / median(others)


@contextmanager
def processes(folder: Path, cores: Sequence[int]) -> Iterator[Turns]:
    """Start a pinned process for each number of cores, for a block."""
    workers: dict[int, subprocess.Popen[str]] = {}
    try:
        for number in cores:
            command = [sys.executable, "-m", "bench.pipeline.arms", str(number)]
            environment = os.environ | dict([ARROW_KEEPS])
            workers[number] = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        yield Turns(folder, workers)
    finally:
        for worker in workers.values():
            worker.communicate()  # the process ends at the end of its input
