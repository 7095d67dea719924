"""Packing whole arrays of raw decisions against the plain loop over `quota`."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.metering.packing import STATE, Decisions, Sensors, pack
from proxy.metering.record import UNCHECKED
from tests.support.metering_rows import PROXY_ID, RUN_ID, Event, Sensor, samples_table

GAPS_MS = st.sampled_from([0, 0, 0, 1, 7, 150, 999, 1_000, 1_001, 2_500, 9_999, 10_000, 10_999, 11_000, 11_001, 12_000, 40_000])
GROUPS = 3


@st.composite
def traces(draw: st.DrawFn) -> list[list[Event]]:
    now = draw(st.integers(10**9, 10**12))
    batches = []
    for size in draw(st.lists(st.integers(1, 25), min_size=1, max_size=4)):
        batch = []
        for gap, group, value, checked in draw(
            st.lists(
                st.tuples(GAPS_MS, st.integers(0, GROUPS - 1), st.integers(-2_000, 90_000), st.booleans()), min_size=size, max_size=size
            )
        ):
            now += gap
            batch.append(Event(group, now, value, checked and value >= 0))
        batches.append(batch)
    return batches


@settings(deadline=None, max_examples=150)
@given(traces(), st.sampled_from([(11, 1_000), (2, 300)]))
def test_packed_rows_are_those_of_the_loop(batches: list[list[Event]], window: tuple[int, int]) -> None:
    """Cut into file sets anywhere, packed rows equal those of the loop that keeps every sample, column by column."""
    num_samples, window_ms = window
    loop = {ref: Sensor(ref, 3_000.0, request=ref == 2, num_samples=num_samples, window_ms=window_ms) for ref in range(GROUPS)}
    sensors = Sensors(np.full(GROUPS, num_samples), np.full(GROUPS, window_ms), np.arange(GROUPS) == 2)
    state, seq = STATE.empty_table(), 0
    for batch in batches:
        for sensor in loop.values():
            sensor.row, sensor.rows = None, []
        waits = [loop[event.group].take(event, at) for at, event in enumerate(batch, seq)]
        raw = raw_of(batch, waits, seq, loop)
        seq += len(batch)
        packed = pack(raw, sensors, state, (RUN_ID, PROXY_ID), lists=True)
        state = packed.state
        made = samples_table([row.as_dict() for sensor in loop.values() for row in sensor.rows])
        expected = made.sort_by([("group_ref", "ascending"), ("first_seq", "ascending")])
        assert packed.samples.to_pylist() == expected.to_pylist()


def raw_of(batch: list[Event], waits: list[int], first_seq: int, sensors: dict[int, Sensor]) -> Decisions:
    return Decisions(
        np.array([event.group for event in batch]),
        np.arange(first_seq, first_seq + len(batch)),
        np.array([event.ts_ms for event in batch]),
        np.array([event.value for event in batch]),
        np.array([sensors[event.group].group.bound for event in batch]),
        np.array(waits),
        np.array(waits),
        np.array([0 if event.checked else UNCHECKED for event in batch]),
    )
