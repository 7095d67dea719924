"""The tables agree with an independent statement of them, `bench/pipeline/duckdb_rollup.sql`, and parts of their computation with loops."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.pipeline.reference import build, differences
from pipeline.duckdb.rollup import roll_up
from pipeline.duckdb.throttle_windows import windows_of
from pipeline.rollup.content.columns import GROUPS_IN_SERIES
from pipeline.rollup.settings import RollupSettings
from pipeline.spark.rollup.floors import floor_of, longest_waits
from tests.pipeline.duckdb.test_engines_agree import of_workers, topics
from tests.pipeline.support.first_hour import two_hours

HOURS_LATER_MS = 10_000 * 3_600_000
"""Hours that are added up together may be far apart."""
Wait = tuple[int, int, bool, int, int]


@pytest.mark.parametrize("scene", [two_hours, of_workers, topics])
def test_plain_sql_makes_the_same_tables(tmp_path: Path, scene: Callable[[Path], Path]) -> None:
    """Each default table has the rows that plain SQL makes of the raw files."""
    source = scene(tmp_path / "in")
    roll_up(RollupSettings(str(source), tmp_path / "tables"))
    connection, _ = build(source, tmp_path / "reference")
    assert list(differences(connection, tmp_path / "tables")) == []


def test_plain_sql_notices_one_unit(tmp_path: Path) -> None:
    """A table with one more unit is named with the column."""
    source = two_hours(tmp_path / "in")
    roll_up(RollupSettings(str(source), tmp_path / "tables"))
    connection, _ = build(source, tmp_path / "reference")
    connection.execute("UPDATE decisions_day SET units = units + 1 WHERE id = 1")
    assert list(differences(connection, tmp_path / "tables")) == ["decisions_day: units"]


def test_throttle_windows_are_those_of_a_loop() -> None:
    """Waits of several hours and groups, which overlap, touch and leave gaps, form the windows that a loop over milliseconds finds."""
    dice = random.Random(7)
    begins_ms = (1_000, HOURS_LATER_MS)
    waits = []
    for _ in range(120):
        hour = dice.randrange(2)
        waits.append((hour, dice.randrange(3), dice.random() < 0.5, begins_ms[hour] + dice.randrange(-9, 200), 1 + dice.randrange(9)))
    names = ("hour_number", "gold_group_number", "applied", "at_ms", "wait_ms")
    table = pa.table({name: [wait[at] for wait in waits] for at, name in enumerate(names)})
    table = table.append_column("hour_ms", pa.array([begins_ms[wait[0]] for wait in waits]))
    assert sorted(map(tuple, (row.values() for row in windows_of(table).to_pylist()))) == sorted(windows_by_loop(waits))
    assert windows_of(table.slice(0, 0)).num_rows == 0


def windows_by_loop(waits: list[Wait]) -> list[tuple[Any, ...]]:
    found = []
    for key, its in itertools.groupby(sorted(waits), key=lambda wait: wait[:3]):
        own = [(at, at + wait) for *_, at, wait in its]
        covered = sorted({ms for begin, end in own for ms in range(begin, end + 1)})
        runs = itertools.groupby(enumerate(covered), key=lambda pair: pair[1] - pair[0])
        for members in ([ms for _, ms in run] for _, run in runs):
            inside = [(begin, end) for begin, end in own if members[0] <= begin <= members[-1]]
            for window in split_at_gaps(inside):
                highest = max(sum(begin <= ms < end for begin, end in window) for ms in members)
                begin, end = window[0][0], max(end for _, end in window)
                found.append((*key, begin, end, len(window), sum(end - begin for begin, end in window), highest))
    return found


def split_at_gaps(waits: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Divide waits between milliseconds: one that begins in the millisecond after the last end is another window."""
    windows: list[list[tuple[int, int]]] = []
    for wait in sorted(waits):
        if windows and wait[0] <= max(end for _, end in windows[-1]):
            windows[-1].append(wait)
        else:
            windows.append([wait])
    return windows


def test_no_group_of_the_series_is_left_out_by_a_floor() -> None:
    """The floor is at most the wait of the last group that belongs to the series, however the waits are divided among tasks."""
    dice = random.Random(3)
    for groups in (5, GROUPS_IN_SERIES, 100):
        tasks = [[(dice.randrange(groups), dice.randrange(1_000) ** 2) for _ in range(300)] for _ in range(4)]
        tables = [pa.table({"gold_group_number": [row[0] for row in rows], "throttle_ms_sum": [row[1] for row in rows]}) for rows in tasks]
        totals = [sum(wait for rows in tasks for its, wait in rows if its == group) for group in range(groups)]
        last = sorted(totals, reverse=True)[:GROUPS_IN_SERIES][-1]
        assert 0 <= floor_of(map(longest_waits, tables)) <= last
