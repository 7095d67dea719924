"""`stream --once` agrees with `validate` on the same files: also with rules over whole runs and over workers, and after late file sets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.spark.stream.stream import Stream
from pipeline.stream.result import StreamResult
from pipeline.stream.settings import StreamSettings
from pipeline.validation.local import validate
from pipeline.validation.verdict import Verdict
from sluice_cli.meter import meter
from tests.pipeline.support.closed_loop import closed_loop
from tests.pipeline.validation.test_long_run import BOUND, SECONDS, metered
from tests.pipeline.validation.test_validation import batches, missed, rewrite, sensors
from tests.pipeline.workers.test_shared_runs import busy, change, change_amount
from tests.support.metering.metering_directory import write_directory


def above_its_ceiling(folder: Path) -> Path:
    """Write two file sets of a client whose rate is too high only over both together."""
    return metered(folder, list(closed_loop(4, 1_000, BOUND, SECONDS, heeds=False, gap_ms=20)), 4)


def with_another_amount(folder: Path) -> Path:
    """Write the file sets of two workers; one amount differs from what the other worker recorded."""
    folder.mkdir()
    change(busy(folder), change_amount)
    return folder


def without_an_end(folder: Path) -> Path:
    """Write a run whose last file set is not final."""
    write_directory(folder, batches(file_sets=1), sensors())
    [path] = (folder / "manifests").rglob("*.json")
    rewrite(path, final=False)
    return folder


def stream(spark: Any, folder: Path, source: Path) -> StreamResult:
    return Stream(spark, StreamSettings(str(source), folder / "checkpoint", folder / "out", once=True)).run()


def agree(reported: StreamResult, verdict: Verdict) -> None:
    assert (reported.divergences, reported.unjudged) == (verdict.violations, verdict.unjudged)
    assert [one.as_row() for one in reported.findings] == verdict.as_dict(50)["first_divergences"]
    assert (reported.lost.incomplete, reported.lost.percent) == (verdict.incomplete, verdict.coverage_percent)


@pytest.mark.parametrize("write", [above_its_ceiling, with_another_amount, without_an_end])
def test_a_stream_says_what_validate_says(spark: Any, tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """Divergences, losses and unjudged decisions are the same, in the first call and in a second one that finds nothing new."""
    source = write(tmp_path / "run")
    verdict = validate(source)
    assert verdict.violations or verdict.incomplete
    agree(stream(spark, tmp_path, source), verdict)
    again = stream(spark, tmp_path, source)
    agree(again, verdict)
    assert (again.file_sets, again.new_divergences) == (0, 0)


def test_what_came_late_is_judged_as_if_it_had_come_in_time(spark: Any, tmp_path: Path) -> None:
    """Decisions after a missing file set are unjudged until it arrives; then those that diverge are found."""
    source = write_directory(tmp_path / "run", batches(), sensors(), mutate=missed)
    late = sorted((source / "manifests").rglob("*.json"))[1]
    data = late.read_bytes()
    late.unlink()
    first = stream(spark, tmp_path, source)
    assert first.unjudged > 0
    agree(first, validate(source))
    late.write_bytes(data)
    second = stream(spark, tmp_path, source)
    agree(second, validate(source))
    assert second.unjudged == 0
    assert second.new_divergences == second.divergences - first.divergences > 0


def test_the_exit_codes_are_the_same(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation over whole runs ends `stream --once` with the exit code and the divergence of `validate`."""
    import contextlib

    monkeypatch.setattr("pipeline.spark.session.session", lambda *_, **__: contextlib.nullcontext(spark))
    source = above_its_ceiling(tmp_path / "run")
    places = ["--checkpoint", str(tmp_path / "c"), "--out", str(tmp_path / "o"), "--once"]
    streamed = CliRunner().invoke(meter, ["stream", "--from", str(source), *places, "--format", "json"])
    validated = CliRunner().invoke(meter, ["validate", "--in", str(source), "--format", "json"])
    assert streamed.exit_code == validated.exit_code == 1
    assert json.loads(streamed.stdout)["first_divergences"] == json.loads(validated.stdout)["first_divergences"]
