"""EARLY over all workers: in any span, their checked requests of a paced group pass at most the bound, the burst and one request each.

Each worker's schedule is replayed by itself, with what it knew of the others. This rule compares what all of them passed with one schedule.
A worker may pass one request before it knows of those that others pass at that moment, so one request of each is allowed beyond the burst.
Requests that pass because they keep a group membership are left out.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.manifest import RunKey
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.validation.rules.workers.group_histories import GroupHistory
from quota.entity import UNLIMITED
from quota.paced_costs import costs_ns, leads_before_ns
from quota.paced_schedule import BYTES_NS, HANDLER_TIME_NS, MS_NS


def check_union(histories: Sequence[GroupHistory], findings: Mapping[RunKey, Findings]) -> None:
    """Compare what the workers of one segment passed of one group with the schedule of its highest bound."""
    bound = max(history.bound for history in histories)
    burst_ms = max(history.run.burst_ms for history in histories)
    if not burst_ms or not 0.0 < bound < UNLIMITED:
        return
    passed = [np.flatnonzero(history.is_own & history.checked & history.paced & ~history.excused) for history in histories]
    at_ms = np.concatenate([history.ts_ms[its] for history, its in zip(histories, passed, strict=True)])
    if not len(at_ms):
        return
    value = np.concatenate([history.value[its] for history, its in zip(histories, passed, strict=True)])
    source = np.repeat(np.arange(len(histories)), [len(its) for its in passed])
    order = np.argsort(at_ms, kind="stable")
    unit_ns, unit = (HANDLER_TIME_NS, "ns of handler time") if histories[0].is_time else (BYTES_NS, "bytes")
    costs = costs_ns(value, np.full(len(value), bound), unit_ns)
    leads = leads_before_ns(at_ms[order] * MS_NS, costs[order], 0)
    workers = len({history.run.worker for history in histories})
    allowed_ns = burst_ms * MS_NS + workers * int(costs.max())
    late = np.flatnonzero(leads > allowed_ns)
    if not len(late):
        return
    first = int(order[late[0]])
    history = histories[int(source[first])]
    event = int(np.concatenate(passed)[first])
    place = (history.group_ref, int(history.seq[event]), int(history.ts_ms[event]) + history.run.offset_ms)
    what = f"lead of the schedule of {workers} workers before a request of {value[first]} {unit}, by what all of them passed"
    findings[history.run.key].add(Finding(Kind.EARLY, *place, f"at most {allowed_ns} ns", f"{leads[late[0]]} ns", what), len(late))
