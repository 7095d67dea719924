"""The median of measurements in pairs, with its confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

CERTAIN_95 = 1.96


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the two measured values that enclose it with a certainty of 95 %."""

    middle: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of `values` with its interval by order statistics, which assume no distribution."""
    ordered = sorted(values)
    at, reach = (len(ordered) - 1) / 2, CERTAIN_95 / 2 * sqrt(len(ordered))
    return Interval(median(ordered), ordered[max(0, int(at - reach))], ordered[min(len(ordered) - 1, round(at + reach))])
