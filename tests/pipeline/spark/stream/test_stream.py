"""Streams of file sets, from a directory and from a topic, into Parquet exactly once."""

import contextlib
import itertools
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import file_sha256
from pipeline.report.stream_page import draw_stream
from pipeline.spark.stream.kafka_source import KAFKA, source_of
from pipeline.spark.stream.stream import Stream
from pipeline.spark.stream.topic_source import NAME, limited
from pipeline.stream.chunks import PARTS, Parts, assemble, checked_place
from pipeline.stream.settings import StreamSettings
from pipeline.validation.local import validate
from proxy.metering.topic import parts_of
from sluice_cli.meter import meter
from tests.pipeline.support.metering_topic import in_order, messages_of, publish
from tests.pipeline.validation.test_validation import batches, missed, sensors, with_usage_only
from tests.support.metering.metering_directory import write_directory


def settings_of(folder: Path, source: str | Path) -> StreamSettings:
    return StreamSettings(str(source), folder / "checkpoint", folder / "out", once=True)


def landed(out: Path, table: str, column: str) -> list[Any]:
    """Return the rows of the batches that have a marker."""
    whole = {int(path.stem) for path in (out / "_batches").glob("*.json")}
    files = [path for path in (out / table).rglob("*.parquet") if int(path.parent.name.removeprefix("batch=")) in whole]
    return sorted(value for path in files for value in pq.read_table(path, partitioning=None).column(column).to_pylist())


def hide_last(directory: Path) -> tuple[Path, bytes]:
    last = max((directory / "manifests").rglob("*.json"))
    data = last.read_bytes()
    last.unlink()
    return last, data


def test_a_directory_is_landed_exactly_once(spark: Any, tmp_path: Path) -> None:
    """Early and late file sets land once each, and a repeated batch writes the same rows."""
    source = write_directory(tmp_path / "run", batches(), sensors(), mutate=missed)
    late, data = hide_last(source)
    settings = settings_of(tmp_path, source)
    first = Stream(spark, settings).run()
    late.write_bytes(data)
    os.utime(late, (1_700_000_000, 1_700_000_000))  # years older than the file sets already landed
    second = Stream(spark, settings).run()
    assert (first.file_sets, second.file_sets, first.whole, second.whole) == (2, 1, 2, 3)
    whole = [landed(settings.out, table, column) for table, column in (("verdicts", "decisions"), ("decisions_second", "decisions"))]
    assert whole[0] == [800, 800, 800]
    assert sum(whole[1]) == 2_400
    assert sum(landed(settings.out, "verdicts", "divergences")) == validate(source).violations
    _forget_last_batch(settings)
    again = Stream(spark, settings).run()
    assert again.file_sets == 1
    assert [
        landed(settings.out, table, column) for table, column in (("verdicts", "decisions"), ("decisions_second", "decisions"))
    ] == whole


def _forget_last_batch(settings: StreamSettings) -> None:
    """Remove the marker of the last batch, as a crash after the rows were written leaves it."""
    max((settings.out / "_batches").iterdir()).unlink()


@pytest.mark.parametrize("is_url", [False, True], ids=["path", "url"])
def test_a_directory_is_followed(spark: Any, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_url: bool) -> None:
    """Each listing of a call lands what came since the one before: nothing, a late file set, or one that came when another went."""
    run = write_directory(tmp_path / "run", batches(file_sets=4, events=50), sensors())
    paths = sorted((run / "manifests").rglob("*.json"))
    held = {number: paths[number].read_bytes() for number in (1, 3)}
    for number in held:
        paths[number].unlink()
    said: list[str] = []
    waits = itertools.count()

    def wait(_: float) -> None:
        match next(waits):
            case 1:
                paths[1].write_bytes(held[1])
            case 2:
                paths[0].unlink()  # as retention does
                paths[3].write_bytes(held[3])
            case 3:
                raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.spark.stream.directory.time", SimpleNamespace(sleep=wait, monotonic=time.monotonic))
    source, checkpoint, out = (f"{lake}/{name}" if is_url else tmp_path / name for name in ("run", "checkpoint", "out"))
    result = Stream(spark, StreamSettings(str(source), checkpoint, out), said.append).run()
    assert (result.batches, result.file_sets, result.divergences) == (3, 4, 0)
    assert result.unjudged == 100, "those of the third file set, before which one was missing, and of the last, before which one is gone"
    assert landed(tmp_path / "out", "verdicts", "decisions") == [0, 0, 50, 50]
    [missing] = [line for line in said if line.startswith("missing so far")]
    assert "decisions 50 to 99 are in no manifest" in missing
    assert ["decisions 0 to 49 are in no manifest" in line for line in result.lost.incomplete] == [True]


def test_what_is_missing_between_file_sets_is_counted(spark: Any, tmp_path: Path) -> None:
    """Decisions after a missing file set are counted as unjudged, and the stream is not exact."""
    source = write_directory(tmp_path / "run", batches(), sensors())
    sorted((source / "manifests").rglob("*.json"))[1].unlink()
    reported, verdict = Stream(spark, settings_of(tmp_path, source)).run(), validate(source)
    assert (reported.file_sets, reported.divergences) == (2, 0)
    assert 0 < reported.unjudged == verdict.unjudged
    assert [reported.lost.incomplete, reported.lost.percent, reported.is_whole] == [verdict.incomplete, verdict.coverage_percent, False]
    assert "decisions 800 to 1599 are in no manifest" in reported.lost.incomplete[0]


def test_a_file_set_without_decisions_is_missed_until_it_comes(spark: Any, tmp_path: Path) -> None:
    """A missing file set without decisions is named in every call, as by `validate`, until it arrives."""
    source = tmp_path / "run"
    paths = with_usage_only(source)
    gone = paths[1].read_bytes()
    paths[1].unlink()
    settings = settings_of(tmp_path, source)
    line = f"{paths[1].stem}, the file set before {paths[2].stem}, is in no manifest; it was removed or is late"
    for file_sets in (2, 0):
        reported = Stream(spark, settings).run()
        assert (reported.file_sets, reported.is_whole) == (file_sets, False)
        assert [line in its for its in reported.lost.incomplete] == [True]
        assert any(line in its for its in reported.lines(explain=False))
    paths[1].write_bytes(gone)
    reported = Stream(spark, settings).run()
    assert (reported.file_sets, reported.is_whole, reported.lost.incomplete, reported.as_dict()["verdict"]) == (1, True, [], "exact")


def test_a_divergence_is_reported_with_its_samples(spark: Any, tmp_path: Path) -> None:
    """A stream finds and names the same divergence as `validate`, and explains it with --explain."""
    source = write_directory(tmp_path / "run", batches(file_sets=1), sensors(), mutate=missed)
    reported, verdict = Stream(spark, settings_of(tmp_path, source)).run(), validate(source)
    assert [one.as_row() for one in reported.findings] == verdict.as_dict(50)["first_divergences"]
    proof = next(line for one in reported.findings for line in one.finding.evidence)
    assert [proof in "\n".join(reported.lines(explain=explain)) for explain in (False, True)] == [False, True]
    page = draw_stream("run", reported)
    assert reported.findings[0].place in page


def test_a_violation_is_reported_until_the_output_is_another(spark: Any, tmp_path: Path) -> None:
    """A later call that finds nothing new, or only right file sets, reports all divergences landed so far with their samples."""
    source = write_directory(tmp_path / "run", batches(), sensors(), mutate=missed)
    late, data = hide_last(source)
    settings = settings_of(tmp_path, source)
    first, again = Stream(spark, settings).run(), Stream(spark, settings).run()
    assert (first.file_sets, again.file_sets) == (2, 0)
    assert 0 < first.divergences == again.divergences
    assert again.as_dict()["verdict"] == "violations"
    assert [one.as_row() for one in again.findings] == [one.as_row() for one in first.findings]
    late.write_bytes(data)
    both, verdict = Stream(spark, settings).run(), validate(source)
    assert both.divergences == verdict.violations > first.divergences
    assert f"{first.divergences:,} of them in earlier calls" in "\n".join(both.lines(explain=False))


def test_the_exit_code_of_a_violation_stays(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a violation `stream --once` ends with exit code 1 in each later call."""
    monkeypatch.setattr("pipeline.spark.session.session", lambda *_, **__: contextlib.nullcontext(spark))
    source = write_directory(tmp_path / "run", batches(file_sets=1), sensors(), mutate=missed)
    arguments = ["stream", "--from", str(source), "--checkpoint", str(tmp_path / "c"), "--out", str(tmp_path / "o"), "--once"]
    reported = [CliRunner().invoke(meter, arguments) for _ in range(2)]
    assert [one.exit_code for one in reported] == [1, 1], reported[1].output
    assert "landed      0 file sets in 0 batches" in reported[1].stdout


def test_a_batch_of_an_earlier_version_is_counted_by_its_table(spark: Any, tmp_path: Path) -> None:
    """For a marker of an earlier version, without divergences and verdicts, their number comes from the table `verdicts`."""
    source = write_directory(tmp_path / "run", batches(file_sets=1), sensors(), mutate=missed)
    settings = settings_of(tmp_path, source)
    first = Stream(spark, settings).run()
    marker = next((settings.out / "_batches").glob("*.json"))
    reported = json.loads(marker.read_text())
    marker.write_text(json.dumps({name: reported[name] for name in ("stems", "rows")}))
    (settings.out / "_judged" / marker.name).unlink()
    again = Stream(spark, settings).run()
    assert (again.divergences, again.findings) == (first.divergences, [])


def test_what_does_not_add_up_ends_the_stream(spark: Any, tmp_path: Path) -> None:
    """A changed file is named and nothing of its batch counts, and the output of another checkpoint is refused."""
    source = write_directory(tmp_path / "run", batches(file_sets=1), sensors())
    settings = settings_of(tmp_path, source)
    path = next((source / "samples").rglob("*.parquet"))
    good = path.read_bytes()
    path.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    with pytest.raises(IncompleteError, match="SHA-256"):
        Stream(spark, settings).run()
    assert landed(settings.out, "verdicts", "decisions") == []
    path.write_bytes(good)
    assert Stream(spark, settings).run().file_sets == 1
    with pytest.raises(BadInputError, match="another checkpoint"):
        Stream(spark, StreamSettings(str(source), tmp_path / "other", settings.out, once=True)).run()


@pytest.mark.parametrize(
    ("source", "checkpoint", "out", "code", "message"),
    [
        ("absent", "c", "o", 2, "no such directory"),
        ("empty", "c", "o", 3, "contains no manifest"),
        ("kafka://127.0.0.1:1/topic", "s3a://bucket/c", "s3a://bucket/o", 2, "no broker answers there"),
        ("kafka://127.0.0.1:9092", "c", "o", 2, "kafka://HOST:PORT/TOPIC"),
        ("kafka://127.0.0.1:1,localhost/topic", "c", "o", 2, "no broker answers there"),
        ("run", "a-file", "o", 2, "a-file"),
        ("run", "c", "a-file/o", 2, "a-file"),
        ("strange", "c", "o", 2, "schema 7, this version reads 1"),
    ],
)
def test_what_cannot_be_followed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, checkpoint: str, out: str, code: int, message: str
) -> None:
    """A wrong source, checkpoint or output gives one line before Spark starts, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    write_directory(Path("run"), batches(file_sets=1, events=5), sensors())
    Path("empty").mkdir()
    Path("strange/manifests").mkdir(parents=True)
    Path("strange/manifests/one.json").write_text('{"kind": "sluice-metering", "schema": 7}')
    Path("a-file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    outcome = CliRunner().invoke(meter, ["stream", "--from", source, "--checkpoint", checkpoint, "--out", out, "--once"])
    assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (code, "", 1), outcome.stderr
    assert message in outcome.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_of_another_program_is_named(spark: Any, tmp_path: Path) -> None:
    """A file of another program that a manifest lists with its hash ends the stream with one short line that names it."""
    source = write_directory(tmp_path / "run", batches(file_sets=1, events=50), sensors())
    manifest = next((source / "manifests").rglob("*.json"))
    reported = json.loads(manifest.read_text())
    entry = next(entry for entry in reported["files"] if entry["table"] == "samples")
    pq.write_table(pa.table({"a": [1]}), source / entry["path"])
    entry |= {"bytes": (source / entry["path"]).stat().st_size, "sha256": file_sha256(source / entry["path"])}
    manifest.write_text(json.dumps(reported))
    with pytest.raises(
        BadInputError, match=f"^{source / entry['path']}: has no column .*; it was written by another program or version; restore it$"
    ):
        Stream(spark, settings_of(tmp_path, source)).run()


@pytest.mark.mock
def test_a_topic_is_landed_exactly_once(spark: Any, mock_topic: str, tmp_path: Path) -> None:
    """File sets that pass through a topic twice arrive unchanged, and are judged and counted once."""
    source = write_directory(tmp_path / "run", batches(), sensors())
    messages = list(in_order(source))
    settings = settings_of(tmp_path, mock_topic)
    publish(mock_topic, messages[: len(messages) // 2])
    first = Stream(spark, settings).run()
    publish(mock_topic, messages[len(messages) // 3 :])
    second = Stream(spark, settings).run()
    assert first.file_sets + second.file_sets == 3
    assert sum(landed(settings.out, "decisions_second", "decisions")) == 2_400
    assert validate(settings.out / "landed").as_dict(50) == validate(source).as_dict(50)


@pytest.mark.parametrize(
    ("start", "ends", "messages_max", "until"),
    [
        ({"0": 0, "1": 0}, {"0": 9, "1": 2}, 20, {"0": 9, "1": 2}),
        ({"0": 0, "1": 0}, {"0": 9, "1": 2}, 7, {"0": 5, "1": 2}),
        ({"0": 4, "1": 2}, {"0": 9, "1": 2}, 3, {"0": 7, "1": 2}),
        ({"0": 0, "1": 0, "2": 0}, {"0": 9, "1": 9, "2": 9}, 2, {"0": 1, "1": 1, "2": 0}),
        ({"0": 9}, {"0": 5}, 2, {"0": 9}),
    ],
)
def test_a_batch_of_a_topic_has_at_most_so_many_messages(
    start: dict[str, int], ends: dict[str, int], messages_max: int, until: dict[str, int]
) -> None:
    """Partitions share the limit, what one leaves is for the others, and no offset goes back; the order is that of the partitions."""
    assert list(limited(start, ends, messages_max).items()) == list(until.items())


@pytest.mark.parametrize(
    ("offsets", "source"),
    [
        ((), None),
        (('v1\n{"batchWatermarkMs":0}\n{"0":5,"1":0}',), NAME),
        (('v1\n{}\n{"0":5}', 'v1\n{}\n{"metering":{"0":5}}'), KAFKA),
        (("v1\n{}\n-",), None),
    ],
)
def test_a_checkpoint_tells_its_source(tmp_path: Path, offsets: tuple[str, ...], source: str | None) -> None:
    """The newest offsets have the form of Spark's own Kafka source, or that of the source in Python."""
    (tmp_path / "offsets").mkdir()
    for number, text in enumerate(offsets):
        (tmp_path / "offsets" / str(9 + number)).write_text(text)
    assert source_of(tmp_path) == source


def test_parts_make_the_file_again(tmp_path: Path) -> None:
    """A file in parts, each received twice, is assembled; with a part missing it is refused."""
    source = write_directory(tmp_path / "run", batches(file_sets=1), sensors())
    for path, part, value in (*messages_of(source), *messages_of(source)):
        parts_in(tmp_path / "landed").put(*checked_place(path, part)[:2], value)
    manifest = str(next((source / "manifests").rglob("*.json")).relative_to(source))
    assemble(tmp_path / "landed", manifest, {manifest: 1}, parts_in(tmp_path / "landed"))
    assert not (tmp_path / "landed" / PARTS).exists()
    assert validate(tmp_path / "landed").as_dict(9) == validate(source).as_dict(9)
    for path, part, value in messages_of(source):
        if not path.startswith("samples"):
            parts_in(tmp_path / "lost").put(*checked_place(path, part)[:2], value)
    with pytest.raises(IncompleteError, match="arrived incomplete"):
        assemble(tmp_path / "lost", manifest, {manifest: 1}, parts_in(tmp_path / "lost"))
    assert not (tmp_path / "lost" / manifest).exists()


def parts_in(landed: Path) -> Parts:
    return Parts(landed / PARTS)


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
    """A message with a path outside of the directory, an unknown table or an impossible part is refused."""
    with pytest.raises(BadInputError, match="not a metering file"):
        checked_place(path, part)


def test_an_empty_file_is_one_message() -> None:
    """An empty file is one message, and a long file is split into several."""
    assert [part for part, _ in parts_of(b"")] == ["0/1"]
    assert [(part, len(value)) for part, value in parts_of(bytes(600_000))] == [("0/2", 524_288), ("1/2", 75_712)]
