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

from metering_format.event_kinds import RECORD, REMOTE
from proxy.metering.conversion.runs import Flags, Ints, Runs
from quota.paced_costs import costs_ns, leads_before_ns
from quota.paced_schedule import MS_NS

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


def schedules_of(runs: Runs, bound: NDArray[np.float64], is_paced: Flags, groups: int, state: pa.Table) -> Schedules:
    """Return the schedules of some decisions, which are sorted by group.

    Args:
        bound: the bound in force at each run.
        is_paced: whether its group had a schedule.
        groups: number of groups, by group_ref.
        state: the state before, a table of `STATE`.
    """
    virtual_ns = np.zeros(groups, np.int64)
    virtual_ns[state.column("group_ref").to_numpy()] = state.column("virtual_ns").to_numpy()
    group, times_ns = runs.group_ref, runs.ts_ms * MS_NS
    newest = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    if not is_paced.any():
        virtual_ns[group[newest]] = _after_window(runs, newest)
        return Schedules(None, virtual_ns)
    lead_ns = np.full(len(runs), NOT_PACED, np.int64)
    counts = ((runs.kind == RECORD) | (runs.kind == REMOTE)) & is_paced
    costs = np.where(counts, costs_ns(np.maximum(runs.value, 0), bound) * runs.count, 0)
    of_windows = newest[~is_paced[newest]]
    begins = np.flatnonzero(is_paced & (np.append(True, (group[1:] != group[:-1]) | ~is_paced[:-1])))
    ends = np.flatnonzero(is_paced & np.append((group[1:] != group[:-1]) | ~is_paced[1:], True)) + 1
    for first, end in zip(begins.tolist(), ends.tolist(), strict=True):
        ref, its = int(group[first]), slice(first, end)
        if first and group[first - 1] == ref:  # its window was the last one to decide
            virtual_ns[ref] = _after_window(runs, np.array([first - 1]))[0]
        lead_ns[its] = leads_before_ns(times_ns[its], costs[its], max(0, int(virtual_ns[ref]) - int(times_ns[first])))
        virtual_ns[ref] = times_ns[end - 1] + lead_ns[end - 1] + costs[end - 1]
    virtual_ns[group[of_windows]] = _after_window(runs, of_windows)
    return Schedules(lead_ns, virtual_ns)


def _after_window(runs: Runs, at: Ints) -> Ints:
    """Return where a schedule would begin after these decisions of windows."""
    return (runs.ts_ms[at] + np.maximum(runs.throttle_ms[at], 0)) * MS_NS
