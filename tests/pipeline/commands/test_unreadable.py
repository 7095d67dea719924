"""A folder without read permission does not count as empty."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sluice_cli.meter import with_writers
from tests.support.metering.metering_scene import Client, write_scene

CAST = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45, 2)]
COMMANDS = {
    "forget": ["forget", "{}", "--user", "orders"],
    "repair": ["repair", "{}"],
    "verify-manifests": ["verify-manifests", "{}"],
    "rollup": ["rollup", "--in", "{}", "--out", "{}-out"],
    "validate": ["validate", "--in", "{}"],
    "whatif": ["whatif", "--in", "{}", "--quotas", "{}/q.toml"],
    "recommend": ["recommend", "--in", "{}"],
    "neighbours": ["neighbours", "--in", "{}"],
    "stream": ["stream", "--from", "{}", "--checkpoint", "{}-checkpoint", "--out", "{}-out", "--once"],
}


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Every command names a folder that it cannot read, ends with exit code 2 and changes nothing."""
    source = write_scene(tmp_path / "in", 3, clients=CAST)
    (source / "q.toml").write_text("")
    closed = next(path for path in (source / "manifests").rglob("hour=*"))
    before, scandir = contents(tmp_path), os.scandir

    def refusing(path: Any = ".") -> Any:
        if os.fspath(path) == str(closed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(closed))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)  # root ignores the mode of a folder
    reported = CliRunner().invoke(with_writers(), [argument.format(source) for argument in COMMANDS[name]])
    monkeypatch.undo()
    assert (reported.exit_code, reported.stdout, reported.stderr.count("\n")) == (2, "", 1), reported.output
    assert f"{closed}: " in reported.stderr
    assert "Permission denied" in reported.stderr
    assert contents(tmp_path) == before
