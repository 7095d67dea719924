"""The costs of many requests at once, equal to `paced_schedule.cost_ns` to the last nanosecond."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quota.paced_schedule import BYTES_NS, ENDLESS_NS, cost_ns

Ints = NDArray[np.int64]
_AMOUNT_END: Final = 2**33
"""Amounts below it, times `BYTES_NS`, fit into 63 bits."""
_BOUND_END: Final = 2.0**53
_QUOTIENT_END: Final = 2.0**50
_ERROR: Final = 2.0**-51
"""Highest relative error of a quotient: a conversion, a division and two products have less than 2^-53 each."""
_REACH: Final = 2.5 * _ERROR
"""A quotient is at most twice the error below the exact one."""
_REACH_NS: Final = 2**62
_FEW: Final = 4
"""Up to so many costs are computed in less time one by one."""
_LONG_ROW: Final = 8
"""From so many requests of a row on, on average, two reductions of rows take less time than a running maximum."""


class Leads(NamedTuple):
    """How far schedules are ahead of the clock before each request; below 0: a schedule is idle.

    Attributes:
        before_rows_ns: before the first request of each row.
        highest_ns: the highest before any request, or more.
        of_requests: returns that before each request, in ns.
    """

    before_rows_ns: Ints
    highest_ns: int
    of_requests: Callable[[], Ints]

    @classmethod
    def of(cls, leads_ns: Ints, rows: Ints) -> Leads:
        """Return known leads before each request.

        Args:
            rows: position of the first request of each row.
        """
        return cls(leads_ns.take(rows), int(leads_ns.max()), lambda: leads_ns)


def costs_ns(amounts: Ints, bounds: NDArray[np.float64], unit_ns: int = BYTES_NS) -> Ints:
    """Return the cost of each amount under its bound, in nanoseconds.

    Args:
        amounts: bytes, or nanoseconds of handler time, of each request; not negative.
        bounds: bytes per second, or percent of one thread.
        unit_ns: as in `cost_ns`.
    """
    if not len(amounts):
        return np.zeros(0, np.int64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotients = _per_unit(bounds, unit_ns)
        np.multiply(quotients, amounts, out=quotients)
    highest = float(quotients.max())
    if not _can_decide(highest, bounds):
        return _near_whole(amounts, bounds, unit_ns)
    costs, near = _rounded_up(quotients, highest)
    costs[near] = _near_whole(amounts[near], bounds[near], unit_ns)
    return costs


def costs_of_groups_ns(
    amounts: Ints, bounds: NDArray[np.float64], numbers: Ints, largest: Ints, unit_ns: int = BYTES_NS
) -> tuple[Ints, int]:
    """Return the costs of requests of groups, one group behind the other, as `costs_ns` gives them, and the highest of them, or more.

    Args:
        amounts: of each request; not negative. There has to be one.
        bounds: of each group.
        numbers, largest: number of requests, and largest amount, of each group.
        unit_ns: as in `cost_ns`.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        per_unit = _per_unit(bounds, unit_ns)
        highest = float((per_unit * largest).max())  # rounding keeps the order of quotients
        if not _can_decide(highest, bounds):
            costs = _near_whole(amounts, np.repeat(bounds, numbers), unit_ns)
            return costs, int(costs.max())
        quotients = np.repeat(per_unit, numbers)
        np.multiply(quotients, amounts, out=quotients)
    costs, near = _rounded_up(quotients, highest)
    if len(near):
        costs[near] = _near_whole(amounts[near], bounds.take(np.searchsorted(np.cumsum(numbers), near, side="right")), unit_ns)
    return costs, int(highest) + 2


def _per_unit(bounds: NDArray[np.float64], unit_ns: int) -> NDArray[np.float64]:
    """Return a little less than the cost of one unit under each bound, so that no quotient is above the exact one."""
    per_unit: NDArray[np.float64] = float(unit_ns) / bounds * (1.0 - _ERROR)
    return per_unit


def _can_decide(highest: float, bounds: NDArray[np.float64]) -> bool:
    """Return True when floating-point numbers can decide most costs; False also when a quotient is not a number."""
    return highest < _QUOTIENT_END and float(bounds.min()) > 0.0


def _rounded_up(quotients: NDArray[np.float64], highest: float) -> tuple[Ints, Ints]:
    """Return quotients as integers, in their own memory, and the positions of those whose error could change the result.

    A quotient is not above the exact one. Rounded up, both are equal unless a whole number is so near above the quotient.

    Args:
        highest: the highest of them.
    """
    whole = np.ceil(quotients)
    np.subtract(whole, quotients, out=quotients)
    near = np.flatnonzero(quotients <= highest * _REACH)
    costs = quotients.view(np.int64)
    np.copyto(costs, whole, casting="unsafe")
    return costs, near


def _near_whole(amounts: Ints, bounds: NDArray[np.float64], unit_ns: int) -> Ints:
    """Return the costs that are too near to a whole number, or too large, for a division with rounding: by integers."""
    if len(amounts) <= _FEW:
        return np.array(_one_by_one(amounts.tolist(), bounds.tolist(), unit_ns), np.int64)
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


def leads_of_schedules_ns(
    times_ns: Ints, costs: Ints, begins: Ints, first_leads_ns: Ints, span_ns: int, rows: Ints, *, highest_cost_ns: int
) -> Leads:
    """Return the leads of several schedules, one behind the other, as `leads_before_ns` gives them.

    All are computed at once: the times of each schedule are moved behind those of the one before, so that no maximum reaches beyond its
    schedule. If this takes more than 62 bits, they are computed one by one.

    Args:
        times_ns: when the requests pass; ascending within each schedule. It is overwritten, since each copy takes as long as a sum.
        costs: what each is charged. It is overwritten, too.
        begins: position of the first request of each schedule, ascending from 0 on.
        first_leads_ns: the lead before that; not below 0.
        span_ns: the latest of all times less the earliest.
        rows: position of the first request of each row, ascending; each schedule begins a row.
        highest_cost_ns: the highest of `costs`, or more.
    """
    if not _move_apart(times_ns, costs, begins, first_leads_ns, span_ns, highest_cost_ns):
        return Leads.of(_leads_one_by_one(times_ns, costs, begins, first_leads_ns), rows)
    of_requests = functools.partial(_leads_behind, times_ns, costs, begins, first_leads_ns)
    if len(times_ns) < _LONG_ROW * len(rows):
        return Leads.of(of_requests(), rows)
    latest, earliest = np.maximum.reduceat(times_ns, rows), np.minimum.reduceat(times_ns, rows)
    behind = np.maximum.accumulate(latest)
    highest_ns = max(int((behind - earliest).max()), int(first_leads_ns.max()))
    before = np.empty_like(behind)
    before[1:] = behind[:-1] - times_ns.take(rows[1:])
    before[np.searchsorted(rows, begins)] = first_leads_ns
    return Leads(before, highest_ns, of_requests)


def _move_apart(times_ns: Ints, costs: Ints, begins: Ints, first_leads_ns: Ints, span_ns: int, highest_cost_ns: int) -> bool:
    """Move each time back by the costs of its schedule before it, and each schedule behind those before it.

    The lead before a request is then the latest moved time before it, less its own. How far a schedule is moved follows from the number of
    requests before it, since sums of their costs would take another pass.

    Returns:
        False when this may take more than 62 bits; nothing is moved then.
    """
    stride = span_ns + int(first_leads_ns.max()) + 1
    if stride * len(begins) + highest_cost_ns * len(costs) >= _REACH_NS:
        return False
    costs[begins[1:] - 1] -= np.diff(begins) * highest_cost_ns + stride
    np.cumsum(costs, out=costs)  # the cost of the requests of the schedule up to each, less the strides
    times_ns[1:] -= costs[:-1]
    times_ns[begins] += first_leads_ns
    return True


def _leads_behind(moved_ns: Ints, leads: Ints, begins: Ints, first_leads_ns: Ints) -> Ints:
    """Return the lead before each request, in the memory of `leads`, by the times that `_move_apart` moved."""
    np.maximum.accumulate(moved_ns[:-1], out=leads[1:])
    leads[1:] -= moved_ns[1:]
    leads[begins] = first_leads_ns
    return leads


def _leads_one_by_one(times_ns: Ints, costs: Ints, begins: Ints, first_leads_ns: Ints) -> Ints:
    its = zip(np.split(times_ns, begins[1:]), np.split(costs, begins[1:]), first_leads_ns.tolist(), strict=True)
    return np.concatenate([leads_before_ns(*schedule) for schedule in its])
