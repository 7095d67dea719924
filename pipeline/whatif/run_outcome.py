"""The outcome of a whole run, for merged groups and the closed loop, which span file sets."""

from collections.abc import Mapping, Sequence

import numpy as np

from metering_format.event_kinds import MUTATION
from metering_format.places import PACED
from pipeline.file_set import FileSet
from pipeline.whatif.buckets import bucket_outcome, read_steps
from pipeline.whatif.closed import play, sensor_under
from pipeline.whatif.events import Events, read_events
from pipeline.whatif.file_set_outcome import measure_of
from pipeline.whatif.groups import Group, GroupAssignment, Sensor
from pipeline.whatif.outcome import Outcome, Waits
from pipeline.whatif.pacing import Pacing, schedule_under, schedule_waits, unit_of
from pipeline.whatif.regroup import replay
from quota.paced_schedule import BURST_MS

CLOSED = "closed"
AS_RECORDED = Pacing()


def members_of(scenario: Mapping[int, GroupAssignment]) -> list[list[GroupAssignment]]:
    """Return the recorded sensors that each new group replaces."""
    members: dict[tuple[Group, int | None], list[GroupAssignment]] = {}
    for placed in scenario.values():
        members.setdefault((placed.group, placed.ref if placed.is_apart else None), []).append(placed)
    return list(members.values())


def run_outcomes(
    file_sets: Sequence[FileSet],
    sensors: Mapping[int, Sensor],
    scenarios: Sequence[Mapping[int, GroupAssignment]],
    mode: str,
    pacing: Pacing = AS_RECORDED,
) -> list[list[Outcome]]:
    """Return, for each scenario, the decisions of each of its groups in this run."""
    if pacing.burst_ms is None and file_sets:
        pacing = Pacing(pacing.choice, int(file_sets[-1].manifest.settings.get(PACED, BURST_MS)))
    refs = sorted({ref for scenario in scenarios for ref in scenario})
    buckets = [ref for ref in refs if sensors[ref].group.quota_type == MUTATION]
    measured = [ref for ref in refs if sensors[ref].group.quota_type != MUTATION]
    events = read_events(file_sets, measured) if measured else None
    steps = read_steps(file_sets, buckets) if buckets else None

    def outcome_of(placed: list[GroupAssignment]) -> Outcome | None:
        group = placed[0].group
        if group.quota_type != MUTATION:
            return None if events is None else _outcome(group, placed, events, sensors, mode, pacing)
        return None if steps is None else bucket_outcome(group, placed, steps, sensors[placed[0].ref], is_closed=mode == CLOSED)

    found = [[outcome_of(placed) for placed in members_of(scenario)] for scenario in scenarios]
    return [[outcome for outcome in outcomes if outcome is not None] for outcomes in found]


def _outcome(
    group: Group, placed: list[GroupAssignment], events: Events, sensors: Mapping[int, Sensor], mode: str, pacing: Pacing
) -> Outcome | None:
    at = np.flatnonzero(np.isin(events.group_ref, [item.ref for item in placed]))
    if not len(at):
        return None
    measure = measure_of(sensors[placed[0].ref])
    ts_ms, value, checked = events.ts_ms[at], events.value[at], events.checked[at]
    own, bound = events.is_own[at], placed[0].bound
    today = {int(ref): float(its) for ref, its in zip(events.group_ref[at], events.bound[at], strict=True)}
    outcome = Outcome(
        group,
        bound,
        sum(today.values()),
        int(np.count_nonzero(own)),
        int(value[own].sum()),
        Waits.of(events.throttle_ms[at]),
        Waits(),
        groups=len(placed),
        is_certain=all(item.is_certain for item in placed),
        moves=any(item.moves for item in placed),
        paced_today=bool(events.paced[at[-1]]),
        paced=pacing.paces(group.quota_type, recorded=bool(events.paced[at[-1]])),
    )
    bounds = events.bound[at] if bound is None else bound
    assert pacing.burst_ms is not None
    unit_ns = unit_of(group.quota_type)
    if mode != CLOSED:
        waits_ms = (
            schedule_waits(ts_ms, value, checked, bounds, pacing.burst_ms, unit_ns)
            if outcome.paced
            else replay(ts_ms, value, checked, bounds, measure)
        )
        outcome.waits = Waits.of(waits_ms)
        return outcome
    known = None if events.connection is None else events.connection[at]
    lines = events.group_ref[at] if known is None else known  # without connections, each recorded group counts as one connection
    lines = np.where(own, lines, -1 - np.arange(len(lines)))  # other processes' usage keeps its recorded times
    decide = (
        schedule_under(bounds, pacing.burst_ms, value, checked, unit_ns) if outcome.paced else sensor_under(bounds, measure, value, checked)
    )
    elsewhere = int(value[~own].sum())
    waited_ms = events.waited_ms[at]
    played = play(
        ts_ms,
        value,
        waited_ms,
        lines,
        decide,
        checked=checked,
        is_known=known is not None or outcome.paced_today,  # requests of a paced group wait side by side, and each with its own wait
        passes_later=outcome.paced,
        end_ms=int((ts_ms + np.where(events.paced[at], waited_ms, 0)).max()),
    )
    outcome.waits, outcome.units_sent, outcome.units_offered = (
        Waits.of(played.throttle_ms),
        played.units_sent - elsewhere,
        played.units_offered - elsewhere,
    )
    outcome.knows_connections = known is not None
    return outcome
