"""Fifteen minutes of history: points, gaps, the groups that are kept, and their memory."""

import gc
import math
import tracemalloc
from collections.abc import Iterable

import msgspec

from proxy.observe.live.history import GROUPS_MAX, LOOKED_AT_MAX, POINT_MS, POINTS, History
from proxy.observe.live.limits import HISTORY_BYTES_MAX
from proxy.observe.rows.live_rows import LiveRow

START_MS = 1_000_000
ROW = LiveRow("1", 0, (("client-id", "etl"), ("user", "")), {}, "client-id=etl", "client-id=etl", 100.0, 50.0, True, 0, 1, 0, 0, 0)


def row(client_id: str, **changed: object) -> LiveRow:
    return msgspec.structs.replace(ROW, order=(("client-id", client_id), ("user", "")), **changed)


def recorded(history: History, rows: Iterable[LiveRow], at: int) -> None:
    history.record(rows, START_MS + at * POINT_MS)


def test_points_of_a_group() -> None:
    """A point has rate, bound, and the throttle time since the point before; the oldest points make room."""
    history = History()
    for at in range(POINTS + 3):
        recorded(history, [row("etl", observed=float(at), throttle_ms_total=at * 7)], at)
    points = history.points(row("etl").place, POINTS)
    assert [point.rate for point in points] == [float(at) for at in range(3, POINTS + 3)]
    assert {(point.bound, point.waited_ms) for point in points} == {(100.0, 7.0)}
    assert [point.rate for point in history.points(row("etl").place, 2)] == [float(POINTS + 1), float(POINTS + 2)]


def test_a_gap_has_no_values() -> None:
    """Points that were missed have no values, and no point is due before its time."""
    history = History()
    recorded(history, [row("etl")], 0)
    assert not history.is_due(START_MS + POINT_MS - 1)
    assert history.is_due(START_MS + POINT_MS)
    recorded(history, [row("etl")], 3)
    assert [math.isnan(point.rate) for point in history.points(row("etl").place, POINTS)] == [False, True, True, False]
    recorded(history, [row("etl")], 3 + 10 * POINTS)
    assert len(history.points(row("etl").place, POINTS)) == 1


def test_a_group_that_never_waited_begins_when_it_is_looked_at() -> None:
    """A group without a throttle has points from the time on at which it was looked at."""
    history, quiet = History(), row("quiet", throttled_until_ms=0)
    recorded(history, [quiet], 0)
    assert history.points(quiet.place, POINTS) == []
    history.look_at(quiet.place, START_MS + POINT_MS)
    recorded(history, [quiet], 1)
    assert [point.rate for point in history.points(quiet.place, POINTS)] == [50.0]


def test_looking_displaces_no_group_that_waits() -> None:
    """However many groups somebody looks at, those that waited keep their history; of the others the ones looked at last have one."""
    history, waited = History(), [row(f"w{number}") for number in range(GROUPS_MAX - LOOKED_AT_MAX)]
    recorded(history, waited, 0)
    quiet = [row(f"q{number}", throttled_until_ms=0) for number in range(3 * LOOKED_AT_MAX)]
    for at, one in enumerate([*quiet, *waited[:3]]):
        history.look_at(one.place, START_MS + at)
    recorded(history, [*waited, *quiet], 1)
    assert len(history) == GROUPS_MAX - 3
    assert all(history.points(one.place, 1) for one in waited)
    assert [bool(history.points(one.place, 1)) for one in quiet[-LOOKED_AT_MAX + 2 : -LOOKED_AT_MAX + 4]] == [False, True]


def test_the_throttle_time_of_a_minute() -> None:
    """The throttle time of the last minute ends with the minute, and a group without any has no entry."""
    history = History()
    for at, total in enumerate([0, 500, 700, *[700] * 10]):
        recorded(history, [row("etl", throttle_ms_total=total), row("calm")], at)
    assert history.waited_ms_a_minute() == {row("etl").place: 700.0}
    recorded(history, [row("etl", throttle_ms_total=700)], 13)
    assert history.waited_ms_a_minute() == {row("etl").place: 200.0}


def test_the_groups_that_waited_last_are_kept() -> None:
    """Beyond 1,000 groups those that waited before all others have no history any more."""
    history = History()
    rows = [row(f"c{number}", throttled_until_ms=number + 1) for number in range(GROUPS_MAX + 5)]
    recorded(history, rows, 0)
    assert len(history) == GROUPS_MAX
    assert [bool(history.points(one.place, 1)) for one in rows[3:7]] == [False, False, True, True]


def test_memory_of_the_history() -> None:
    """1,000 groups with long names and 15 minutes take less than 4 MiB."""
    names = [f"{number:0200d}" for number in range(GROUPS_MAX)]
    gc.collect()
    tracemalloc.start()
    history = History()
    for at in range(3):
        recorded(history, (row(str(name)) for name in names), at)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(history) == GROUPS_MAX
    assert used < HISTORY_BYTES_MAX
