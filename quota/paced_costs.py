"""The costs of many requests at once, equal to `paced_schedule.cost_ns` to the last nanosecond."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quota.paced_schedule import ENDLESS_NS, SECOND_NS, cost_ns

Ints = NDArray[np.int64]
_AMOUNT_END: Final = 2**33
"""Amounts below it, times `SECOND_NS`, fit into 63 bits."""
_BOUND_END: Final = 2.0**53


def costs_ns(amounts: Ints, bounds: NDArray[np.float64]) -> Ints:
    """Return the cost of each amount under its bound, in nanoseconds.

    Args:
        amounts: bytes of each request; not negative.
        bounds: units per second, one for each.
    """
    is_whole = (bounds >= 1.0) & (bounds < _BOUND_END) & (np.floor(bounds) == bounds) & (amounts < _AMOUNT_END)
    costs = np.zeros(len(amounts), np.int64)
    divisor = np.where(is_whole, bounds, 1.0).astype(np.int64)
    np.floor_divide(-np.where(is_whole, amounts, 0) * SECOND_NS, divisor, out=costs)
    np.negative(costs, out=costs)
    others = np.flatnonzero(~is_whole & (bounds != np.inf))
    if len(others):
        costs[others] = _one_by_one(amounts[others].tolist(), bounds[others].tolist())
    return np.minimum(costs, ENDLESS_NS)


def _one_by_one(amounts: list[int], bounds: list[float]) -> list[int]:
    known: dict[tuple[int, Any], int] = {}
    costs = []
    for pair in zip(amounts, bounds, strict=True):
        cost = known.get(pair)
        if cost is None:
            cost = known[pair] = cost_ns(*pair)
        costs.append(cost)
    return costs


def leads_before_ns(times_ns: Ints, costs: Ints, first_lead_ns: int) -> Ints:
    """Return how far a schedule is ahead of the clock before each request.

    Args:
        times_ns: when the requests pass; ascending.
        costs: what each is charged; 0 for one that the schedule does not count.
        first_lead_ns: the lead before the first one.
    """
    charged = np.cumsum(costs)
    before = charged - costs  # the cost of all requests before each
    latest = np.maximum.accumulate(times_ns - before)
    earlier = np.empty_like(latest)  # the latest (time - cost before) of the requests before each
    earlier[0] = times_ns[0] + first_lead_ns
    np.maximum(latest[:-1], earlier[0], out=earlier[1:])
    leads: Ints = np.maximum(before + earlier - times_ns, 0)
    return leads
