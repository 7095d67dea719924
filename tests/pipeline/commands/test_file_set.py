"""Values that a Parquet footer gives for a column are those of the rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.file_set import FileSet
from pipeline.manifest import find_manifests
from tests.support.metering.metering_scene import Client, write_scene

CAST = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45, 2)]
COLUMNS = ["quota_type", "num_samples", "cap_ms"]


@pytest.mark.parametrize(
    ("quota_types", "num_samples", "cap_ms", "reported"),
    [
        (["Produce"] * 4, [11] * 4, [None] * 4, {"quota_type": "Produce", "num_samples": 11, "cap_ms": None}),
        (["Produce"] * 4, [11] * 4, [1_000] * 4, {"quota_type": "Produce", "num_samples": 11, "cap_ms": 1_000}),
        (["Produce"] * 3 + ["Fetch"], [11] * 4, [None] * 4, None),
        (["Produce"] * 4, [11, 11, 12, 12], [None] * 4, None),
        (["Produce"] * 4, [11] * 4, [1_000, 1_000, 1_000, None], None),
        (["Produce"] * 4, [11] * 4, [None, None, 1_000, 1_000], None),
        ([], [], [], None),
    ],
)
def test_columns_that_say_the_same_in_all_rows_are_reported_without_reading_them(
    tmp_path: Path, quota_types: list[str], num_samples: list[int], cap_ms: list[int | None], reported: dict[str, Any] | None
) -> None:
    """A column with one value in all row groups is reported from the footer; one with two values, with nulls, or without rows is not."""
    file_set = described(tmp_path, quota_types, num_samples, cap_ms)
    assert file_set.read_alike("dim_group", COLUMNS) == reported


def test_a_column_without_figures_in_the_footer_is_not_reported(tmp_path: Path) -> None:
    """A column whose footer has no statistics is not reported."""
    assert described(tmp_path, ["Produce"], [11], [None], figures=False).read_alike("dim_group", COLUMNS) is None


def described(
    directory: Path, quota_types: list[str], num_samples: list[int], cap_ms: list[int | None], *, figures: bool = True
) -> FileSet:
    """Return a file set whose `dim_group` has these values, two rows per row group."""
    (manifest,) = find_manifests(write_scene(directory, 1, clients=CAST))
    (entry,) = (entry for entry in manifest.files if entry.table == "dim_group")
    path = directory / entry.path
    row = pq.read_table(path, partitioning=None).slice(0, 1)
    table = pa.concat_tables([row] * len(quota_types)) if quota_types else row.slice(0, 0)
    for name, values in (("quota_type", quota_types), ("num_samples", num_samples), ("cap_ms", cap_ms)):
        field = table.schema.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
    pq.write_table(table, path, row_group_size=2, write_statistics=figures)
    return FileSet(directory, manifest)
