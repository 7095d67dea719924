"""The replay of whole files compared with the reference loop over `quota`."""

import itertools
import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.replay.check import check_decisions, check_samples
from pipeline.replay.decisions import NO_CAP, Decisions, Sensor, decide
from pipeline.replay.findings import Findings
from pipeline.replay.rows import NOT_LISTED, OF_WAITS, Rows
from pipeline.replay.unpacking import unpack, unpack_in_parts
from tests.support.metering import metering_rows
from tests.support.metering.metering_rows import Event, rows_of, samples_table

GAPS_MS = st.sampled_from([0, 0, 0, 1, 7, 150, 999, 1_000, 1_001, 2_500, 9_999, 10_000, 10_999, 11_000, 11_001, 12_000, 40_000])


def replayed(events: list[Event], sensors: dict[int, metering_rows.Sensor], sensor: Sensor) -> tuple[Rows, Decisions, Findings]:
    rows = unpack(samples_table(rows_of(events, sensors)))
    findings = Findings()
    judged = np.ones(len(rows.n), np.bool_)
    check_samples(rows, sensor, judged, findings)
    decided = decide(rows, sensor)
    check_decisions(rows, decided, sensor, judged, findings)
    return rows, decided, findings


@st.composite
def traces(draw: st.DrawFn, values: st.SearchStrategy[int]) -> list[Event]:
    now = draw(st.integers(0, 10**12))
    events = []
    for gap, group, value, checked in draw(
        st.lists(st.tuples(GAPS_MS, st.integers(0, 3), values, st.sampled_from([True, True, True, False])), min_size=1, max_size=60)
    ):
        now += gap
        events.append(Event(group, now, value, checked and value >= 0))
    return events


@settings(deadline=None, max_examples=150)
@given(traces(st.integers(-5_000, 100_000)), st.sampled_from([0.0, 1.0, 2_500.0, 1e4, 1e15]))
def test_bytes_are_replayed_without_a_difference(events: list[Event], bound: float) -> None:
    """Every wait, rate and sum of bytes equals the sensor's to the last bit, with ties, gaps of a window and negative values."""
    sensors = {ref: metering_rows.Sensor(ref, bound * (1 + ref)) for ref in range(4)}
    rows, decided, findings = replayed(events, sensors, Sensor(11, 1_000, NO_CAP, is_request_time=False))
    assert findings.total == 0, findings.first
    assert decided.violated.tolist() == (rows.throttle_ms != NOT_LISTED).tolist()


@settings(deadline=None, max_examples=150)
@given(traces(st.integers(0, 3_000_000_000)), st.sampled_from([0.1, 1.0, 7.3, 100.0]), st.sampled_from([(11, 1_000), (2, 500), (61, 250)]))
def test_request_time_is_replayed_without_a_difference(events: list[Event], bound: float, window: tuple[int, int]) -> None:
    """Request time, summed as doubles, gives the sensor's waits, capped at one window, for any number and length of windows."""
    num_samples, window_ms = window
    made = {"num_samples": num_samples, "window_ms": window_ms, "cap_ms": window_ms}
    sensors = {ref: metering_rows.Sensor(ref, bound, request=True, **made) for ref in range(4)}
    *_, findings = replayed(events, sensors, Sensor(num_samples, window_ms, window_ms, is_request_time=True))
    assert findings.total == 0, findings.first


def test_a_bound_hit_to_the_last_digit_goes_through_the_fold_of_doubles() -> None:
    """Where the sum of doubles and the sum of integers differ at the bound, the replay decides by the sum of doubles."""
    nanoseconds = [100_000_000, 200_000_000, 300_000_000] * 20
    bound = sum(nanoseconds) / 1e9 * 100 / 10.9  # the last event is 5.9 s after the first
    events = [Event(0, 1_000_000 + 100 * at, value) for at, value in enumerate(nanoseconds)]
    sensors = {0: metering_rows.Sensor(0, bound, request=True, cap_ms=1_000)}
    _, decided, findings = replayed(events, sensors, Sensor(11, 1_000, 1_000, is_request_time=True))
    assert decided.replayed_exactly > 0
    assert findings.total == 0, findings.first


@pytest.mark.parametrize("column", ["dt_ms", "val"])
def test_rows_without_lists_are_refused(column: str) -> None:
    """Rows of level `sample` cannot be replayed, and the error names the missing column."""
    rows = rows_of([Event(0, 5, 1)], {0: metering_rows.Sensor(0, 1.0)})
    rows[0][column] = None
    with pytest.raises(ValueError, match=column):
        unpack(samples_table(rows))


@pytest.mark.parametrize(("at", "dt_ms", "is_within"), [(1, -1, False), (1, 0, True), (2, 999, True), (2, 1_000, False)])
def test_an_event_is_within_the_sample_of_its_row(at: int, dt_ms: int, is_within: bool) -> None:
    """An event before the start of its sample, or a window after it, is a divergence."""
    written = rows_of([Event(0, 5_000 + dt, 1) for dt in (0, 10, 20)], {0: metering_rows.Sensor(0, 1e6)})
    written[0]["dt_ms"][at] = dt_ms
    rows, findings = unpack(samples_table(written)), Findings()
    check_samples(rows, Sensor(11, 1_000, NO_CAP, is_request_time=False), np.ones(1, np.bool_), findings)
    assert ("time within the sample" not in {finding.what for finding in findings.first.values()}) == is_within


@settings(deadline=None, max_examples=60)
@given(traces(st.integers(-5_000, 100_000)), st.integers(1, 50))
def test_parts_are_the_whole_cut_between_groups(events: list[Event], at_once: int) -> None:
    """Rows and events that are read some groups at a time equal those of the whole table in order, and no group is in two parts."""
    table = samples_table(rows_of(events, {ref: metering_rows.Sensor(ref, 2_500.0) for ref in range(4)}))
    whole, parts = unpack(table), list(unpack_in_parts(table, None, at_once))
    names = [field.name for field in fields(Rows) if field.name not in ("declared", "waits", "waits_fit", "dt_ends_ms")]
    for name in (*names, "throttle_ms", "applied_ms"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        if name in ("row_of", "event_at"):  # offsets in these fields count from the beginning of their part
            lengths = [len(part.n) if name == "row_of" else part.events for part in parts]
            joined += np.repeat(np.cumsum([0, *lengths[:-1]]), [len(getattr(part, name)) for part in parts])
        assert joined.tolist() == getattr(whole, name).tolist(), name
    for name in OF_WAITS:
        assert np.concatenate([part.declared[name] for part in parts]).tolist() == whole.declared[name].tolist(), name
    assert whole.waits_fit() == all(part.waits_fit() for part in parts)
    shortest_ms, longest_ms = zip(*(part.dt_ends_ms for part in parts if part.dt_ends_ms is not None), strict=True)
    assert whole.dt_ends_ms == (min(shortest_ms), max(longest_ms))
    groups = [set(part.group_ref.tolist()) for part in parts]
    assert sum(len(its) for its in groups) == len(set().union(*groups))
    assert len(parts) >= min(len(set().union(*groups)), whole.events // (at_once + max(part.events for part in parts)))


def _listed_waits(row: dict[str, Any]) -> list[int]:
    waits = dict(zip(row["thr_pos"], row["thr_ms"], strict=True))
    return [waits.get(position, NOT_LISTED) for position in range(len(row["val"]))]


FLAT: dict[str, Callable[[dict[str, Any]], list[int]]] = {
    "first_seq": lambda row: [row["first_seq"]],
    "value": lambda row: row["val"],
    "ts_ms": lambda row: [row["sample_start_ms"] + dt_ms for dt_ms in row["dt_ms"]],
    "throttle_ms": _listed_waits,
}
"""The values that a table row gives in some columns of `Rows`."""


@settings(deadline=None, max_examples=100)
@given(traces(st.integers(0, 1_000)), st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 50), st.sets(st.integers(0, 3)))
def test_rows_are_put_in_order_wherever_they_stand(
    events: list[Event], dice: random.Random, chunks: int, at_once: int, groups: set[int]
) -> None:
    """Rows in any order and any number of chunks are returned by group and in order of decisions."""
    reported = rows_of(events, {ref: metering_rows.Sensor(ref, 2_500.0) for ref in range(4)})
    dice.shuffle(reported)
    cuts = sorted(dice.randrange(len(reported) + 1) for _ in range(chunks))
    table = pa.concat_tables([samples_table(reported[first:end]) for first, end in itertools.pairwise([0, *cuts, len(reported)])])
    reported.sort(key=lambda row: (row["group_ref"], row["first_seq"]))
    for wanted in (None, groups):
        mine = [row for row in reported if wanted is None or row["group_ref"] in wanted]
        refs = None if wanted is None else np.array(sorted(wanted), np.int64)
        for parts in ([unpack(table, refs)], list(unpack_in_parts(table, refs, at_once))):
            found = {name: [one for part in parts for one in getattr(part, name).tolist()] for name in FLAT}
            assert found == {name: [one for row in mine for one in flat(row)] for name, flat in FLAT.items()}


def test_groups_without_rows_have_no_parts() -> None:
    """Groups without sample rows, such as token buckets, give no parts."""
    table = samples_table(rows_of([Event(0, 5, 1)], {0: metering_rows.Sensor(0, 1.0)}))
    assert list(unpack_in_parts(table, np.array([7]), 10)) == []
    assert unpack(table.slice(0, 0)).events == 0


def test_parts_whose_waits_fit_are_told_from_others() -> None:
    """A wait that does not fit its list concerns the part with its row, although the waits of all parts are compared at once first."""
    events = [Event(ref, 5_000 + 10 * at, 9_000) for at in range(40) for ref in range(4)]
    written = rows_of(events, {ref: metering_rows.Sensor(ref, 2_500.0) for ref in range(4)})
    assert all(part.waits_fit() for part in unpack_in_parts(samples_table(written), None, 1))
    next(row for row in written if row["group_ref"] == 2 and row["thr_ms"])["throttle_ms_max"] += 1
    parts = list(unpack_in_parts(samples_table(written), None, 1))
    assert {int(part.group_ref[0]): part.waits_fit() for part in parts} == {ref: ref != 2 for ref in range(4)}
