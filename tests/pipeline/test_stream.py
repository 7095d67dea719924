"""Streams of file sets: from a directory and from a topic, into Parquet exactly once."""

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadInputError, IncompleteError
from pipeline.spark.stream import Stream, StreamSettings, dropped_late
from pipeline.stream.chunks import assemble, checked_place, put_part
from pipeline.validation.local import validate
from proxy.metering.topic import parts_of
from tests.pipeline.support.metering_topic import in_order, messages_of, publish
from tests.pipeline.test_validation import batches, missed, sensors
from tests.support.metering_directory import write_directory


def settings_of(folder: Path, source: str | Path) -> StreamSettings:
    return StreamSettings(str(source), folder / "checkpoint", folder / "out", once=True)


def landed(out: Path, table: str, column: str) -> list[Any]:
    """What the batches with a marker hold."""
    whole = {int(path.stem) for path in (out / "_batches").glob("*.json")}
    files = [path for path in (out / table).rglob("*.parquet") if int(path.parent.name.removeprefix("batch=")) in whole]
    return sorted(value for path in files for value in pq.read_table(path, partitioning=None).column(column).to_pylist())


def hide_last(directory: Path) -> tuple[Path, bytes]:
    last = max((directory / "manifests").rglob("*.json"))
    data = last.read_bytes()
    last.unlink()
    return last, data


def test_a_directory_is_landed_exactly_once(spark: Any, tmp_path: Path) -> None:
    """File sets are landed once each, whether they come early or late, and a batch that is tried again leaves what it left at first."""
    source = write_directory(tmp_path / "run", batches(), sensors(), mutate=missed)
    late, data = hide_last(source)
    settings = settings_of(tmp_path, source)
    first = Stream(spark, settings).run()
    late.write_bytes(data)
    os.utime(late, (1_700_000_000, 1_700_000_000))  # years older than what is known
    second = Stream(spark, settings).run()
    assert (first.stems, second.stems, first.dropped_late + second.dropped_late) == (2, 1, 0)
    whole = [landed(settings.out, table, column) for table, column in (("verdicts", "decisions"), ("decisions_second", "decisions"))]
    assert whole[0] == [800, 800, 800]
    assert sum(whole[1]) == 2_400
    assert sum(landed(settings.out, "verdicts", "divergences")) == validate(source).violations
    _forget_last_batch(settings)
    again = Stream(spark, settings).run()
    assert again.stems == 1
    assert [
        landed(settings.out, table, column) for table, column in (("verdicts", "decisions"), ("decisions_second", "decisions"))
    ] == whole


def _forget_last_batch(settings: StreamSettings) -> None:
    """As after a crash between the rows and Spark's own note of the batch."""
    for folder in (settings.checkpoint / "commits", settings.out / "_batches"):
        last = max((path for path in folder.iterdir() if path.name.removesuffix(".json").isdigit()), key=lambda path: int(path.stem))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def test_what_does_not_add_up_ends_the_stream(spark: Any, tmp_path: Path) -> None:
    """A file that changed is named, nothing of its batch counts, and output of another checkpoint is refused."""
    source = write_directory(tmp_path / "run", batches(stems=1), sensors())
    settings = settings_of(tmp_path, source)
    path = next((source / "samples").rglob("*.parquet"))
    good = path.read_bytes()
    path.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    with pytest.raises(IncompleteError, match="SHA-256"):
        Stream(spark, settings).run()
    assert landed(settings.out, "verdicts", "decisions") == []
    path.write_bytes(good)
    assert Stream(spark, settings).run().stems == 1
    with pytest.raises(BadInputError, match="another checkpoint"):
        Stream(spark, StreamSettings(str(source), tmp_path / "other", settings.out, once=True)).run()


@pytest.mark.mock
def test_a_topic_is_landed_exactly_once(spark: Any, mock_topic: str, tmp_path: Path) -> None:
    """File sets that came through a topic twice are the files that were sent, judged and counted once."""
    source = write_directory(tmp_path / "run", batches(), sensors())
    messages = list(in_order(source))
    settings = settings_of(tmp_path, mock_topic)
    publish(mock_topic, messages[: len(messages) // 2])
    first = Stream(spark, settings).run()
    publish(mock_topic, messages[len(messages) // 3 :])
    second = Stream(spark, settings).run()
    assert first.stems + second.stems == 3
    assert sum(landed(settings.out, "decisions_second", "decisions")) == 2_400
    assert validate(settings.out / "landed").as_dict(50) == validate(source).as_dict(50)


def test_rows_behind_a_watermark_are_counted() -> None:
    """What Spark says it dropped is added up over batches and operators."""
    assert dropped_late([{"stateOperators": [{"numRowsDroppedByWatermark": 2}, {}]}, {"stateOperators": []}]) == 2


def test_parts_make_the_file_again(tmp_path: Path) -> None:
    """A file in parts, each of them put there twice, is the file; without one of them it is refused."""
    source = write_directory(tmp_path / "run", batches(stems=1), sensors())
    for path, part, value in (*messages_of(source), *messages_of(source)):
        put_part(tmp_path / "landed", *checked_place(path, part)[:2], value)
    manifest = str(next((source / "manifests").rglob("*.json")).relative_to(source))
    assemble(tmp_path / "landed", manifest, 1)
    assert validate(tmp_path / "landed").as_dict(9) == validate(source).as_dict(9)
    for path, part, value in messages_of(source):
        if not path.startswith("samples"):
            put_part(tmp_path / "lost", *checked_place(path, part)[:2], value)
    with pytest.raises(IncompleteError, match="came incomplete"):
        assemble(tmp_path / "lost", manifest, 1)
    assert not (tmp_path / "lost" / manifest).exists()


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("../etc/passwd", "0/1"),
        ("/samples/x", "0/1"),
        ("samples/../../x", "0/1"),
        ("other/x", "0/1"),
        ("samples/x", "1/1"),
        ("samples/x", "0"),
        ("", ""),
    ],
)
def test_a_strange_message_is_refused(path: str, part: str) -> None:
    """A path out of the directory, a table that is none and a part that cannot be are refused."""
    with pytest.raises(BadInputError, match="not a metering file"):
        checked_place(path, part)


def test_an_empty_file_is_one_message() -> None:
    """Every file is at least one message, and long ones are cut."""
    assert [part for part, _ in parts_of(b"")] == ["0/1"]
    assert [(part, len(value)) for part, value in parts_of(bytes(600_000))] == [("0/2", 524_288), ("1/2", 75_712)]
