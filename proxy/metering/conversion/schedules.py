"""Computes how far the schedules of paced groups were ahead of the clock: decisions that the schedule admitted count, and usage of other
processes.

A schedule that begins at run time has the throttle time of the window as its lead. The proxy records it as a decision without usage, which
is the last one of the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metering_format.event_kinds import RECORD, REMOTE, UNCHECKED
from proxy.metering.conversion.runs import Flags, Ints, Runs
from quota.paced_costs import costs_ns, leads_before_ns
from quota.paced_schedule import HANDLER_TIME_NS, MS_NS, rescaled_ns

NOT_PACED: Final = -1


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of all groups.

    Attributes:
        lead_ns: lead before each run of decisions, `NOT_PACED` without a schedule; None: no group has one.
        virtual_ns: virtual time of each group after its decisions, by group_ref. Of a group with a window it is where a schedule would
            begin: the time of the last decision plus its throttle time.
    """

    lead_ns: Ints | None
    virtual_ns: Ints


def schedules_of(
    runs: Runs, bound: NDArray[np.float64], before: NDArray[np.float64], is_paced: Flags, is_request_time: Flags, state: pa.Table
) -> Schedules:
    """Return the schedules of some decisions, which are sorted by group.

    Args:
        bound: the bound in force at each run.
        before: the one in force at the decision before it.
        is_paced: whether its group had a schedule.
        is_request_time: by group_ref, whether the values of a group are nanoseconds of handler time.
        state: the state before, a table of `STATE`.
    """
    virtual_ns = np.zeros(len(is_request_time), np.int64)
    virtual_ns[state.column("group_ref").to_numpy()] = state.column("virtual_ns").to_numpy()
    group, times_ns = runs.group_ref, runs.ts_ms * MS_NS
    newest = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    if not is_paced.any():
        virtual_ns[group[newest]] = _after_window(runs, newest)
        return Schedules(None, virtual_ns)
    lead_ns = np.full(len(runs), NOT_PACED, np.int64)
    counts = ((runs.kind == RECORD) | (runs.kind == REMOTE)) & is_paced
    costs = np.where(counts, _costs_ns(np.maximum(runs.value, 0), bound, is_request_time[group]) * runs.count, 0)
    of_windows = newest[~is_paced[newest]]
    is_new = np.append(True, group[1:] != group[:-1])
    is_cut = is_new | np.append(False, ~is_paced[:-1] | (bound[1:] != bound[:-1]))
    begins = np.flatnonzero(is_paced & is_cut)
    ends = np.flatnonzero(is_paced & np.append(is_cut[1:] | ~is_paced[1:], True)) + 1
    for first, end in zip(begins.tolist(), ends.tolist(), strict=True):
        ref, its = int(group[first]), slice(first, end)
        if not is_new[first] and not is_paced[first - 1]:  # its window was the last one to decide
            virtual_ns[ref] = _after_window(runs, np.array([first - 1]))[0]
        lead = max(0, int(virtual_ns[ref]) - int(times_ns[first]))
        if runs.kind[first] == UNCHECKED and not runs.value[first]:  # recorded when the bound changed
            lead = rescaled_ns(lead, float(before[first]), float(bound[first]))
        lead_ns[its] = leads_before_ns(times_ns[its], costs[its], lead)
        virtual_ns[ref] = times_ns[end - 1] + lead_ns[end - 1] + costs[end - 1]
    virtual_ns[group[of_windows]] = _after_window(runs, of_windows)
    return Schedules(lead_ns, virtual_ns)


def _costs_ns(value: Ints, bound: NDArray[np.float64], is_request_time: Flags) -> Ints:
    costs = costs_ns(value, bound)
    timed = np.flatnonzero(is_request_time)
    if len(timed):
        costs[timed] = costs_ns(value[timed], bound[timed], HANDLER_TIME_NS)
    return costs


def _after_window(runs: Runs, at: Ints) -> Ints:
    """Return where a schedule would begin after these decisions of windows."""
    return (runs.ts_ms[at] + np.maximum(runs.throttle_ms[at], 0)) * MS_NS
