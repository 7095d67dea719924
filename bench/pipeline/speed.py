"""The speed of the validator, as ratios between arms of one run. The part `tables` times the roll-up."""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from bench.metering.trace import Shape
from bench.pipeline.proof import make_all
from bench.pipeline.turns import Arm, Turns, processes

MANY: Final = 0.4  # of the decisions: the share of traces with other numbers of groups
SMALL_SETS: Final = 0.02  # the share of the trace with many small file sets, of two seconds each
UNSEEN: Final = 4
LONG: Final = 3
"""Multiple of the decisions in the trace for one core and two, with as many hours; the start of a job, some 40 ms, is a small part."""

IN_A_ROW: Final = 3
"""How often the arm of one core runs before that of two, and the other way round; each is a process of its own."""

ZIPF, HOTTEST, PLAIN = Arm("file-parallel", "zipf-1.1"), Arm("file-parallel", "zipf-2.0"), Arm("no-spark", "zipf-1.1")
CORES: Final = (Arm("in-a-row", "long"), Arm("in-a-row", "long", 2))
ALONE, AT_ONCE = Arm("twice", "zipf-1.1", 2), Arm("twice-at-once", "zipf-1.1", 2)
FEW_GROUPS, MANY_GROUPS = Arm("file-parallel", "groups-1000"), Arm("file-parallel", "groups-95000")
SENSOR_LOOP, LAZY_LOOP = Arm("sensor-loop", "groups-1000"), Arm("group-loop", "groups-1000")
EVERY_COLUMN = Arm("every-column", "zipf-1.1")
SMALL, OPENED, EACH_ALONE = Arm("no-spark", "small"), Arm("each-file-opened", "small"), Arm("each-alone", "small")
RATIOS: Final = (
    ("file-parallel against the loop over `quota.sensor`, one core: >= 11, goal 15", SENSOR_LOOP, FEW_GROUPS),
    ("file-parallel against the proxy's own lazy path in a loop, one core: >= 11, goal 15", LAZY_LOOP, FEW_GROUPS),
    ("Spark against the same numpy without it, one core", ZIPF, PLAIN),
    ("hottest group 61 % against 18 %, time: <= 1.1", HOTTEST, ZIPF),
    ("95,000 groups against 1,000, throughput: >= 0.7", FEW_GROUPS, MANY_GROUPS),
    ("two cores against one: >= 1.8", *CORES),
    ("two processes that share nothing, at once against one after the other: what the machine gives", ALONE, AT_ONCE),
    ("gain of columns that equal another one and are not decoded: > 1", EVERY_COLUMN, PLAIN),
    ("gain of small files that are opened once: > 1", OPENED, SMALL),
    ("gain of small file sets that are judged together: > 1", EACH_ALONE, SMALL),
)


def shapes(events: int) -> dict[str, Shape]:
    """Return the traces by name."""
    return {
        "zipf-1.1": Shape(events),
        "zipf-2.0": Shape(events, zipf=2.0),
        "long": Shape(events * LONG, seconds=LONG * 3_600),
        "groups-1000": Shape(round(events * MANY), seconds=1_440),
        "groups-95000": Shape(round(events * MANY), groups=95_000, seconds=1_440),
        "small": Shape(round(events * SMALL_SETS), file_set_seconds=2),
    }


def measured(folder: Path, events: int, runs: int) -> tuple[Turns, list[str]]:
    """Run all arms.

    Args:
        folder: of the traces; missing ones are made.
        events: decisions of a trace; some traces have more or fewer.
        runs: turns of each short arm; of arms that run in a row twice as many runs are counted.
    """
    make_all(folder, shapes(events))
    cores = [1, 2][: len(os.sched_getaffinity(0))]
    with processes(folder, cores) as turns:
        turns.take([HOTTEST, ZIPF, PLAIN, EVERY_COLUMN, FEW_GROUPS, MANY_GROUPS], runs, unseen=UNSEEN)
        turns.take([arm for arm in CORES if arm.cores in cores], runs // 2, unseen=1, in_a_row=IN_A_ROW)
        turns.take([arm for arm in (ALONE, AT_ONCE) if arm.cores in cores], runs // 2, unseen=1)
        turns.take([SMALL, OPENED, EACH_ALONE], max(1, runs // 4), unseen=1)
        turns.take([SENSOR_LOOP, LAZY_LOOP], 1, unseen=0)
    _agree(turns, events)
    return turns, list(_lines(turns, events / 1e6))


def _share(name: str) -> float:
    """Return the share of the requested decisions that a directory holds."""
    return {"groups-1000": MANY, "groups-95000": MANY, "small": SMALL_SETS, "long": LONG}.get(name, 1.0)


def _agree(turns: Turns, events: int) -> None:
    """Check that all arms have the same results, since otherwise their times mean nothing."""
    for arm in turns.found:
        assert turns.outcome(arm) == [round(events * _share(arm.name)), 0], (arm, turns.outcome(arm))


def _lines(turns: Turns, millions: float) -> Iterator[str]:
    yield "Arms take turns. Times are wall clock, on cores that others may use; CPU, a median, is of the process and all that it started."
    yield ""
    yield "| what | cores | best s | median s | CPU s | million decisions/s |"
    yield "|---|---|---|---|---|---|"
    for arm in turns.found:
        times = turns.times(arm)
        judged = millions * _share(arm.name) * (2 if arm in (ALONE, AT_ONCE) else 1)
        cpu, speed = median(turns.times(arm, "cpu_seconds")), judged / median(times)
        yield f"| {arm.what}, {arm.name} | {arm.cores} | {min(times):.2f} | {median(times):.2f} | {cpu:.2f} | {speed:.2f} |"
    yield ""
    yield "| goal | best times | median of the turns | CPU, median of the turns |"
    yield "|---|---|---|---|"
    for what, above, below in RATIOS:
        if {above, below} <= set(turns.found):
            best, median_of_all, cpu = (
                turns.best_ratio(above, below),
                turns.median_ratio(above, below),
                turns.median_ratio(above, below, "cpu_seconds"),
            )
            yield f"| {what} | {best:.2f} | {median_of_all:.2f} | {cpu:.2f} |"
