"""EARLY: a request of a paced group passed before its schedule let it. The schedule is recomputed to the last nanosecond.

A checked record is one that the schedule admitted: its lead before the record is at most the burst. A record without a check passed
whatever the schedule was: by an age step, shortly before the end of a SASL session, while Sluice drained, in `observe`, or as the part of
a fetched response that was larger than its reservation. Such a record does not move the recomputed schedule on. The proxy's own schedule
counts it, so the recomputed one is never ahead of that.
"""

from __future__ import annotations

import numpy as np

from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Flags, Ints, Rows
from quota.paced_costs import costs_ns, leads_of_schedules_ns
from quota.paced_schedule import MS_NS


def check_schedules(rows: Rows, burst_ms: int, judged: Flags, begins_run: bool, findings: Findings) -> None:
    """Recompute the schedules of paced groups.

    Args:
        rows: rows of the file set and of its warm-up, sorted by group; each has events.
        burst_ms: the burst of all of them.
        judged: whether each row is judged.
        begins_run: whether no file set of the run is before this one, so that schedules begin without a lead.
        findings: where divergences are added.
    """
    assert rows.lead_ns is not None
    leads = _leads_ns(rows, rows.lead_ns)
    _check_leads(rows, rows.lead_ns, leads.take(rows.event_at), judged, begins_run, findings)
    early = np.flatnonzero(leads > burst_ms * MS_NS)
    early = early[rows.checked.take(early) & judged.take(rows.row_of.take(early))]
    groups = rows.group_ref[rows.row_of[early]]
    _, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
    for index, number in zip(firsts.tolist(), counts.tolist(), strict=True):
        event = int(early[index])
        row = int(rows.row_of[event])
        place = (int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.ts_ms[event]))
        what = f"lead of the schedule before event {event - int(rows.event_at[row])} of the row, of {rows.value[event]} bytes"
        findings.add(Finding(Kind.EARLY, *place, f"at most {burst_ms * MS_NS} ns", f"{leads[event]} ns", what), number)


def _leads_ns(rows: Rows, recorded_ns: Ints) -> Ints:
    """Return the lead before each event. The first row of a group gives the lead that its schedule begins with."""
    costs = costs_ns(rows.value, rows.bound.take(rows.row_of))
    if not rows.checked.all():
        costs[~rows.checked] = 0
    firsts = np.flatnonzero(rows.is_new_group)
    return leads_of_schedules_ns(rows.ts_ms * MS_NS, costs, rows.event_at[firsts], np.maximum(recorded_ns[firsts], 0))


def _check_leads(rows: Rows, recorded: Ints, recomputed: Ints, judged: Flags, begins_run: bool, findings: Findings) -> None:
    """Compare the lead of each row with that after the rows before it, and with 0 where a run begins."""
    expected = np.where(rows.is_new_group & begins_run, 0, recomputed)
    wrong = np.flatnonzero((expected != recorded) & judged)
    _, firsts, counts = np.unique(rows.group_ref[wrong], return_index=True, return_counts=True)
    for index, number in zip(firsts.tolist(), counts.tolist(), strict=True):
        row = int(wrong[index])
        place = (int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.ts_ms[rows.event_at[row]]))
        figures = (f"{expected[row]} ns", f"{recorded[row]} ns", "lead of the schedule before the row")
        findings.add(Finding(Kind.MATH, *place, *figures), number)
