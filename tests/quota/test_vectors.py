"""The vectors of Kafka's own numbers are replayed, and so is the command that replays them."""

import json
from pathlib import Path

import pytest

from tests.vectors.__main__ import main
from tests.vectors.replay import RUNNERS, load, replay

EXPECTED_COLUMNS = ("throttle_ms_int32", "violated", "tokens_after", "avg", "desanitized", "reads_enabled_after")
VECTORS = Path(__file__).parents[1] / "vectors" / "traces"
CASES = {
    "admin-kraft": 6,
    "admin-zk": 6,
    "avg": 4,
    "callback-calls": 1,
    "client-quota-manager": 39,
    "connection-quotas": 13,
    "mute-state": 1,
    "rate": 63,
    "request-flow": 10,
    "sanitizer": 2,
    "throttle-time": 2,
    "token-bucket": 10,
}


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_vectors(name: str, lazy: bool) -> None:
    """Every number of the vectors is reproduced to the last bit, with the fast path and without."""
    result = replay(load(VECTORS / f"{name}.json"), lazy=lazy)
    assert (result.passed, result.failed, result.first_failure) == (CASES[name], 0, None)


def test_every_runner_has_a_file() -> None:
    """Every format that the command knows has a vector file in the tests."""
    assert {f"{name}/1" for name in CASES} == set(RUNNERS)


def copy_of(name: str, directory: Path) -> None:
    """Put a copy of a vector file into a directory."""
    (directory / f"{name}.json").write_text((VECTORS / f"{name}.json").read_text())


def test_a_directory_of_right_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints one line per file, names unknown formats, and ends with the sum and exit code 0."""
    copy_of("avg", tmp_path)
    (tmp_path / "new.json").write_text('{"format": "new/1", "cases": []}')
    (tmp_path / "notes.json").write_text("no JSON")
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "avg.json: 4 passed, 0 failed",
        "new.json: unknown format, not counted: new/1",
        "notes.json: unknown format, not counted: no format",
        "4 passed, 0 failed",
    ]


def test_traces_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command replays the folder `traces` of a directory without vector files."""
    (tmp_path / "traces").mkdir()
    copy_of("avg", tmp_path / "traces")
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["avg.json: 4 passed, 0 failed", "4 passed, 0 failed"]


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_number_is_found(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A changed expectation fails its case, and the command ends with exit code 1."""
    content = load(VECTORS / f"{name}.json")
    spoil(content)
    (tmp_path / "spoilt.json").write_text(json.dumps(content))
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"{CASES[name] - 1} passed, 1 failed"


def spoil(content: dict) -> None:  # type: ignore[type-arg]
    """Change one expectation in the first case."""
    case = content["cases"][0]
    entries = case.get("rows") or case.get("events") or case.get("steps")
    if isinstance(entries[0], dict):
        keys = ("throttle_time_ms", "result", "throttle_ms", "outcome", "error_code", "state_after", "znodes_after")
        entry = next(entry for entry in reversed(entries) if set(keys) & entry.keys())
        key = next(key for key in keys if key in entry)
        entry[key] = 4711
        return
    columns = case.get("columns") or content["columns"]
    index = next(columns.index(name) for name in EXPECTED_COLUMNS if name in columns)
    row = next(row for row in entries if row[index] is not None)
    row[index] = "spoilt"


@pytest.mark.parametrize("content", [None, '{"format": "admin-zk/2", "cases": []}'], ids=["empty", "only-unknown"])
def test_nothing_known_is_an_error(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with exit code 2 when no file has a known format."""
    if content:
        (tmp_path / "later.json").write_text(content)
    assert main([str(tmp_path)]) == 2
    assert "no vector file of a known format" in capsys.readouterr().err


def test_a_case_that_cannot_be_run_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A malformed case is named and counted as failed, and the other cases are replayed."""
    content = load(VECTORS / "avg.json")
    del content["cases"][1]["samples"]
    (tmp_path / "avg.json").write_text(json.dumps(content))
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == ["avg.json: 3 passed, 1 failed; first: rnd-2: KeyError: 'samples'", "3 passed, 1 failed"]
