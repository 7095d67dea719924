"""The example configurations are valid."""

import sys
from pathlib import Path

import pytest

from sluice_cli.root import main

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("**/*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_check_config_finds_nothing(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`sluice check-config` accepts each example, from any directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry not in ("", str(ROOT))])
    with pytest.raises(SystemExit) as caught:
        main(["check-config", str(path)])
    said = capsys.readouterr()
    assert said.err == ""
    assert "protocol" not in said.out  # the examples state whether clients log in
    assert caught.value.code == 0


def test_there_are_examples() -> None:
    """examples/ contains the files that the documentation names."""
    named = {name for name in (ROOT / "docs/reference/configuration.md").read_text().split("`") if name.startswith("examples/")}
    assert {str(path.relative_to(ROOT)) for path in EXAMPLES} >= named
    assert named
