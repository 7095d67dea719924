"""The validator against the reference loop on many decisions, and hundreds of corrupted values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.metering.trace import Shape, decide, totals, write
from metering_format.tables import SAMPLES
from pipeline.file_set import runs_of
from pipeline.manifest import find_manifests
from pipeline.validation.file_set_verdict import judge_file_set
from pipeline.validation.local import validate

Rows = list[dict[str, Any]]
SMALL = {"events": 30_000, "groups": 60, "seconds": 120, "file_set_seconds": 40}


@pytest.mark.parametrize(
    "shape",
    [
        Shape(**SMALL, quota_type="Produce", lazy=False),
        Shape(**SMALL, quota_type="Fetch", unrecord_share=0.05, lazy=False),
        Shape(**SMALL, quota_type="Request", lazy=False),
        Shape(**SMALL, quota_type="Connection", unrecord_share=0.02, lazy=False),
        Shape(**SMALL, quota_type="ControllerMutation", unrecord_share=0.02),
        Shape(**SMALL, quota_type="ControllerMutation", num_samples=3, window_ms=250),
        Shape(**SMALL, num_samples=2, window_ms=250, lazy=False),
        Shape(**SMALL, num_samples=7, window_ms=2_000, quota_type="Request", lazy=False),
        Shape(**SMALL, num_samples=61, window_ms=500, lazy=True),
    ],
    ids=lambda shape: f"{shape.quota_type}-{shape.num_samples}x{shape.window_ms}",
)
def test_the_loop_and_the_validator_agree(tmp_path: Path, shape: Shape) -> None:
    """For any window settings, the validator confirms every decision that `quota` made and the proxy's writer packed."""
    write(tmp_path, shape, decide(shape))
    verdict = validate(tmp_path)
    assert (verdict.violations, verdict.decisions, verdict.unjudged, verdict.incomplete) == (0, shape.events, 0, [])
    assert totals(tmp_path)["throttled"] > 100


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 60,000 decisions in three file sets."""
    shape = Shape(60_000, groups=200, seconds=120, file_set_seconds=40)
    return write(tmp_path_factory.mktemp("trace"), shape, decide(shape))


def corrupted(trace: Path, change: Callable[[Rows], int]) -> tuple[int, dict[str, int]]:
    """Change values in the second file set; return how many were changed, and the findings of its verdict by kind."""
    file_sets = next(iter(runs_of(trace, find_manifests(trace)).values()))
    entry = next(entry for entry in file_sets[1].manifest.files if entry.table == "samples")
    path = trace / entry.path
    good = path.read_bytes()
    try:
        rows = pq.read_table(path, partitioning=None).to_pylist()
        changed = change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=SAMPLES), path)
        found = judge_file_set(file_sets[1], file_sets[:1]).findings
    finally:
        path.write_bytes(good)
    return changed, {kind.value: number for kind, number in found.counts.items()}


def _waits(rows: Rows, number: int) -> list[dict[str, Any]]:
    """Return rows whose first listed wait is above 0, each once."""
    return [row for row in rows if row["thr_ms"] and row["thr_ms"][0] > 0][:number]


def none(_rows: Rows) -> int:
    return 0


def a_millisecond_more(rows: Rows) -> int:
    for row in _waits(rows, 100):
        row["thr_ms"][0] += 1
        row["applied_ms"][0] += 1
        row["throttle_ms_sum"] += 1
        row["applied_ms_sum"] += 1
        row["throttle_ms_max"] = max(row["thr_ms"])
    return 100


def waits_of_nothing(rows: Rows) -> int:
    for row in _waits(rows, 100):
        row["throttle_ms_sum"] -= row["thr_ms"][0]
        row["applied_ms_sum"] -= row["applied_ms"][0]
        row["thr_ms"][0] = row["applied_ms"][0] = 0
        row["throttled_n"] -= 1
        row["throttle_ms_max"] = max(row["thr_ms"])
    return 100


def one_ulp_more(rows: Rows) -> int:
    for row in rows[:100]:
        row["max_observed"] = row["max_observed"] * (1 + 2**-52)
    return 100


def a_wrong_start(rows: Rows) -> int:
    row = next(row for row in rows[200:] if row["n"] > 3)
    row["sample_start_ms"] -= 1
    row["dt_ms"] = [dt_ms + 1 for dt_ms in row["dt_ms"]]
    return 1


def a_lost_record(rows: Rows) -> int:
    row = next(row for row in rows[200:] if row["n"] > 3 and not row["thr_pos"] and not row["unchecked_pos"])
    row["sum"] -= row["val"].pop(1)
    row["dt_ms"].pop(1)
    row["n"] -= 1
    return 1


def a_byte_more(rows: Rows) -> int:
    for row in rows[300:400]:
        row["val"][0] += 1
        row["sum"] += 1
    return 100


@pytest.mark.parametrize(
    ("change", "kind", "least", "most"),
    [
        (none, None, 0, 0),
        (a_millisecond_more, "MATH", 100, 100),
        (waits_of_nothing, "MISSED", 100, 100),
        (one_ulp_more, "MATH", 100, 100),
        (a_wrong_start, "SEGMENT", 1, 2),
        (a_lost_record, "GAP", 1, 2),
        (a_byte_more, "MATH", 100, 20_000),
    ],
)
def test_corruption_by_the_hundred_is_counted(trace: Path, change: Callable[[Rows], int], kind: str | None, least: int, most: int) -> None:
    """Every kind of corruption is found and counted under its kind, and unchanged rows give no finding."""
    changed, found = corrupted(trace, change)
    assert least <= (found.get(kind, 0) if kind else sum(found.values())) <= most, found
    assert changed <= sum(found.values())


def test_a_cold_start_would_be_no_proof(trace: Path) -> None:
    """A file set in the middle of a run has no finding after the file set before it; without that one most decisions are wrong or
    unjudged.
    """
    file_sets = next(iter(runs_of(trace, find_manifests(trace)).values()))
    assert judge_file_set(file_sets[1], file_sets[:1]).findings.total == 0
    cold = judge_file_set(file_sets[1], [])
    assert cold.findings.total + cold.unjudged > 1_000
