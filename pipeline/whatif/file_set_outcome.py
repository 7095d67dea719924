"""One file set under other bounds with the recorded groups. Windows and sums do not depend on the bound, so the result is exact."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline.file_set import FileSet
from pipeline.replay.decisions import NO_CAP, decide, waits_under
from pipeline.replay.decisions import Sensor as Measure
from pipeline.replay.remote import columns_of, own_events
from pipeline.replay.rows import Flags, Floats, Ints, Rows
from pipeline.whatif.events import recorded_ms, unpacked
from pipeline.whatif.groups import GroupAssignment, Sensor
from pipeline.whatif.outcome import Outcome, Waits


def measure_of(sensor: Sensor) -> Measure:
    """Return the parameters of a sensor in the form that the replay needs."""
    return Measure(
        sensor.num_samples, sensor.window_ms, NO_CAP if sensor.cap_ms is None else sensor.cap_ms, sensor.group.quota_type == "Request"
    )


def file_set_outcomes(
    file_set: FileSet, before: Sequence[FileSet], sensors: Mapping[int, Sensor], scenarios: Sequence[Mapping[int, GroupAssignment]]
) -> list[list[Outcome]]:
    """Return, for each scenario, the decisions of each placed sensor in this file set.

    Args:
        file_set: the file set.
        before: earlier file sets of the run. Only those that the warm-up needs are read.
        sensors: the sensors of the run by number.
        scenarios: new group of each sensor by number; other sensors are left out.
    """
    outcomes: list[list[Outcome]] = [[] for _ in scenarios]
    samples = file_set.read("samples", columns=columns_of(file_set))
    wanted = sorted({ref for scenario in scenarios for ref in scenario} & set(sensors))
    if not len(samples) or not wanted:
        return outcomes
    table = pa.concat_tables([_warm_up(file_set, before, [sensors[ref] for ref in wanted]), samples])
    kinds: dict[Measure, list[int]] = {}
    for ref in wanted:
        kinds.setdefault(measure_of(sensors[ref]), []).append(ref)
    for measure, refs in kinds.items():
        rows = unpacked(table, np.array(refs, np.int64), file_set)
        if not rows.events:
            continue
        groups = _Groups(rows, own_events(file_set, table, rows), file_set.manifest.first_seq)
        decided = decide(rows, measure)
        recorded = groups.waits(recorded_ms(rows))
        for scenario, out in zip(scenarios, outcomes, strict=True):
            waits = groups.waits(waits_under(rows, decided, _bounds(rows, groups, scenario), measure))
            out += groups.outcomes(scenario, recorded, waits)
    return outcomes


class _Groups:
    """The groups of unpacked rows. Each is a range of rows and of events. Rows of the warm-up do not count.

    Args:
        rows: the rows.
        is_own: False for events that another process recorded.
        first_seq: first sequence number of the file set.

    Attributes:
        refs: group numbers, ascending.
        of_row: position of each row's group in `refs`.
    """

    def __init__(self, rows: Rows, is_own: Flags, first_seq: int) -> None:
        self.refs, begins, self.of_row = np.unique(rows.group_ref, return_index=True, return_inverse=True)
        own = rows.first_seq >= first_seq
        self._last_row = np.append(begins[1:], len(rows.n)) - 1
        self._bound = rows.bound[self._last_row]
        elsewhere = np.flatnonzero(~is_own)
        self._decisions = self._sum(np.where(own, rows.count - np.bincount(rows.row_of[elsewhere], minlength=len(rows.n)), 0))
        units = rows.total.copy()
        np.subtract.at(units, rows.row_of[elsewhere], rows.value[elsewhere])
        self._units = self._sum(np.where(own, units, 0))
        self._of_event = self.of_row[rows.row_of]
        self._counts = own[rows.row_of]

    def _sum(self, value: Ints) -> list[int]:
        total = np.zeros(len(self.refs), np.int64)
        np.add.at(total, self.of_row, value)
        return list(total.tolist())

    def waits(self, throttle_ms: Ints) -> list[Waits]:
        """Return the waits above 0 of each group by length. One sort serves all groups."""
        at = np.flatnonzero((throttle_ms > 0) & self._counts)
        keys, numbers = np.unique(self._of_event[at] << 32 | throttle_ms[at], return_counts=True)
        edges = np.searchsorted(keys, np.arange(len(self.refs) + 1) << 32).tolist()
        lengths, counted = (keys & 0xFFFFFFFF).tolist(), numbers.tolist()
        return [Waits(lengths[begin:end], counted[begin:end]) for begin, end in itertools.pairwise(edges)]

    def outcomes(self, scenario: Mapping[int, GroupAssignment], recorded: list[Waits], waits: list[Waits]) -> list[Outcome]:
        """Return the outcome of each group that the scenario places and that has decisions."""
        bounds, found = self._bound.tolist(), []
        for at, ref in enumerate(self.refs.tolist()):
            placed = scenario.get(ref)
            if placed is None or not self._decisions[at]:
                continue
            counts = (self._decisions[at], self._units[at], recorded[at], waits[at])
            found.append(Outcome(placed.group, placed.bound, bounds[at], *counts, is_certain=placed.is_certain, moves=placed.moves))
        return found


def _bounds(rows: Rows, groups: _Groups, scenario: Mapping[int, GroupAssignment]) -> Floats:
    proposed = np.array([_proposed(scenario.get(ref)) for ref in groups.refs.tolist()])[groups.of_row]
    bounds: Floats = np.where(np.isnan(proposed), rows.bound, proposed)
    return bounds


def _proposed(placed: GroupAssignment | None) -> float:
    return float("nan") if placed is None or placed.bound is None else placed.bound


def _warm_up(file_set: FileSet, before: Sequence[FileSet], sensors: Sequence[Sensor]) -> pa.Table:
    span_ms = max((sensor.num_samples + 1) * sensor.window_ms for sensor in sensors)
    after_ms = file_set.manifest.first_ts_ms - span_ms
    columns = columns_of(file_set)
    parts = [file_set.read("samples", columns=columns).slice(0, 0)]
    for earlier in reversed(before):
        if earlier.manifest.last_ts_ms <= after_ms:
            break
        parts.append(earlier.read("samples", columns=columns, after_ms=after_ms))
    return pa.concat_tables(reversed(parts))
