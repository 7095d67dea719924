"""A column with the same bytes as another one is decoded once, and the table that is read equals the one that was written."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.duplicate_columns import read_groups

COLUMNS = ["n", "throttle_ms_sum", "applied_ms_sum", "thr_ms", "applied_ms"]
WAITS = [[5], [], [7, 8], [9], [], [1, 2, 3]]


def table(applied: list[list[int]]) -> pa.Table:
    """Six rows with decided and applied waits."""
    lists = pa.list_(pa.field("element", pa.int32(), nullable=False))
    columns = {
        "n": pa.array(range(6), pa.int32()),
        "throttle_ms_sum": pa.array([sum(its) for its in WAITS], pa.int64()),
        "applied_ms_sum": pa.array([sum(its) for its in applied], pa.int64()),
        "thr_ms": pa.array(WAITS, lists),
        "applied_ms": pa.array(applied, lists),
    }
    return pa.table(columns)


def differing(at: int) -> list[list[int]]:
    return [[one + 1 for one in its] if row == at else its for row, its in enumerate(WAITS)]


@pytest.mark.parametrize(
    ("applied", "groups", "unpacked"),
    [
        (WAITS, [0, 1, 2], ["n", "throttle_ms_sum", "thr_ms"]),
        (WAITS, [2, 0], ["n", "throttle_ms_sum", "thr_ms"]),
        (WAITS, [], ["n", "throttle_ms_sum", "thr_ms"]),
        (differing(0), [0, 1, 2], COLUMNS),
        (differing(5), [0, 1, 2], COLUMNS),
        (differing(5), [0, 1], ["n", "throttle_ms_sum", "thr_ms"]),
        ([[5], [], [8, 7], [9], [], [1, 2, 3]], [0, 1, 2], ["n", "throttle_ms_sum", "thr_ms", "applied_ms"]),
    ],
)
def test_duplicate_columns_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: list[list[int]], groups: list[int], unpacked: list[str]
) -> None:
    """Only the requested row groups decide which columns are duplicates, and columns with equal sums but different bytes are both
    decoded.
    """
    path = tmp_path / "samples.parquet"
    pq.write_table(table(applied), path, row_group_size=2, compression="zstd")
    asked: list[list[str]] = []
    real = pq.ParquetFile.read_row_groups
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_groups", lambda file, of, names, **more: asked.append(names) or real(file, of, names, **more)
    )
    found = read(path, groups, COLUMNS)
    assert asked == [unpacked]
    expected = pa.concat_tables([table(applied).slice(0, 0), *(table(applied).slice(2 * group, 2) for group in groups)])
    assert found.select(COLUMNS).equals(expected)


@pytest.mark.parametrize(
    "written",
    [
        {"compression": {"thr_ms.list.element": "zstd", "applied_ms.list.element": "snappy"}},
        {"use_dictionary": ["thr_ms"]},
        {"use_dictionary": False, "column_encoding": {"applied_ms.list.element": "DELTA_BINARY_PACKED"}},
        {"data_page_size": 8, "write_batch_size": 1},
    ],
)
def test_what_is_written_otherwise_is_read_as_it_is(tmp_path: Path, written: dict[str, Any]) -> None:
    """With other codecs, encodings and page sizes the table that is read equals the one that was written."""
    path = tmp_path / "samples.parquet"
    pq.write_table(table(WAITS), path, **written)
    assert read(path, [0], COLUMNS).select(COLUMNS).equals(table(WAITS))


def test_columns_of_other_types_are_no_duplicates(tmp_path: Path) -> None:
    """Columns of different types are not duplicates, even with equal bytes."""
    whole = table(WAITS)
    whole = whole.set_column(2, "applied_ms_sum", whole.column("throttle_ms_sum").cast(pa.timestamp("ms")))
    path = tmp_path / "samples.parquet"
    pq.write_table(whole, path)
    assert read(path, [0], COLUMNS).select(COLUMNS).equals(whole)


def test_every_column_is_read_where_none_is_named(tmp_path: Path) -> None:
    """When no columns are named, every column is read."""
    path = tmp_path / "samples.parquet"
    pq.write_table(table(WAITS), path)
    assert read(path, [0], None).equals(table(WAITS))


def read(path: Path, groups: list[int], columns: list[str] | None) -> pa.Table:
    with pa.memory_map(str(path)) as source, pq.ParquetFile(source) as file:
        return read_groups(file, source, groups, columns)
