"""The first wave after a silence, of clients at all members at once: members know nothing of each other's usage when it begins."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import Final, NamedTuple

from bench.fleet.cells import WORST_GOAL
from bench.fleet.simulated import fetches, produce

HEARD_S: Final = 2
"""Time in which members hear of each other."""
LOAD_S: Final = 3
"""Time of the load before the silence."""
SILENCES_S: Final = (13, 30)
"""Throttled produce requests of the load pass in the first seconds. After the longer one all usage has left the window."""
WAVE_S: Final = 10
TAKES_MS: Final = 5
"""The broker's average time for a fetch."""


class Case(NamedTuple):
    """What is simulated.

    Attributes:
        kind: produce or fetch.
        members: 1: one process.
        lag_ms: D.
        silence_s: one of `SILENCES_S`.
        seed: of the random numbers.
    """

    kind: str
    members: int
    lag_ms: int
    silence_s: int
    seed: int


def first_wave(case: Case) -> float:
    """Return what passes in the first 10 s after a silence, in multiples of what the bound passes in this time."""
    return KINDS[case.kind](case)


def _produced(case: Case) -> float:
    load = produce.loads(case.members)["even"]
    simulation = produce.Simulation(case.members, case.lag_ms, load, cut=False, seed=case.seed)
    silent_s = HEARD_S + LOAD_S
    begin_s = silent_s + case.silence_s
    simulation.connect_all(HEARD_S)
    simulation.leave_all(silent_s)
    simulation.connect_all(begin_s)
    simulation.play(begin_s + WAVE_S)
    return simulation.passed_bytes(begin_s, begin_s + WAVE_S) / WAVE_S / produce.BOUND


def _fetched(case: Case) -> float:
    one = fetches.Case(case.members, case.lag_ms, "even", TAKES_MS, 0, 0)
    with fetches.simulation_of(one, case.seed) as simulation:
        simulation.connect_all()
        simulation.load.run(LOAD_S)
        simulation.leave_all()
        simulation.wait(case.silence_s * 1_000)
        before = simulation.load.passed_bytes
        simulation.connect_all()
        simulation.load.run(WAVE_S)
        return (simulation.load.passed_bytes - before) / WAVE_S / fetches.BOUND


KINDS: Final[dict[str, Callable[[Case], float]]] = {"produce": _produced, "fetch": _fetched}


def lines_of_waves(kind: str, members: Sequence[int], lags_ms: Sequence[int], runs: int) -> list[str]:
    """Simulate first waves; return the table in Markdown. Figures are means of so many runs."""
    fleets = [(1, lags_ms[0]), *((size, lag_ms) for size in members for lag_ms in lags_ms)]
    head = f"| {kind}, first {WAVE_S} s after a silence | members | D | passed / bound | over one process | |"
    lines = [head, "|---|--:|--:|--:|--:|---|"]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        for silence_s in SILENCES_S:
            cases = [Case(kind, *fleet, silence_s, seed) for fleet in fleets for seed in range(1, runs + 1)]
            waves = list(pool.map(first_wave, cases))
            one, *found = (fmean(waves[at : at + runs]) for at in range(0, len(waves), runs))
            lines.append(f"| of {silence_s} s | 1 | | {one:.3f} | | |")
            for (size, lag_ms), wave in zip(fleets[1:], found, strict=True):
                goal = "ok" if wave / one <= WORST_GOAL else "miss"
                lines.append(f"| of {silence_s} s | {size} | {lag_ms} ms | {wave:.3f} | {wave / one:.3f} | {goal} |")
    return lines
