"""The costs of many requests at once, equal to `paced_schedule.cost_ns` to the last nanosecond."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quota.paced_schedule import BYTES_NS, ENDLESS_NS, cost_ns

Ints = NDArray[np.int64]
_AMOUNT_END: Final = 2**33
"""Amounts below it, times `BYTES_NS`, fit into 63 bits."""
_BOUND_END: Final = 2.0**53
_QUOTIENT_END: Final = 2.0**50
_ERROR: Final = 2.0**-51
"""Highest relative error of a quotient: each of two conversions, a product and a division has at most 2^-53."""
_REACH_NS: Final = 2**62


def costs_ns(amounts: Ints, bounds: NDArray[np.float64], unit_ns: int = BYTES_NS) -> Ints:
    """Return the cost of each amount under its bound, in nanoseconds.

    Nearly all are found by floating-point division: its error cannot change the result unless the quotient is near a whole number.

    Args:
        amounts: bytes, or nanoseconds of handler time, of each request; not negative.
        bounds: bytes per second, or percent of one thread, one for each.
        unit_ns: as in `cost_ns`.
    """
    if not len(amounts):
        return np.zeros(0, np.int64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotients = amounts * float(unit_ns) / bounds
    highest = float(quotients.max())
    if not (highest < _QUOTIENT_END and float(bounds.min()) > 0.0):  # also when one is not a number
        return np.where(bounds == np.inf, 0, _near_whole(amounts, bounds, unit_ns))
    whole = np.ceil(quotients)
    np.subtract(whole, quotients, out=quotients)
    quotients -= 0.5
    np.abs(quotients, out=quotients)
    costs = whole.astype(np.int64)
    near = np.flatnonzero(quotients >= 0.5 - highest * _ERROR)
    if len(near):
        costs[near] = np.where(bounds[near] == np.inf, 0, _near_whole(amounts[near], bounds[near], unit_ns))
    return costs


def _near_whole(amounts: Ints, bounds: NDArray[np.float64], unit_ns: int) -> Ints:
    """Return the costs that are too near to a whole number, or too large, for a division with rounding: by integers."""
    is_whole = (bounds >= 1.0) & (bounds < _BOUND_END) & (np.floor(bounds) == bounds) & (amounts < _AMOUNT_END)
    divisor = np.where(is_whole, bounds, 1.0).astype(np.int64)
    costs: Ints = -(-np.where(is_whole, amounts, 0) * unit_ns // divisor)
    others = np.flatnonzero(~is_whole)
    if len(others):
        costs[others] = _one_by_one(amounts[others].tolist(), bounds[others].tolist(), unit_ns)
    return np.minimum(costs, ENDLESS_NS)


def _one_by_one(amounts: list[int], bounds: list[float], unit_ns: int) -> list[int]:
    known: dict[tuple[int, Any], int] = {}
    costs = []
    for pair in zip(amounts, bounds, strict=True):
        cost = known.get(pair)
        if cost is None:
            cost = known[pair] = cost_ns(*pair, unit_ns)
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


def leads_of_schedules_ns(times_ns: Ints, costs: Ints, begins: Ints, first_leads_ns: Ints) -> Ints:
    """Return `leads_before_ns` of several schedules, one behind the other.

    All are computed at once: a number that grows from schedule to schedule is added to their times, so that no maximum reaches beyond its
    schedule. If these numbers exceed 62 bits, they are computed one by one.

    Args:
        times_ns: when the requests pass; ascending within each schedule.
        costs: what each is charged.
        begins: position of the first request of each schedule, ascending from 0 on.
        first_leads_ns: the lead before that.
    """
    latest = times_ns - np.cumsum(costs) + costs  # time less the cost of all requests before it; only differences within a schedule count
    lowest = int(latest.min())
    stride = int(latest.max()) - lowest + int(first_leads_ns.max()) + 1
    if stride * len(begins) >= _REACH_NS or float(costs.sum(dtype=np.float64)) >= _REACH_NS:
        ends = [*begins.tolist()[1:], len(times_ns)]
        return np.concatenate(
            [
                leads_before_ns(times_ns[begin:end], costs[begin:end], lead)
                for begin, end, lead in zip(begins.tolist(), ends, first_leads_ns.tolist(), strict=True)
            ]
        )
    latest += np.repeat(np.arange(len(begins)) * stride - lowest, np.diff(begins, append=len(times_ns)))
    highest = latest.copy()
    highest[begins] += first_leads_ns
    np.maximum.accumulate(highest, out=highest)
    leads = np.empty_like(latest)
    np.subtract(highest[:-1], latest[1:], out=leads[1:])
    np.maximum(leads, 0, out=leads)
    leads[begins] = first_leads_ns
    return leads
