"""Packing of arrays of decisions against a plain loop over `quota`."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metering_format.event_kinds import RECORD, UNCHECKED
from proxy.metering.conversion.bounds import Bounds, bounds_of
from proxy.metering.conversion.packing import pack
from proxy.metering.conversion.runs import Runs
from proxy.metering.conversion.samples import STATE, Sensors
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID, Event, Sensor, samples_table

GAPS_MS = st.sampled_from([0, 0, 0, 1, 7, 150, 999, 1_000, 1_001, 2_500, 9_999, 10_000, 10_999, 11_000, 11_001, 12_000, 40_000])
REPEATS = st.sampled_from([1, 1, 1, 2, 16])
GROUPS = 3
BOUND = 3_000.0


@st.composite
def traces(draw: st.DrawFn) -> list[list[Event]]:
    now = draw(st.integers(10**9, 10**12))
    batches = []
    for size in draw(st.lists(st.integers(1, 25), min_size=1, max_size=4)):
        batch = []
        one = st.tuples(GAPS_MS, st.integers(0, GROUPS - 1), st.integers(-2_000, 90_000), st.booleans(), REPEATS)
        for gap, group, value, checked, repeats in draw(st.lists(one, min_size=size, max_size=size)):
            now += gap
            batch += [Event(group, now, value, checked and value >= 0)] * repeats
        batches.append(batch)
    return batches


@settings(deadline=None, max_examples=60)
@given(traces(), st.sampled_from([(11, 1_000), (2, 300)]), st.booleans())
def test_packed_rows_are_those_of_the_loop(batches: list[list[Event]], window: tuple[int, int], noted: bool) -> None:
    """Packed rows equal those of a loop over all samples, for any cut into file sets and any runs."""
    num_samples, window_ms = window
    loop = {ref: Sensor(ref, BOUND, request=ref == 2, num_samples=num_samples, window_ms=window_ms) for ref in range(GROUPS)}
    sensors = Sensors(np.full(GROUPS, num_samples), np.full(GROUPS, window_ms), np.arange(GROUPS) == 2)
    state, seq = STATE.empty_table(), 0
    for batch in batches:
        for sensor in loop.values():
            sensor.row, sensor.rows = None, []
        waits = [loop[event.group].take(event, at) for at, event in enumerate(batch, seq)]
        runs = runs_of(batch, waits, seq)
        seq += len(batch)
        in_force = bounds([(ref, 0, BOUND) for ref in range(GROUPS)])
        packed = pack(as_noted(runs) if noted else runs, sensors, in_force, state, (RUN_ID, PROXY_ID), lists=True)
        state = packed.state
        made = samples_table([row.as_dict() for sensor in loop.values() for row in sensor.rows])
        expected = made.sort_by([("group_ref", "ascending"), ("first_seq", "ascending")])
        assert packed.samples.to_pylist() == expected.to_pylist()


@settings(deadline=None, max_examples=60)
@given(traces(), st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, 400), st.floats(0.0, 9_000.0)), max_size=6), st.data())
def test_a_run_is_packed_as_each_of_its_decisions(
    batches: list[list[Event]], changes: list[tuple[int, int, float]], data: st.DataObject
) -> None:
    """A run is packed like its single decisions, although bounds and settings change within it."""
    events = [event for batch in batches for event in batch]
    runs = runs_of(events, [0] * len(events), 0)
    in_force = bounds([*((ref, 0, BOUND) for ref in range(GROUPS)), *changes])
    cuts = np.array(sorted(data.draw(st.sets(st.integers(0, len(events)), max_size=4))), np.int64)
    sensors = Sensors(np.full(GROUPS, 3), np.full(GROUPS, 1_000), np.arange(GROUPS) == 2)
    one_by_one, noted = (
        pack(each, sensors, in_force, STATE.empty_table(), (RUN_ID, PROXY_ID), lists=True, cuts=cuts) for each in (runs, as_noted(runs))
    )
    assert noted.samples.to_pylist() == one_by_one.samples.to_pylist()
    assert noted.state == one_by_one.state


def runs_of(batch: list[Event], waits: list[int], first_seq: int) -> Runs:
    """Return one entry for each decision."""
    return Runs(
        np.array([event.group for event in batch], np.int32),
        np.arange(first_seq, first_seq + len(batch)),
        np.ones(len(batch), np.int64),
        np.array([event.ts_ms for event in batch]),
        np.array([event.value for event in batch]),
        np.array(waits, np.int32),
        np.array(waits, np.int32),
        np.array([RECORD if event.checked else UNCHECKED for event in batch], np.int32),
    )


def as_noted(runs: Runs) -> Runs:
    """Return one entry for each sequence of equal decisions without a wait."""
    alike = np.ones(len(runs), np.bool_)
    for name in ("group_ref", "ts_ms", "value"):
        column = getattr(runs, name)
        alike[1:] &= column[1:] == column[:-1]
    passed = (runs.throttle_ms == 0) & (runs.kind == RECORD)
    alike[1:] &= passed[1:] & passed[:-1]
    alike[0] = False
    firsts = np.flatnonzero(~alike)
    return replace(runs.take(firsts), count=np.diff(firsts, append=len(runs)))


def bounds(changes: list[tuple[int, int, float]]) -> Bounds:
    return bounds_of([{"group_ref": ref, "from_seq": seq, "bound": bound} for ref, seq, bound in changes])
