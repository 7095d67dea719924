"""The median and the mean of measurements in pairs, with their confidence intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median, stdev

CERTAIN_95 = 1.96


@dataclass(frozen=True, slots=True)
class Interval:
    """A median or a mean, and the two values that enclose it with a certainty of 95 %."""

    middle: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of `values` with its interval by order statistics, which assume no distribution."""
    ordered = sorted(values)
    at, reach = (len(ordered) - 1) / 2, CERTAIN_95 / 2 * sqrt(len(ordered))
    return Interval(median(ordered), ordered[max(0, int(at - reach))], ordered[min(len(ordered) - 1, round(at + reach))])


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of `values` with its interval by the normal distribution, which is narrower than Student's."""
    mean, half = fmean(values), CERTAIN_95 * stdev(values) / sqrt(len(values))
    return Interval(mean, mean - half, mean + half)
