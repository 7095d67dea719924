"""The median of what was measured in pairs, and how certain it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

CERTAIN_95 = 1.96


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the two measured values between which it lies with a certainty of 95 %."""

    middle: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of `values` with its interval, by order statistics: no shape of their distribution is assumed."""
    ordered = sorted(values)
    at, reach = (len(ordered) - 1) / 2, CERTAIN_95 / 2 * sqrt(len(ordered))
    return Interval(median(ordered), ordered[max(0, int(at - reach))], ordered[min(len(ordered) - 1, round(at + reach))])
