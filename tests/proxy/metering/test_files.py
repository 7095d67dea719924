"""The layout of sample files, and how files reach the disk."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metering_format.tables import DIM_BOUND, SAMPLES
from proxy.base.files import put
from proxy.metering.files import ROWS_WITH_AN_END, SNAPPY, UNCOMPRESSED, write_parquet
from tests.support.metering.metering_writer_fixture import MeteringWriterFixture

LIVE_MS = 12_000


@pytest.mark.parametrize(("rows", "row_groups"), [(ROWS_WITH_AN_END, 2), (ROWS_WITH_AN_END - 1, 1)])
def test_samples_that_may_go_on_stand_in_a_row_group_of_their_own(tmp_path: Path, rows: int, row_groups: int) -> None:
    """In a large file the samples of the last seconds are in a row group of their own, in order."""
    last_ms = np.random.default_rng(3).integers(0, 300_000, rows)
    path = tmp_path / "samples.parquet"
    write_parquet(pa.table({"last_event_ms": last_ms, "first_seq": np.arange(rows)}), path, live_ms=LIVE_MS)
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups == row_groups
        end = file.read_row_group(row_groups - 1)
        whole = file.read()
    assert sorted(whole.column("first_seq").to_pylist()) == list(range(rows))
    if row_groups == 2:
        assert end.column("first_seq").to_pylist() == np.flatnonzero(last_ms > last_ms.max() - LIVE_MS).tolist()


@pytest.mark.parametrize(("schema", "uncompressed"), [(SAMPLES, UNCOMPRESSED), (DIM_BOUND, frozenset())])
def test_columns_of_samples_that_hardly_become_smaller_are_not_compressed(
    tmp_path: Path, schema: pa.Schema, uncompressed: frozenset[str]
) -> None:
    """The listed columns of samples are uncompressed, and all other columns and tables are compressed."""
    written = pa.Table.from_arrays([pa.repeat(_one(field.type), 2) for field in schema], schema=schema)
    write_parquet(written, tmp_path / "x.parquet")
    with pq.ParquetFile(tmp_path / "x.parquet") as file:
        group = file.metadata.row_group(0)
        codecs = {group.column(at).path_in_schema.split(".")[0]: group.column(at).compression for at in range(group.num_columns)}
        assert file.read().equals(written)
    others = {name: "SNAPPY" if name in SNAPPY else "ZSTD" for name in schema.names}
    assert codecs == others | dict.fromkeys(uncompressed, "UNCOMPRESSED")
    assert uncompressed <= set(schema.names)


def _one(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_list(kind):
        return pa.scalar(["x", "y"] if pa.types.is_string(kind.value_type) else [1, 2], kind)
    return pa.scalar("x" if pa.types.is_string(kind) else 1, kind)


def steps_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records every fsync and rename from now on, with file names."""
    steps: list[str] = []
    really, renamed = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        steps.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        really(descriptor)

    def rename(self: Path, target: Path) -> Path:
        steps.append(f"rename {self.name} {target.name}")
        return renamed(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    return steps


def test_a_file_lasts_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is synchronized before it is renamed, and its directory after."""
    steps = steps_of(monkeypatch)
    (tmp_path / ".tmp-x").write_text("x")
    put(tmp_path / "x", tmp_path / ".tmp-x")
    assert steps == ["fsync .tmp-x", "rename .tmp-x x", f"fsync {tmp_path.name}"]


def test_a_file_that_cannot_be_read_again_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Parquet file whose footer differs from what was written is removed."""
    table = SAMPLES.empty_table()
    monkeypatch.setattr("pyarrow.parquet.read_metadata", lambda _path: SimpleNamespace(num_rows=1))
    with pytest.raises(OSError, match="differs from what was written"):
        write_parquet(table, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_what_was_decided_is_on_the_disk_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both files of an open segment are synchronized about once a second, not with every batch."""
    steps = steps_of(monkeypatch)
    proxy = MeteringWriterFixture(tmp_path)
    proxy.writer.start()
    for number in range(20):
        proxy.play(10, number, every_ms=(10,))
        proxy.meter.flush()
        while proxy.writer.counts.waiting_bytes:
            pass
    for kind in (".arrows.open", ".facts.open"):
        assert 2 <= sum(step.startswith("fsync") and step.endswith(kind) for step in steps) <= 4, steps  # within two seconds
    assert proxy.writer.stop(60)
