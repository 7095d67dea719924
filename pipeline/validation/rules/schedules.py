"""EARLY: a request of a paced group passed before its schedule let it. The schedule is recomputed to the last nanosecond.

A checked record is one that the schedule admitted: its lead before the record is at most the burst. A record without a check passed
whatever the schedule was: by an age step, shortly before the end of a SASL session, while Sluice drained, in `observe`, or as the part of
a response (bytes, or handler time) that exceeds its reservation. Such a record does not move the recomputed schedule on. The proxy's own
schedule counts it, so the recomputed one is never ahead of that. A checked record that is excused may be early, since its request keeps a
group membership. Usage of other processes moves both on when it is recorded.
"""

from __future__ import annotations

import numpy as np

from metering_format.event_kinds import EXCUSED_MS
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Flags, Ints, Rows, changes
from quota.paced_costs import Leads, costs_of_groups_ns, leads_before_ns, leads_of_schedules_ns
from quota.paced_schedule import HANDLER_TIME_NS, MS_NS, rescaled_ns


def check_schedules(rows: Rows, burst_ms: int, unit_ns: int, judged: Flags, begins_run: bool, findings: Findings) -> None:
    """Recompute the schedules of paced groups.

    Args:
        rows: rows of the file set and of its warm-up, sorted by group; each has events.
        burst_ms: the burst of all of them.
        unit_ns: as in `cost_ns`, of all of them.
        judged: whether each row is judged.
        begins_run: whether no file set of the run is before this one, so that schedules begin without a lead.
        findings: where divergences are added.
    """
    assert rows.lead_ns is not None
    found = _leads_ns(rows, rows.lead_ns, *_costs_ns(rows, unit_ns))
    _check_leads(rows, rows.lead_ns, np.maximum(found.before_rows_ns, 0), judged, begins_run, findings)
    if found.highest_ns <= burst_ms * MS_NS:
        return
    leads = found.of_requests()
    early = np.flatnonzero(leads > burst_ms * MS_NS)
    early = early[rows.checked.take(early) & (rows.applied_ms.take(early) != EXCUSED_MS) & judged.take(rows.row_of.take(early))]
    unit = "ns of handler time" if unit_ns == HANDLER_TIME_NS else "bytes"
    groups = rows.group_ref[rows.row_of[early]]
    _, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
    for index, number in zip(firsts.tolist(), counts.tolist(), strict=True):
        event = int(early[index])
        row = int(rows.row_of[event])
        place = (int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.ts_ms[event]))
        what = f"lead of the schedule before event {event - int(rows.event_at[row])} of the row, of {rows.value[event]} {unit}"
        findings.add(Finding(Kind.EARLY, *place, f"at most {burst_ms * MS_NS} ns", f"{leads[event]} ns", what), number)


def _costs_ns(rows: Rows, unit_ns: int) -> tuple[Ints, int]:
    """Return the cost of each event, 0 for one that the schedule does not count, and the highest cost, or more."""
    firsts = np.flatnonzero(rows.is_new_group | rows.is_new_bound)
    events = rows.event_at.take(firsts)
    amounts = rows.value if int(rows.value.min()) >= 0 else np.maximum(rows.value, 0)
    largest = np.maximum.reduceat(amounts, events)
    costs, highest_ns = costs_of_groups_ns(amounts, rows.bound.take(firsts), np.diff(events, append=rows.events), largest, unit_ns)
    counts = rows.checked if rows.remote is None else rows.checked | rows.remote
    if not ((rows.all_checked or counts.all()) and rows.paced.all()):
        costs[~(counts & rows.paced.take(rows.row_of))] = 0
    return costs, highest_ns


def _leads_ns(rows: Rows, recorded_ns: Ints, costs: Ints, highest_cost_ns: int) -> Leads:
    """Return the leads of schedules, and leads of 0 before the events of a window.

    The first row of a group gives the lead that its schedule begins with. A schedule that begins behind a window has the throttle time of
    the last decision of the window as its lead. Where the bound changes, the lead is that of the same bytes under the new bound, if
    the proxy has recorded an amount of 0 without a check at that moment; else the schedule keeps its lead.
    """
    rebound = np.flatnonzero(rows.is_new_bound)  # few apart from the starts of groups
    rebound = rebound[~rows.is_new_group[rebound] & rows.paced[rebound]]
    if len(rebound):
        return Leads.of(_leads_over_bounds_ns(rows, recorded_ns, costs, rebound), rows.event_at)
    firsts = np.flatnonzero(rows.is_new_group if rows.paced.all() else rows.is_new_group | changes(rows.paced))
    begins = rows.event_at[firsts]
    first_leads_ns = np.where(rows.paced[firsts], recorded_ns[firsts], 0)
    behind = np.flatnonzero(rows.paced[firsts] & ~rows.is_new_group[firsts])
    if len(behind):
        last = begins[behind] - 1
        first_leads_ns[behind] = (rows.ts_ms[last] - rows.ts_ms[begins[behind]] + np.maximum(rows.throttle_ms[last], 0)) * MS_NS
    first_ms, last_ms = rows.ends_ms
    span_ns = (last_ms - first_ms) * MS_NS
    first_leads_ns = np.maximum(first_leads_ns, 0)
    times_ns = rows.ts_ms * MS_NS
    return leads_of_schedules_ns(times_ns, costs, begins, first_leads_ns, span_ns, rows.event_at, highest_cost_ns=highest_cost_ns)


def _leads_over_bounds_ns(rows: Rows, recorded_ns: Ints, costs: Ints, rebound: Ints) -> Ints:
    """Return the same where bounds change: the lead that a schedule has then depends on all before it.

    Args:
        costs: the cost of each event.
        rebound: the rows with another bound than the row before, of the same group.
    """
    times_ns = rows.ts_ms * MS_NS
    leads = np.zeros(rows.events, np.int64)
    is_first = rows.is_new_group | np.append(False, ~rows.paced[:-1])
    is_first[rebound] = True
    is_last = np.append(is_first[1:] | ~rows.paced[1:], True)
    firsts = np.flatnonzero(rows.paced & is_first)
    ends = (rows.event_at + rows.count)[rows.paced & is_last].tolist()
    for first, begin, end in zip(firsts.tolist(), rows.event_at[firsts].tolist(), ends, strict=True):
        lead_ns = int(recorded_ns[first])
        if not rows.is_new_group[first]:
            since_ns = int(times_ns[begin] - times_ns[begin - 1])
            if rows.paced[first - 1]:
                lead_ns = max(0, int(leads[begin - 1] + costs[begin - 1]) - since_ns)
            else:
                lead_ns = max(0, max(0, int(rows.throttle_ms[begin - 1])) * MS_NS - since_ns)
            if not rows.checked[begin] and not rows.value[begin]:
                lead_ns = rescaled_ns(lead_ns, float(rows.bound[first - 1]), float(rows.bound[first]))
        its = slice(begin, end)
        leads[its] = leads_before_ns(times_ns[its], costs[its], max(0, lead_ns))
    return leads


def _check_leads(rows: Rows, recorded: Ints, recomputed: Ints, judged: Flags, begins_run: bool, findings: Findings) -> None:
    """Compare the lead of each row with that after the rows before it, and with 0 where a run begins."""
    differs = recomputed != recorded
    if begins_run:
        differs |= rows.is_new_group & (recorded != 0)
    if not differs.any():
        return
    expected = np.where(rows.is_new_group & begins_run, 0, recomputed)
    wrong = np.flatnonzero(differs & judged)
    _, firsts, counts = np.unique(rows.group_ref[wrong], return_index=True, return_counts=True)
    for index, number in zip(firsts.tolist(), counts.tolist(), strict=True):
        row = int(wrong[index])
        place = (int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.ts_ms[rows.event_at[row]]))
        figures = (f"{expected[row]} ns", f"{recorded[row]} ns", "lead of the schedule before the row")
        findings.add(Finding(Kind.MATH, *place, *figures), number)
