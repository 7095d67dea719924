"""The benches describe their options."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for path in (ROOT / "bench").rglob("*.py")
    if "ArgumentParser(" in (text := path.read_text()) and '__name__ == "__main__"' in text
)


@pytest.mark.parametrize("module", MODULES)
def test_help_is_printed(module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each bench with options prints them for --help."""
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    for name in (module, f"{module}.__main__"):  # another bench may have imported it
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert "options:" in capsys.readouterr().out
