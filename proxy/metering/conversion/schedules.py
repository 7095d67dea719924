"""Computes how far the schedules of paced groups were ahead of the clock: decisions that the schedule admitted count, and usage of other
processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metering_format.event_kinds import RECORD, REMOTE
from proxy.metering.conversion.runs import Ints, Runs
from proxy.metering.conversion.samples import Sensors
from quota.paced_costs import costs_ns, leads_before_ns
from quota.paced_schedule import MS_NS

NOT_PACED: Final = -1


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of all groups.

    Attributes:
        lead_ns: lead before each run of decisions, `NOT_PACED` without a schedule; None: no group has one.
        virtual_ns: virtual time of each group after its decisions, by group_ref; 0 without a schedule.
    """

    lead_ns: Ints | None
    virtual_ns: Ints


def schedules_of(runs: Runs, bound: NDArray[np.float64], sensors: Sensors, state: pa.Table) -> Schedules:
    """Return the schedules of some decisions, which are sorted by group.

    Args:
        bound: the bound in force at each run.
        state: the state before, a table of `STATE`.
    """
    virtual_ns = np.zeros(len(sensors.is_paced), np.int64)
    virtual_ns[state.column("group_ref").to_numpy()] = state.column("virtual_ns").to_numpy()
    group = runs.group_ref
    paced = np.flatnonzero(sensors.is_paced[group])
    if not len(paced):
        return Schedules(None, virtual_ns)
    lead_ns = np.full(len(runs), NOT_PACED, np.int64)
    counts = (runs.kind == RECORD) | (runs.kind == REMOTE)
    costs = np.where(counts, costs_ns(np.maximum(runs.value, 0), bound) * runs.count, 0)
    times_ns = runs.ts_ms * MS_NS
    begins = paced[np.flatnonzero(np.diff(group[paced], prepend=-1))]
    for first in begins.tolist():
        ref = int(group[first])
        end = int(np.searchsorted(group, ref, side="right"))
        its = slice(first, end)
        lead_ns[its] = leads_before_ns(times_ns[its], costs[its], max(0, int(virtual_ns[ref]) - int(times_ns[first])))
        virtual_ns[ref] = times_ns[end - 1] + lead_ns[end - 1] + costs[end - 1]
    return Schedules(lead_ns, virtual_ns)
