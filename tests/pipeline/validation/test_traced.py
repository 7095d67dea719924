"""At level `trace` the row of each decision equals what the samples say, and every difference is found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metering_format.tables import EVENTS
from pipeline.file_set import FileSet
from pipeline.manifest import find_manifests
from pipeline.validation.file_set_verdict import judge_file_set
from pipeline.validation.local import validate
from tests.support.metering.metering_writer_fixture import MeteringWriterFixture

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file set of the proxy's writer, with un-recorded values."""
    proxy = MeteringWriterFixture(tmp_path_factory.mktemp("trace"), header={"level": "trace"})
    proxy.writer.start()
    proxy.play(2_000, 1)
    proxy.meter.flush()
    assert proxy.writer.stop(60)
    return proxy.directory


def found_in(trace: Path, change: Callable[[Rows], object]) -> dict[str, int]:
    """Return the findings, by kind, when rows of `events` are changed."""
    [manifest] = find_manifests(trace)
    path = trace / next(entry.path for entry in manifest.files if entry.table == "events")
    good = path.read_bytes()
    try:
        rows = pq.read_table(path, partitioning=None).to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=EVENTS), path)
        return {kind.value: number for kind, number in judge_file_set(FileSet(trace, manifest), []).findings.counts.items()}
    finally:
        path.write_bytes(good)


def test_a_trace_agrees_with_its_samples(trace: Path) -> None:
    """Every row that the writer makes equals what the samples give, un-records and waits included."""
    assert found_in(trace, lambda rows: rows.reverse()) == {}
    verdict = validate(trace)
    assert (verdict.kinds(), verdict.decisions) == ({}, 2_000)
    assert verdict.counts["Produce"]["throttled"] > 100


@pytest.mark.parametrize("at", [0, 997, 1_999])
@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("seq", "GAP"),
        ("ts_ms", "SEGMENT"),
        ("sample_start_ms", "SEGMENT"),
        ("value", "MATH"),
        ("window_sum", "MATH"),
        ("window_ms", "MATH"),
        ("throttle_ms", "MATH"),
        ("bound", "BOUND"),
        ("group_ref", "GAP"),
    ],
)
def test_a_row_that_says_otherwise_is_found(trace: Path, column: str, kind: str, at: int) -> None:
    """One unit more in any column of any row is found, whether a sample begins there, ends there or neither."""

    def one_more(rows: Rows) -> None:
        rows[at][column] += 1

    assert kind in found_in(trace, one_more)


def test_a_measured_rate_that_is_an_ulp_off_is_found(trace: Path) -> None:
    """A measured rate that differs in its last bit is found."""

    def an_ulp(rows: Rows) -> None:
        rows[50]["observed"] *= 1 + 2**-52

    assert found_in(trace, an_ulp) == {"MATH": 1}


def test_kinds_and_applied_waits_are_compared(trace: Path) -> None:
    """A wrong kind of record and a wrong applied wait are found."""

    def as_checked(rows: Rows) -> None:
        next(row for row in rows if row["value"] < 0)["kind"] = 0

    def shorter(rows: Rows) -> None:
        next(row for row in rows if row["throttle_ms"] > 0)["applied_ms"] -= 1

    assert [found_in(trace, change) for change in (as_checked, shorter)] == [{"MATH": 1}] * 2


def test_each_decision_has_one_row(trace: Path) -> None:
    """A missing row, a duplicate row and an empty table are found."""
    assert found_in(trace, lambda rows: rows.pop(40)) == {"GAP": 2}
    assert found_in(trace, lambda rows: rows.append(rows[40])) == {"GAP": 3}
    assert found_in(trace, lambda rows: rows.clear())["GAP"] >= 2_000
