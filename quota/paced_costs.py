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
"""Highest relative error of a quotient: a conversion, a division and a product have at most 2^-53 each."""
_REACH_NS: Final = 2**62


def costs_ns(amounts: Ints, bounds: NDArray[np.float64], unit_ns: int = BYTES_NS, bound_of: Ints | None = None) -> Ints:
    """Return the cost of each amount under its bound, in nanoseconds.

    Nearly all are found by floating-point numbers: their error cannot change the result unless the quotient is near a whole number.

    Args:
        amounts: bytes, or nanoseconds of handler time, of each request; not negative.
        bounds: bytes per second, or percent of one thread.
        unit_ns: as in `cost_ns`.
        bound_of: index of each amount's bound in `bounds`; None: there is one for each.
    """
    if not len(amounts):
        return np.zeros(0, np.int64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        per_unit = float(unit_ns) / bounds
        quotients = amounts * (per_unit if bound_of is None else per_unit.take(bound_of))
    highest = float(quotients.max())
    if not (highest < _QUOTIENT_END and float(bounds.min()) > 0.0):  # also when one is not a number
        return _near_whole(amounts, bounds if bound_of is None else bounds.take(bound_of), unit_ns)
    whole = np.ceil(quotients)
    np.subtract(whole, quotients, out=quotients)
    costs = whole.astype(np.int64)
    error = highest * _ERROR
    if float(quotients.min()) <= error or float(quotients.max()) >= 1.0 - error:
        near = np.flatnonzero((quotients <= error) | (quotients >= 1.0 - error))
        costs[near] = _near_whole(amounts[near], bounds.take(near if bound_of is None else bound_of[near]), unit_ns)
    return costs


def _near_whole(amounts: Ints, bounds: NDArray[np.float64], unit_ns: int) -> Ints:
    """Return the costs that are too near to a whole number, or too large, for a division with rounding: by integers."""
    is_whole = (bounds >= 1.0) & (bounds < _BOUND_END) & (np.floor(bounds) == bounds) & (amounts < _AMOUNT_END)
    divisor = np.where(is_whole, bounds, 1.0).astype(np.int64)
    costs: Ints = -(-np.where(is_whole, amounts, 0) * unit_ns // divisor)
    others = np.flatnonzero(~is_whole)
    if len(others):
        costs[others] = _one_by_one(amounts[others].tolist(), bounds[others].tolist(), unit_ns)
    return np.where(bounds == np.inf, 0, np.minimum(costs, ENDLESS_NS))


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


def leads_of_schedules_ns(times_ns: Ints, costs: Ints, begins: Ints, first_leads_ns: Ints, span_ns: int) -> Ints:
    """Return `leads_before_ns` of several schedules, one behind the other; below 0: the schedule is idle.

    All are computed at once: the times of each schedule are moved behind those of the one before, so that no maximum reaches beyond its
    schedule. If this takes more than 62 bits, they are computed one by one.

    Args:
        times_ns: when the requests pass; ascending within each schedule. It is overwritten, since each copy takes as long as a sum.
        costs: what each is charged. It is overwritten, too.
        begins: position of the first request of each schedule, ascending from 0 on.
        first_leads_ns: the lead before that; not below 0.
        span_ns: the latest of all times less the earliest.
    """
    stride = span_ns + int(first_leads_ns.max()) + 1
    if int(costs.max()) * len(costs) >= _REACH_NS and float(costs.sum(dtype=np.float64)) >= _REACH_NS:
        return _leads_one_by_one(times_ns, costs, begins, first_leads_ns)
    totals = np.add.reduceat(costs, begins)
    stride += int(totals.max())
    if stride * len(begins) >= _REACH_NS:
        return _leads_one_by_one(times_ns, costs, begins, first_leads_ns)
    charged, latest = costs, times_ns
    charged[begins[1:] - 1] -= totals[:-1] + stride
    np.cumsum(charged, out=charged)  # the cost of the requests of the schedule up to each, less the strides
    latest[1:] -= charged[:-1]
    latest[begins] += first_leads_ns
    leads = charged  # the memory is used again
    np.maximum.accumulate(latest[:-1], out=leads[1:])
    leads[1:] -= latest[1:]
    leads[begins] = first_leads_ns
    return leads


def _leads_one_by_one(times_ns: Ints, costs: Ints, begins: Ints, first_leads_ns: Ints) -> Ints:
    its = zip(np.split(times_ns, begins[1:]), np.split(costs, begins[1:]), first_leads_ns.tolist(), strict=True)
    return np.concatenate([leads_before_ns(*schedule) for schedule in its])
