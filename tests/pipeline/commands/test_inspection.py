"""`inspect` and `verify-manifests`: the content of a file, and whether files match their manifests, as text and as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.manifest import read_manifest
from sluice_cli.meter import meter
from tests.support.metering.metering_scene import Client, write_scene

CAST = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45, 2)]


def reported(*arguments: str, code: int = 0) -> tuple[str, dict[str, Any]]:
    table, as_json = (CliRunner().invoke(meter, [*arguments, "--format", form]) for form in ("table", "json"))
    assert (table.exit_code, as_json.exit_code, table.stderr + as_json.stderr) == (code, code, "")
    return table.stdout, json.loads(as_json.stdout)


def test_a_file_is_reported_in_both_forms(tmp_path: Path) -> None:
    """The rows, columns and first rows of a table, and the fields of a manifest, are reported as text and as JSON."""
    source = write_scene(tmp_path, 3, clients=CAST)
    lines, found = reported("inspect", str(next((source / "samples").rglob("*.parquet"))))
    assert (found["kind"], found["table"], len(found["first_rows"])) == ("Parquet", "samples", min(found["rows"], 5))
    assert lines.startswith(f"Parquet, table samples: {found['rows']:,} rows, {len(found['columns'])} columns\n")
    assert found["first_rows"][0]["n"] == len(found["first_rows"][0]["val"])
    path = next((source / "manifests").rglob("*.json"))
    lines, found = reported("inspect", str(path))
    manifest = read_manifest(path)
    assert (found["kind"], found["stem"]) == ("manifest", manifest.file_set)
    assert found["manifest"]["files"] == json.loads(path.read_text())["files"]
    assert lines.startswith(f"manifest of {manifest.file_set}, ")


def test_what_is_wrong_with_files_is_reported_in_both_forms(tmp_path: Path) -> None:
    """Text and JSON have the same counts, problems and exit code."""
    source = write_scene(tmp_path, 3, clients=CAST)
    lines, found = reported("verify-manifests", str(source))
    assert lines == f"1 manifest, {found['files']} files, 0 problems\n"
    next((source / "usage").rglob("*.parquet")).unlink()
    lines, found = reported("verify-manifests", str(source), code=3)
    assert (found["manifests"], len(found["problems"])) == (1, 1)
    assert "is missing" in found["problems"][0]
    assert lines.startswith(found["problems"][0])


@pytest.mark.parametrize("command", [["inspect", "manifests/a.json"], ["verify-manifests", "."], ["validate", "--in", "."]])
def test_nested_without_end_is_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """JSON that is nested beyond the limit gives one line and exit code 2."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "a.json").write_text("[" * 100_000)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(meter, command)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "not a manifest" in done.stderr
