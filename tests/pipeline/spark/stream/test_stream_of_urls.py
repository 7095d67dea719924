"""`stream` with source, checkpoint and output on another file system of Hadoop."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import find_manifests
from pipeline.spark.hadoop_files import files_of, hadoop_path, hadoop_url
from pipeline.spark.remote import runs_at
from pipeline.spark.stream.folder_output import FolderOutput
from pipeline.spark.stream.stream import Stream
from pipeline.stream.result import StreamResult
from pipeline.stream.settings import StreamSettings
from pipeline.validation.local import validate
from tests.pipeline.spark.stream.test_stream import hide_last, landed
from tests.pipeline.spark.stream.test_stream_agrees import with_another_amount
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.metering_directory import write_directory


@pytest.fixture
def streamed(spark: Any, lake: str) -> Callable[[], StreamResult]:
    """Return a function that streams `run`."""
    settings = StreamSettings(f"{lake}/run", f"{lake}/checkpoint", f"{lake}/out", once=True)
    return lambda: Stream(spark, settings).run()


def test_a_url_is_landed_exactly_once(streamed: Callable[[], StreamResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch that was stopped before its marker no row counts; it is repeated with its file sets, and late ones follow. Verdict and
    comparison of workers are those of `validate`.
    """
    source = with_another_amount(tmp_path / "run")
    late, data = hide_last(source)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FolderOutput, "publish", stopped)
        with pytest.raises(IncompleteError, match="was stopped before all file sets had landed"):
            streamed()
    assert landed(tmp_path / "out", "verdicts", "decisions") == []
    late.write_bytes(data)
    reported, verdict = streamed(), validate(source)
    file_sets = len(list((source / "manifests").rglob("*.json")))
    assert (reported.batches, reported.file_sets, reported.whole) == (2, file_sets, file_sets)
    counts = [count.decisions for one in find_manifests(source) for count in one.counts.values()]
    assert sum(landed(tmp_path / "out", "decisions_second", "decisions")) == sum(counts) > 0
    assert len(landed(tmp_path / "out", "verdicts", "decisions")) == file_sets
    assert (reported.divergences, reported.lost.incomplete) == (verdict.violations, verdict.incomplete)
    assert [one.as_row() for one in reported.findings] == verdict.as_dict(50)["first_divergences"]


def test_what_is_wrong_at_a_url_is_named(spark: Any, lake: str, streamed: Callable[[], StreamResult], tmp_path: Path) -> None:
    """A file that has changed, a directory without manifests and a missing jar end the stream with one line."""
    with pytest.raises(IncompleteError, match=f"^{lake}/run: contains no manifest"):
        streamed()
    source = write_directory(tmp_path / "run", batches(file_sets=1, events=50), sensors())
    path = next((source / "samples").rglob("*.parquet"))
    path.write_bytes(path.read_bytes() + b"more")
    for file in source.rglob("*.crc"):
        file.unlink()
    size = path.stat().st_size
    with pytest.raises(IncompleteError, match=f"^{lake}/run/samples/.*: {size} bytes, manifest {path.stem} has {size - 4}$"):
        streamed()
    with pytest.raises(BadInputError, match=r"^s3://bucket/run: Spark has no jar for s3a:; add --conf .*=org\.apache\.hadoop:hadoop-aws:"):
        hadoop_path(spark, "s3://bucket/run")
    with pytest.raises(BadInputError, match=r"^s3a://bucket/run: Spark has no jar for s3a:; add --conf .*=org\.apache\.hadoop:hadoop-aws:"):
        runs_at(spark, "s3://bucket/run")


@pytest.mark.parametrize(("url", "of_hadoop"), [("s3://b/p", "s3a://b/p"), ("s3a://b/p", "s3a://b/p"), ("hdfs://h/p", "hdfs://h/p")])
def test_hadoop_has_its_own_name_for_s3(url: str, of_hadoop: str) -> None:
    """Other schemes are the same."""
    assert hadoop_url(url) == of_hadoop


def names(paths: Sequence[str]) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in paths)


def test_a_file_on_a_file_system_of_hadoop(spark: Any, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is written whole, in pieces, replaced, read, listed and removed; one that is not there is no error."""
    monkeypatch.setattr("pipeline.spark.hadoop_files._PIECE_BYTES", 2)
    place = hadoop_path(spark, f"{lake}/files")
    assert (place.sizes(), (place / "a").read_now()) == ({}, None)
    for content in (b"one", b"three"):
        (place / "a").write_bytes(content)
    assert ((place / "a").read_now(), names(list(place.sizes()))) == (b"three", ["a"])
    (place / "a").unlink()
    (place / "a").unlink()
    assert place.sizes() == {}


def test_a_listing_passes_in_parts(spark: Any, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names in any script, and files of any length, below any folder, have the same path and length here as in the JVM."""
    monkeypatch.setattr("pipeline.spark.hadoop_files._FILES_AT_ONCE", 2)
    place = hadoop_path(spark, f"{lake}/files")
    written = {name: number for number, name in zip((0, 1, 127, 128, 70_000), ("a", "b/äß€", "b/c/🎈.json", "d" * 200, "e"), strict=True)}
    for name, number in written.items():
        (place / name).write_bytes(b"." * number)
    assert place.sizes() == written


def test_a_long_file_in_a_listing() -> None:
    """A length of more than 32 bits is read as Hadoop writes it."""
    name = b"org.apache.hadoop.fs.FileStatus"
    message = b"\x08\x02\x12\x03s:a\x18\x80\x80\x80\x80\x80\x01"  # a file of 2**35 bytes
    named = struct.pack(">H", len(name)) + name
    data = named + struct.pack(">i", 1) + named * 2 + struct.pack(">i", len(message)) + message
    assert list(files_of(data)) == [("s:a", 2**35)]
