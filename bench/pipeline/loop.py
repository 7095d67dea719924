"""The reference loop for the replay of whole files: decisions one by one through `quota`, group by group on Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quota.groups.group import QuotaGroup
from quota.sensor import Rate
from quota.throttle import narrow_to_int32, throttle_time_ms

COLUMNS = ["group_ref", "first_seq", "sample_start_ms", "bound", "dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms"]
RESULT = "events long, differences long"
Wait = Callable[[int, float, int], int]
"""(value, bound, ts_ms) of a checked record: the wait in ms."""


def sensor_loop() -> tuple[Wait, Callable[[int, int], None]]:
    """Run Kafka's own steps with `quota.sensor`: record, measure, compare, compute the wait."""
    rate = Rate(11, 1_000)

    def wait(value: int, bound: float, ts_ms: int) -> int:
        rate.record(value, ts_ms)
        observed = rate.measure(ts_ms)
        return narrow_to_int32(throttle_time_ms(observed, bound, rate.window_size_ms(ts_ms))) if observed > bound else 0

    return wait, rate.record


def group_loop() -> tuple[Wait, Callable[[int, int], None]]:
    """Run the proxy's own data path, which leaves out measurements that cannot matter."""
    group = QuotaGroup({}, 0.0)

    def wait(value: int, bound: float, ts_ms: int) -> int:
        if bound != group.bound:
            group.update_bound(bound)
        return group.record(value, ts_ms)

    return wait, group.record_unchecked


def judge_group(make: Callable[[], tuple[Wait, Callable[[int, int], None]]], rows: Any) -> tuple[int, int]:
    """Return (decisions, differences) of one group's rows, all of one run."""
    wait, unchecked = make()
    events = differences = 0
    for start_ms, bound, times, values, skipped, at, waits in _in_order(rows):
        recorded = dict(zip(at.tolist(), waits.tolist(), strict=True))
        without = set(skipped.tolist())
        for position, (dt_ms, value) in enumerate(zip(times.tolist(), values.tolist(), strict=True)):
            events += 1
            if position in without:
                unchecked(value, start_ms + dt_ms)
            elif wait(value, bound, start_ms + dt_ms) != recorded.get(position, 0):
                differences += 1
    return events, differences


def _in_order(rows: Any) -> Iterator[tuple[Any, ...]]:
    rows = rows.sort_values("first_seq")
    columns = ("sample_start_ms", "bound", "dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms")
    return zip(*(rows[name] for name in columns), strict=True)


def judge_on_spark(spark: Any, directory: Path, make: Callable[[], tuple[Wait, Callable[[int, int], None]]]) -> tuple[int, int]:
    """Return (decisions, differences) of a directory with byte quotas: a shuffle by group, then the loop in `applyInPandas`."""
    import pandas as pd

    def judge(rows: Any) -> Any:
        events, differences = judge_group(make, rows)
        return pd.DataFrame({"events": [events], "differences": [differences]})

    samples = spark.read.parquet(str(directory / "samples")).select(*COLUMNS)
    judged = samples.groupBy("group_ref").applyInPandas(judge, RESULT)
    row = judged.groupBy().sum("events", "differences").collect()[0]
    return int(row[0]), int(row[1])
