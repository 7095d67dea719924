"""Files that changed after they were written and are still readable: the damage is not reported as a violation of the proxy."""

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from pipeline.errors import IncompleteError
from pipeline.manifest import file_sha256
from pipeline.spark.stream.stream import Stream
from pipeline.spark.validation.validate import validate_remote
from pipeline.stream.settings import StreamSettings
from pipeline.validation.local import validate
from sluice_cli.meter import meter
from tests.pipeline.validation.test_validation import batches, missed, sensors
from tests.support.metering.metering_directory import write_directory

ROT = 64
"""Bytes."""


def with_plain_files(directory: Path, **options: Any) -> Path:
    """Write the samples without compression and dictionaries, so that the offset of a value in its file is known."""
    for path in (directory / "manifests").rglob("*.json"):
        reported = json.loads(path.read_text())
        entry = next(entry for entry in reported["files"] if entry["table"] == "samples")
        file = directory / entry["path"]
        pq.write_table(pq.read_table(file, partitioning=None), file, compression="NONE", use_dictionary=False, **options)
        entry |= {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
        path.write_text(json.dumps(reported))
    return directory


def rot(directory: Path, file_set: int) -> Path:
    """Zero the last values of a file set's samples in place; return the file."""
    path = sorted((directory / "samples").rglob("*.parquet"))[file_set]
    data = path.read_bytes()
    values = [value for row in pq.read_table(path, partitioning=None).column("val").to_pylist() for value in row]
    at = data.index(struct.pack(f"<{ROT // 8}q", *values[-ROT // 8 :]))
    path.write_bytes(data[:at] + bytes(ROT) + data[at + ROT :])
    return path


def typed(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(meter, ["validate", "--in", str(directory), *options])


@pytest.mark.parametrize("options", [(), ("--format", "json")])
def test_a_damaged_file_is_not_the_proxys_doing(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A diverging file whose hash differs from its manifest is named in one line, with exit code 3, and no divergence is reported."""
    source = with_plain_files(write_directory(tmp_path / "run", batches(), sensors()))
    path = rot(source, 1)
    assert validate(source).violations > 0
    done = typed(source, *options)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (3, "", 1), done.output
    assert f"{path}: its SHA-256 is not the one in manifest" in done.stderr
    assert "the file is damaged" in done.stderr


def test_a_page_with_another_checksum_is_damage(tmp_path: Path) -> None:
    """Where pages have checksums, as in the proxy's own files, a changed byte is found when it is read, also by a column without a rule."""
    source = with_plain_files(write_directory(tmp_path / "run", batches(), sensors()), write_page_checksum=True)
    path = rot(source, 1)
    done = typed(source)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (3, "", 1), done.output
    assert f"{path}: the checksum of a page differs, so the file is damaged; restore it" in done.stderr


def test_a_damaged_file_elsewhere_does_not_excuse_a_proxy(tmp_path: Path) -> None:
    """A divergence in a run without damaged files is reported with exit code 1, although another run has a damaged file."""
    source = with_plain_files(write_directory(tmp_path / "run", batches(), sensors(), mutate=missed))
    done = typed(source)
    assert done.exit_code == 1
    assert "divergences" in done.stdout


def test_where_nothing_diverges_nothing_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a divergence files are hashed only if a verdict is written."""
    source = write_directory(tmp_path / "run", batches(file_sets=1), sensors())

    def hashed(path: Path) -> str:
        assert path.suffix == ".json", path
        return file_sha256(path)

    monkeypatch.setattr("pipeline.manifest.file_sha256", hashed)
    assert typed(source).exit_code == 0


def test_a_stream_blames_no_file_set_for_damage_before_it(spark: Any, tmp_path: Path) -> None:
    """A file set that diverges because an earlier, landed one was damaged meanwhile is not landed as a violation."""
    source = with_plain_files(write_directory(tmp_path / "run", batches(file_sets=2), sensors()))
    last = max((source / "manifests").rglob("*.json"))
    data = last.read_bytes()
    last.unlink()
    settings = StreamSettings(str(source), tmp_path / "checkpoint", tmp_path / "out", once=True)
    assert Stream(spark, settings).run().divergences == 0
    last.write_bytes(data)
    path = rot(source, 0)
    with pytest.raises(IncompleteError, match=rf"{path.name}: its SHA-256 is not the one in manifest .*the file is damaged"):
        Stream(spark, settings).run()


def test_damage_on_another_file_system_is_reported_alike(spark: Any, tmp_path: Path) -> None:
    """Spark tasks that read files through Spark also compare a diverging file with its manifest."""
    source = with_plain_files(write_directory(tmp_path / "run", batches(), sensors()))
    path = rot(source, 1)
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.rot.link./metering", tmp_path.as_uri())
    with pytest.raises(IncompleteError, match=rf"{path.name}: its SHA-256 is not the one in manifest .*the file is damaged"):
        validate_remote(spark, "viewfs://rot/metering/run")
