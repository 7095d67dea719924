"""The demand of paced groups: what came when, and the lowest bound at which each request would have passed without a wait.

The schedule of a group with bound r is at most the burst ahead when, since every earlier time, r x (burst + time since) was enough for what
came. So a schedule needs what a token bucket with the burst as its span needs. Requests count when they came: the record has their waits.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc

from metering_format.places import PACED
from pipeline.file_set import FileSet
from pipeline.recommend.buckets import TakenAmount
from pipeline.recommend.demand import Part
from pipeline.replay.rows import LEAD, Flags, Floats, Ints
from pipeline.whatif.events import read_events
from pipeline.whatif.groups import Group, Sensor
from pipeline.whatif.pacing import REQUEST
from quota.paced_schedule import BURST_MS
from quota.request_time import PERCENT_PER_NANOSECOND


def paced_refs(file_sets: Sequence[FileSet]) -> set[int]:
    """Return the numbers of the groups of a run that had a schedule, in any of its file sets."""
    found: set[int] = set()
    for file_set in file_sets:
        if PACED in file_set.manifest.settings:
            rows = file_set.read("samples", columns=["group_ref", LEAD])
            found.update(pc.unique(rows.filter(pc.is_valid(rows.column(LEAD))).column("group_ref")).to_pylist())
    return found


def schedules_in(file_sets: Sequence[FileSet], sensors: Sequence[Sensor]) -> Iterator[Part]:
    """Yield the demand of the paced groups of one run. Its schedules begin idle."""
    events = read_events(file_sets, [sensor.ref for sensor in sensors])
    burst_ms = int(file_sets[-1].manifest.settings.get(PACED, BURST_MS))
    refs: dict[Group, list[int]] = {}
    for sensor in sensors:
        refs.setdefault(sensor.group, []).append(sensor.ref)
    for group, own in refs.items():
        at = np.flatnonzero(np.isin(events.group_ref, own) & events.is_own)
        if not len(at):
            continue
        came_ms, value = events.ts_ms[at], events.value[at]
        needed = _needed(came_ms, value, events.checked[at], burst_ms)
        seconds, of_event = np.unique(came_ms // 1_000, return_inverse=True)
        units, rates = np.zeros(len(seconds), np.int64), np.zeros(len(seconds))
        np.add.at(units, of_event, value)
        np.maximum.at(rates, of_event, needed)
        if group.quota_type == REQUEST:
            rates *= PERCENT_PER_NANOSECOND
        waited_seconds = len(np.unique(of_event[events.waited_ms[at] > 0]))
        lists = (seconds.tobytes(), units.tobytes(), rates.tobytes())
        yield Part(group, burst_ms / 1_000, float(events.bound[at[-1]]), waited_seconds, *lists, is_paced=True)


def _needed(came_ms: Ints, value: Ints, checked: Flags, burst_ms: int) -> Floats:
    """Return the lowest bound at which each request passes when it comes, in units of `value` per second; 0 for those that always pass."""
    taken, needed = TakenAmount(), np.zeros(len(value))
    for at, (ts_ms, amount, is_checked) in enumerate(zip(came_ms.tolist(), value.tolist(), checked.tolist(), strict=True)):
        if is_checked:
            needed[at] = taken.lowest_rate(ts_ms, burst_ms)
        taken.take(amount, ts_ms)
    return needed
