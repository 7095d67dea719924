"""Sums of samples by interval and by file equal those of the reference loop, with and without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.metering.metering_rows import PROXY_ID, RUN_ID
from tests.support.metering.metering_scene import write_scene

Sums = dict[tuple[int, int], list[float]]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in three file sets that are cut in the middle of minutes."""
    return write_scene(tmp_path_factory.mktemp("scene"), 100, file_set_s=40)


def files(directory: Path) -> list[Path]:
    return sorted((directory / "samples").rglob("*.parquet"))


def added(rows: Iterator[dict[str, Any]], stretch_ms: int) -> Sums:
    """The reference loop."""
    sums: Sums = {}
    for row in rows:
        own = sums.setdefault((row["group_ref"], row["sample_start_ms"] // stretch_ms * stretch_ms), [0, 0, 0, 0, 0.0])
        for at, name in enumerate(("n", "sum", "throttled_n", "throttle_ms_sum")):
            own[at] += row[name]
        own[4] = max(own[4], row["max_observed"] / row["bound"])
    return sums


def test_files_add_up_to_what_the_loop_does(spark: Any, scene: Path) -> None:
    """Sums by second and by minute over all files equal the sums of the rows, also for an interval that two files share."""
    from pipeline.spark.validation.partial_sums import Source, sums_of

    sources = [Source(str(path), RUN_ID, PROXY_ID) for path in files(scene)]
    for stretch_ms in (1_000, 60_000):
        rows = sums_of(spark, sources, stretch_ms).collect()
        found = {(row["group_ref"], row["start_ms"]): [*row[4:]] for row in rows}
        assert {(row["run_id"], row["proxy_id"]) for row in rows} == {(RUN_ID, PROXY_ID)}
        assert found == added((row for path in files(scene) for row in pq.read_table(path, partitioning=None).to_pylist()), stretch_ms)
