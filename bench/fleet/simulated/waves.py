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
SILENCE_S: Final = 30
"""Throttled requests of the load pass in it; then nothing is used for longer than all samples of a group cover."""
WAVE_S: Final = 10
TAKES_MS: Final = 5
"""The broker's average time for a fetch."""


class Case(NamedTuple):
    """What is simulated.

    Attributes:
        kind: produce or fetch.
        members: 1: one process.
        lag_ms: D.
        seed: of the random numbers.
    """

    kind: str
    members: int
    lag_ms: int
    seed: int


def first_wave(case: Case) -> float:
    """Return what passes in the first 10 s after a silence, in multiples of what the bound passes in this time."""
    return KINDS[case.kind](case)


def _produced(case: Case) -> float:
    load = produce.loads(case.members)["even"]
    simulation = produce.Simulation(case.members, case.lag_ms, load, cut=False, seed=case.seed)
    silent_s = HEARD_S + LOAD_S
    begin_s = silent_s + SILENCE_S
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
        simulation.wait(SILENCE_S * 1_000)
        before = simulation.load.passed_bytes
        simulation.connect_all()
        simulation.load.run(WAVE_S)
        return (simulation.load.passed_bytes - before) / WAVE_S / fetches.BOUND


KINDS: Final[dict[str, Callable[[Case], float]]] = {"produce": _produced, "fetch": _fetched}


def lines_of_waves(kind: str, members: Sequence[int], lags_ms: Sequence[int], runs: int) -> list[str]:
    """Simulate first waves; return the table in Markdown. Figures are means of so many runs."""
    fleets = [(1, lags_ms[0]), *((size, lag_ms) for size in members for lag_ms in lags_ms)]
    cases = [Case(kind, *fleet, seed) for fleet in fleets for seed in range(1, runs + 1)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        waves = list(pool.map(first_wave, cases))
    one, *found = (fmean(waves[at : at + runs]) for at in range(0, len(waves), runs))
    head = f"| {kind}, first {WAVE_S} s after a silence | D | passed / bound | over one process | |"
    lines = [head, "|---|--:|--:|--:|---|", f"| one process | | {one:.3f} | | |"]
    for (size, lag_ms), wave in zip(fleets[1:], found, strict=True):
        goal = "ok" if wave / one <= WORST_GOAL else "miss"
        lines.append(f"| {size} members | {lag_ms} ms | {wave:.3f} | {wave / one:.3f} | {goal} |")
    return lines
