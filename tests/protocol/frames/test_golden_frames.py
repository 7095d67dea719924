"""All golden frames pass, and the command that runs them reports failures."""

import json
from pathlib import Path

import pytest

from tests.frames.__main__ import main

FRAMES = Path(__file__).parents[2] / "vectors" / "frames"


def test_every_golden_frame_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """Every case in every file of golden frames passes."""
    assert main([str(FRAMES)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list(FRAMES.glob("*.json"))) + 1
    assert lines[-1] == "2528 passed, 0 failed"


def test_a_case_that_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case with a wrong expectation is named, and the command ends with exit code 1."""
    whole = json.loads((FRAMES / "throttle.json").read_text(encoding="utf-8"))
    wrong = next(case for case in whole["cases"] if case["at"] is not None)
    (tmp_path / "throttle.json").write_text(json.dumps(whole | {"cases": [wrong | {"at": 5}, wrong]}), encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "throttle.json: 1 passed, 1 failed"
    assert wrong["name"] in lines[1]
    assert lines[-1] == "1 passed, 1 failed"


def test_what_is_not_known_is_named_and_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of unknown formats are named, and the command ends with exit code 2 when no file is known."""
    (tmp_path / "other.json").write_text('{"format": "poems/1", "cases": []}', encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    assert main([str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert "other.json: format 'poems/1' is not known, not counted" in output.out
    assert "no golden frame file of a known format" in output.err


@pytest.mark.parametrize("arguments", [[], ["no/such/directory"], ["a", "b"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints its usage with exit code 2 unless one existing directory is given."""
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage:")
