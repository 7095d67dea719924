"""A release of one commit is the same whoever builds it, and its parts agree."""

import hashlib
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.platform.release import RELEASE_PYTHON, clone_of_head, make_release

pytestmark = pytest.mark.timeout(900)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_builds_are_equal_byte_by_byte(checkout: Path, tmp_path: Path) -> None:
    """Two clones in different folders, with another umask, time zone, language and seed of hashes, give the same bytes."""
    first = make_release(checkout, tmp_path / "first")
    other = clone_of_head(tmp_path / "another folder", checkout)
    variables = {"TZ": "Pacific/Auckland", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    second = make_release(other, tmp_path / "second", umask=0o077, environment=variables)
    assert content(first) == content(second)


def test_the_parts_agree(wheel: Path) -> None:
    """The checksums are those of all other files, the list of each image has the packages of its requirements, and notes are there."""
    files = content(wheel.parent)
    lines = files.pop("SHA256SUMS").decode().splitlines()
    assert {line.split()[1]: line.split()[0] for line in lines} == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    version = wheel.name.split("-")[1]
    for image, has_arrow in (("proxy", False), ("meter", True)):
        listed = json.loads(files[f"kafka_sluice-{version}-{image}.cdx.json"])
        names = {component["name"] for component in listed["components"]}
        assert ("pyarrow" in names, "aiohttp" in names, "pyspark" in names) == (has_arrow, True, False)
        assert listed["metadata"]["component"]["name"] == "kafka-sluice"
    assert b"### Proxy" in files[f"kafka_sluice-{version}-notes.md"]


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, checkout: Path, tmp_path: Path) -> None:
    """From the source distribution the wheel of the release can be built again, byte by byte."""
    (source,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    time_s = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    command = [str(RELEASE_PYTHON), "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(command, cwd=folder, env={"SOURCE_DATE_EPOCH": time_s, "PATH": "/usr/bin:/bin"}, check=True, capture_output=True)
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()


def test_what_is_not_committed_is_not_released(checkout: Path, tmp_path: Path) -> None:
    """A checkout with changes is refused, and so is a folder with other files; nothing is removed there."""
    other = clone_of_head(tmp_path / "changed", checkout)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/letter.txt").write_text("dear")
    command = [str(RELEASE_PYTHON), "-m", "release", "--to", str(tmp_path / "precious")]
    refused = subprocess.run(command, cwd=other, capture_output=True, text=True, check=False)
    assert (refused.returncode, (tmp_path / "precious/letter.txt").read_text()) == (2, "dear")
    assert re.search(r"letter\.txt is not of a release", refused.stderr)
    (other / "README.md").write_text("changed")
    refused = subprocess.run(command, cwd=other, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "not committed" in refused.stderr
