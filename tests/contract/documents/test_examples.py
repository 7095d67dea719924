"""The example configurations are valid."""

import sys
from pathlib import Path

import pytest

from sluice_cli.root import main

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("**/*.toml"))
CLASSES = sorted((ROOT / "examples").glob("**/*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("**/*.ipynb"))


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


def test_sluice_examples_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`sluice examples FOLDER` writes all examples with their classes, which are valid there; it overwrites nothing."""
    folder = tmp_path / "here/examples"
    with pytest.raises(SystemExit) as caught:
        main(["examples", str(folder)])
    assert caught.value.code == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert {path.relative_to(folder) for path in written} == {
        path.relative_to(ROOT / "examples") for path in [*EXAMPLES, *CLASSES, *NOTEBOOKS]
    }
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry not in ("", str(ROOT))])
    for path in written:
        if path.suffix == ".toml":
            with pytest.raises(SystemExit) as caught:
                main(["check-config", str(path)])
            assert (caught.value.code, capsys.readouterr().err) == (0, "")
    written[0].unlink()
    with pytest.raises(SystemExit) as caught:
        main(["examples", str(folder)])
    assert caught.value.code == 2
    assert f"{written[1]} exists" in capsys.readouterr().err
    assert not written[0].exists()


def test_there_are_examples() -> None:
    """examples/ contains the files that the documentation names."""
    named = {name for name in (ROOT / "docs/reference/configuration.md").read_text().split("`") if name.startswith("examples/")}
    assert {str(path.relative_to(ROOT)) for path in EXAMPLES} >= named
    assert named
