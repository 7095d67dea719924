"""The listed waits of rows, read in file order, compared with the waits that the events give."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.replay.check import check_decisions, check_samples
from pipeline.replay.decisions import NO_CAP, Sensor, decide
from pipeline.replay.findings import Findings
from pipeline.replay.rows import OF_WAITS, Rows
from pipeline.replay.unpacking import unpack
from tests.support.metering import metering_rows
from tests.support.metering.metering_rows import Event, rows_of, samples_table

SENSOR: Final = Sensor(11, 1_000, NO_CAP, is_request_time=False)
LISTS: Final = ("thr_pos", "thr_ms", "applied_ms")
Row = dict[str, Any]
Tamper = Callable[[Row], object]


def figure(name: str, by: int) -> Tamper:
    return lambda row: row.__setitem__(name, row[name] + by)


def entry(name: str, by: int) -> Tamper:
    return lambda row: row[name] and row[name].__setitem__(-1, row[name][-1] + by)


def nothing(_: Row) -> None: ...


def excused(row: Row) -> None:
    row["applied_ms"] = [-1, *row["applied_ms"][1:]] if row["applied_ms"] else []


def dropped(row: Row) -> None:
    for name in LISTS:
        row[name] = row[name][:-1]


def twice(row: Row) -> None:
    for name in LISTS:
        row[name] = row[name] + row[name][-1:]


def twice_and_counted(row: Row) -> None:
    """List the last wait twice, at the same event, and adapt the sums."""
    if row["thr_ms"]:
        row["violated_n"] += 1
        row["throttled_n"] += row["thr_ms"][-1] > 0
        row["throttle_ms_sum"] += row["thr_ms"][-1]
        row["applied_ms_sum"] += row["applied_ms"][-1]
    twice(row)


TAMPERS: Final[list[Tamper]] = [
    nothing,
    *(figure(name, by) for name in OF_WAITS for by in (-1, 1)),
    *(entry(name, by) for name in LISTS for by in (-1, 1, 100)),
    dropped,
    twice,
    twice_and_counted,
    excused,
]


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Rows of three groups, some of whose waits round to 0 ms."""
    now, events = 10**12, []
    step = st.tuples(st.sampled_from([0, 1, 150, 400, 1_000, 12_000]), st.integers(0, 2), st.sampled_from([900, 1_000, 1_001, 30_000]))
    for gap, group, value in draw(st.lists(step, min_size=1, max_size=50)):
        now += gap
        events.append(Event(group, now, value))
    return rows_of(events, {ref: metering_rows.Sensor(ref, (99.99, 1_000.0, 2_500.0)[ref]) for ref in range(3)})


@settings(deadline=None, max_examples=400)
@given(tables(), st.sampled_from(TAMPERS), st.data())
def test_the_short_way_finds_what_the_long_one_finds(rows: list[Row], tamper: Tamper, data: st.DataObject) -> None:
    """For any changed value or entry of a row, the fast check and the full one have the same findings."""
    at = data.draw(st.integers(0, len(rows) - 1))
    tamper(rows[at])
    unpacked = unpack(samples_table(rows))
    reported = found(unpacked)
    assert reported == found(replace(unpacked, waits_fit=lambda: False))
    assert reported or tamper is nothing or not rows[at]["thr_ms"] or -1 in rows[at]["applied_ms"]


@settings(deadline=None, max_examples=100)
@given(tables())
def test_rows_whose_waits_fit_are_not_sorted(rows: list[Row]) -> None:
    """Rows whose waits fit their lists are checked without sorting, also with waits of 0 ms."""
    unpacked = unpack(samples_table(rows))
    assert unpacked.waits_fit()
    assert not found(unpacked)
    assert not unpacked.declared


def found(rows: Rows) -> list[str]:
    findings = Findings()
    judged = np.ones(len(rows.n), np.bool_)
    check_samples(rows, SENSOR, judged, findings)
    check_decisions(rows, decide(rows, SENSOR), SENSOR, judged, findings)
    return [f"{one}" for one in sorted(findings.first.items(), key=str)] + [str(findings.total)] * bool(findings.total)
