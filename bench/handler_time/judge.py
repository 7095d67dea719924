"""The difference between the estimated request time and the broker's charge: ratios, their mean and spread, and the goals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, isfinite, log
from statistics import fmean, pstdev

MEAN_MIN, MEAN_MAX, SPREAD_MAX, WITHIN_2_MIN = 0.85, 1.15, 1.6, 0.9
ROW_MIN, ROW_MAX, WAITING_MIN = 0.5, 2.0, 0.4
REQUESTS_PER_SECOND_MAX = 2_000
MICROSECONDS_MAX = 0.5
SUM_REQUESTS_MIN, SUM_SECONDS_MIN = 10, 0.005
"""Smaller sums are not judged."""


@dataclass
class HandlerRow:
    """One load: seconds on both sides, and the sums of ten seconds by client as (client-id, truth, Sluice)."""

    name: str
    what: str
    requests: float
    seconds: float
    truth: float
    sluice: float
    waits: bool = False
    busy: bool = False
    saturated: bool = False
    sums: list[tuple[str, float, float]] = field(default_factory=list)
    workers: int = 1

    @property
    def ratio(self) -> float:
        """Return Sluice / broker."""
        return self.sluice / self.truth if self.truth else float("nan")

    @property
    def per_second(self) -> float:
        """Return the requests per second."""
        return self.requests / self.seconds

    @property
    def verdict(self) -> str:
        """Return "ok", "miss", or why there is no verdict."""
        if self.saturated or self.per_second > REQUESTS_PER_SECOND_MAX:
            return "saturated: not judged"
        if self.busy:
            return "busy: not judged alone"
        low = WAITING_MIN if self.waits else ROW_MIN
        return "ok" if low <= self.ratio <= ROW_MAX else "miss"

    def line(self) -> str:
        """Return the row of the table."""
        each = self.truth / self.requests * 1e6 if self.requests else float("nan")
        what = self.what if self.workers == 1 else f"{self.what}, {self.workers} workers"
        return f"| {what} | {each:,.0f} | {self.per_second:,.0f} | {self.ratio:.2f} | {self.verdict} |"


def sums_of(truth: Mapping[str, float], sluice: Mapping[str, float], requests: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return the sums by client that are large enough to judge."""
    return [
        (client, seconds, sluice.get(client, 0.0))
        for client, seconds in sorted(truth.items())
        if seconds >= SUM_SECONDS_MIN and requests.get(client, 0) >= SUM_REQUESTS_MIN
    ]


def geometric(ratios: Sequence[float]) -> tuple[float, float]:
    """Return (geometric mean, spread); the spread is the factor of one standard deviation of the logarithms."""
    logs = [log(ratio) for ratio in ratios if ratio > 0 and isfinite(ratio)]
    return (exp(fmean(logs)), exp(pstdev(logs))) if logs else (float("nan"), float("nan"))


def within(rows: Sequence[HandlerRow], factor: float) -> tuple[int, int]:
    """Return (sums within the factor, all sums)."""
    ratios = [sluice / truth for row in rows for _, truth, sluice in row.sums]
    return sum(1 / factor <= ratio <= factor for ratio in ratios), len(ratios)


def table(rows: Sequence[HandlerRow]) -> list[str]:
    """Return the rows in Markdown."""
    head = ["| load | broker's charge, us each | requests/s | Sluice / broker | |", "|---|--:|--:|--:|---|"]
    return head + [row.line() for row in rows]


def alike(rows: Sequence[HandlerRow]) -> list[str]:
    """Compare several workers with one process: the ratio of each load over that of one process, over all loads."""
    one = {row.name: row.ratio for row in rows if row.workers == 1}
    lines = ["| workers | loads | Sluice / broker, over that of one process: mean | spread |", "|--:|--:|--:|--:|"]
    for workers in sorted({row.workers for row in rows} - {1}):
        ratios = [row.ratio / one[row.name] for row in rows if row.workers == workers and one.get(row.name)]
        mean, spread = geometric(ratios)
        lines.append(f"| {workers} | {len(ratios)} | {mean:.2f} | {spread:.2f} |")
    return lines


def goals(rows: Sequence[HandlerRow], microseconds: float | None) -> list[str]:
    """Return the goals over all rows, each with its figure and whether it is met."""
    judged = [row for row in rows if not row.verdict.startswith("saturated")]
    calm = [row for row in judged if not row.busy]
    lines = [
        "| over all rows that are not saturated | figure | goal | |",
        "|---|--:|---|---|",
        *_spread_lines(judged),
        _share_line(judged, 2.0, WITHIN_2_MIN),
        _share_line(judged, 3.0, None),
    ]
    missed = [row.name for row in calm if row.verdict == "miss"]
    lines.append(
        f"| calm rows outside of {ROW_MIN:g} to {ROW_MAX:g} (waiting ones: from {WAITING_MIN:g}) "
        f"| {len(missed)} of {len(calm)} | 0 | {_said(not missed)} {', '.join(missed)} |"
    )
    if microseconds is not None:
        fits = microseconds <= MICROSECONDS_MAX
        lines.append(f"| us per request, the estimator alone | {microseconds:.2f} | <= {MICROSECONDS_MAX:g} | {_said(fits)} |")
    busy_mean, busy_spread = geometric([row.ratio for row in judged if row.busy])
    calm_mean, calm_spread = geometric([row.ratio for row in calm])
    all_within, all_sums = within(rows, 2.0)
    lines += [
        f"| calm rows alone: mean, spread | {calm_mean:.2f}, {calm_spread:.2f} | | |",
        f"| rows beside endless loops alone: mean, spread | {busy_mean:.2f}, {busy_spread:.2f} | | |",
        f"| sums within x2, saturated rows too | {_percent(all_within, all_sums)} | | |",
    ]
    return lines


def _spread_lines(judged: Sequence[HandlerRow]) -> list[str]:
    mean, spread = geometric([row.ratio for row in judged])
    return [
        f"| geometric mean | {mean:.2f} | {MEAN_MIN:g} to {MEAN_MAX:g} | {_said(MEAN_MIN <= mean <= MEAN_MAX)} |",
        f"| spread | {spread:.2f} | <= {SPREAD_MAX:g} | {_said(spread <= SPREAD_MAX)} |",
    ]


def _share_line(rows: Sequence[HandlerRow], factor: float, goal: float | None) -> str:
    good, count = within(rows, factor)
    said = "" if goal is None else _said(count > 0 and good / count >= goal)
    return f"| (client, 10 s) sums within x{factor:g} | {_percent(good, count)} | {'' if goal is None else f'>= {goal:.0%}'} | {said} |"


def _percent(good: int, count: int) -> str:
    return f"{good / count:.0%} of {count}" if count else "none"


def _said(is_met: bool) -> str:
    return "ok" if is_met else "miss"
