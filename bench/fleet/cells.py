"""The figures of one load on one fleet, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from bench.fleet.loads import jains_index, long_run
from bench.fleet.members import BOUND, Sample

BURST_S: Final = 15
"""Slightly more than the quota's window: figures leave out the burst of the first ten seconds."""
WORST_S: Final = 10
LONG_RUN_GOAL: Final = 0.03
WORST_GOAL: Final = 1.05
FAIRNESS_GOAL: Final = 0.95


@dataclass
class Cell:
    """One load on one fleet; `members` is 1 for a process without a fleet.

    Attributes:
        client: the library of the clients.
        samples: what each member has recorded.
        lag_ms: the highest lag of the bus that a member reported.
    """

    client: str
    kind: str
    load: str
    members: int
    samples: list[Sample]
    lag_ms: float | None

    @property
    def _sums(self) -> list[tuple[float, float]]:
        return [(at_s, sum(recorded)) for at_s, recorded in self.samples if at_s >= BURST_S]

    @property
    def long_run(self) -> float:
        """Rate / bound after the burst, with little weight at both ends of the time."""
        parts = [(after - before, to_s - begin_s) for (begin_s, before), (to_s, after) in pairwise(self._sums)]
        return long_run(*zip(*parts, strict=True)) / BOUND

    @property
    def worst(self) -> float:
        """Rate / bound in the time after the burst in which most passed, of the shortest spans of samples that have ten seconds."""
        sums, rates = self._sums, [0.0]
        for at, (begin_s, begin) in enumerate(sums):
            for end_s, end in sums[at:]:
                if end_s - begin_s >= WORST_S:
                    rates.append((end - begin) / (end_s - begin_s))
                    break
        return max(rates) / BOUND

    @property
    def shares(self) -> list[float]:
        """The bytes of each member after the burst."""
        later = [recorded for at_s, recorded in self.samples if at_s >= BURST_S]
        return [last - first for first, last in zip(later[0], later[-1], strict=True)]

    def figures(self) -> dict[str, Any]:
        """Return the figures for the JSON report."""
        names = ("client", "kind", "load", "members", "lag_ms", "long_run", "worst", "shares")
        by_second = [round((b - a) / (to - begin)) for (begin, a), (to, b) in pairwise((at, sum(some)) for at, some in self.samples)]
        return {name: getattr(self, name) for name in names} | {"bytes_per_second": by_second}


class Medians:
    """The medians of the runs of one load on one fleet, since the highest 10 s of a single run are those of one wave.

    Attributes:
        cell: the first run.
        worst_of: the lowest and the highest `worst` of the runs.
        fairness: Jain's index of the bytes of all runs together. Whose clients use most of a wave is chance, so the index of few waves is
            low although no member is preferred: simulated producers of Java at four members had 0.83 in 45 s, and 0.96 in 105 s.
    """

    def __init__(self, runs: Sequence[Cell]) -> None:
        self.cell = runs[0]
        self.long_run, self.worst = (median(getattr(run, name) for run in runs) for name in ("long_run", "worst"))
        self.fairness = jains_index([sum(some) for some in zip(*(run.shares for run in runs), strict=True)])
        self.worst_of = min(run.worst for run in runs), max(run.worst for run in runs)
        self.lag_ms = max((run.lag_ms for run in runs if run.lag_ms is not None), default=None)


def _place(cell: Cell) -> tuple[str, str, str, int]:
    return cell.client, cell.kind, cell.load, cell.members


def lines_of(cells: Sequence[Cell]) -> list[str]:
    """Return the medians of the runs of all cells in Markdown, each fleet beside the process without one."""
    lines = [
        "| load | members | rate / bound | over one process | worst 10 s | over one process | Jain's index | lag of the bus | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    rows = [Medians([cell for cell in cells if _place(cell) == place]) for place in dict.fromkeys(map(_place, cells))]
    alone = {_place(row.cell)[:-1]: row for row in rows if row.cell.members == 1}
    for row in rows:
        client, kind, load, members = _place(row.cell)
        one = alone[client, kind, load]
        figures = f"| {client}, {kind}, {load} | {members} | {row.long_run:.3f} "
        worst_of = "{:.3f} ({:.3f} to {:.3f})".format(row.worst, *row.worst_of)
        if row is one:
            lines.append(f"{figures}| | {worst_of} | | | | |")
            continue
        long_run, worst = row.long_run / one.long_run, row.worst / one.worst
        is_fair = load != "even" or row.fairness >= FAIRNESS_GOAL
        is_met = abs(long_run - 1) <= LONG_RUN_GOAL and worst <= WORST_GOAL and is_fair
        lag = "" if row.lag_ms is None else f"{row.lag_ms:.0f} ms"
        lines.append(f"{figures}| {long_run:.3f} | {worst_of} | {worst:.3f} | {row.fairness:.3f} | {lag} | {'ok' if is_met else 'miss'} |")
    return lines
