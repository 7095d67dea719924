"""The demo runs from end to end for a few seconds."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.mock


def run_demo(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluice_cli", "demo", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_demo_ends_with_verdicts_and_a_picture(tmp_path: Path) -> None:
    """The demo reports ok for each client and for metering, writes its picture, and leaves no other files."""
    picture = tmp_path / "out.svg"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ended = run_demo("--seconds", "5", "--svg", str(picture), folder=temporary)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.endswith("  ok")]
    assert [line.split()[0] for line in lines] == ["orders", "reports", "audit", "clicks", "visitors", "metering"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    assert list(temporary.iterdir()) == []


def test_a_fleet_has_one_budget(tmp_path: Path) -> None:
    """The demo with two proxies reports ok for each client, for the fleet and for the metering of both, and the part of each proxy."""
    picture = tmp_path / "out.svg"
    ended = run_demo("--seconds", "5", "--proxies", "2", "--svg", str(picture), folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    names = [line.split()[0] for line in lines if line.endswith("  ok")]
    assert names == ["orders", "reports", "audit", "clicks", "visitors", "fleet", "metering"]
    parts = [line for line in lines if "at proxy 1, " in line]
    assert len(parts) == 3
    assert all(line.endswith("at proxy 2") for line in parts)
    assert ">proxy 2<" in picture.read_text()
    assert list(tmp_path.iterdir()) == [picture]


def test_a_paced_run_is_even(tmp_path: Path) -> None:
    """The demo with paced enforcement reports ok for each client and for metering, and its picture says that it is paced."""
    picture = tmp_path / "out.svg"
    ended = run_demo("--seconds", "5", "--pacing", "paced", "--svg", str(picture), folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.endswith("  ok")]
    assert [line.split()[0] for line in lines] == ["orders", "reports", "audit", "clicks", "visitors", "metering"]
    assert "paced enforcement" in picture.read_text()


def test_a_fleet_is_not_paced(tmp_path: Path) -> None:
    """The demo ends with exit code 2 and one line when several proxies should be paced."""
    ended = run_demo("--proxies", "2", "--pacing", "paced", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--pacing paced has one proxy" in ended.stderr


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The demo ends with exit code 2 before it starts anything when the folder of its picture does not exist."""
    ended = run_demo("--svg", str(tmp_path / "no" / "demo.svg"), folder=tmp_path)
    assert ended.returncode == 2
    assert "there is no folder" in ended.stderr
    assert ended.stdout == ""
