"""What a release consists of; `make platform` builds one twice."""

import re
from pathlib import Path

import pytest

from release.errors import ReleaseError
from release.sbom import image_python, requirements_for
from release.versions import read_release

ROOT = Path(__file__).parents[3]
CHANGELOG = "# Changelog\n\n## 0.2.0 (unreleased)\n\n- new\n\n## 0.1.0 (2026-11-27)\n\n- first\n"
PINS = """a==1 ; python_full_version < '3.12' \\
    --hash=sha256:00 \\
    --hash=sha256:01
a==2 ; python_full_version >= '3.12' \\
    --hash=sha256:02
b==3 ; sys_platform == 'win32' \\
    --hash=sha256:03
c==4 \\
    --hash=sha256:04
"""


def project(version: str) -> str:
    """Return the text of a pyproject.toml."""
    return f'[project]\nversion = "{version}"\n'


@pytest.mark.parametrize(
    ("version", "tag", "notes"),
    [("0.1.0", "v0.1.0", "- first\n"), ("0.1.0", None, "- first\n"), ("0.2.0.dev0", None, "- new\n")],
)
def test_a_release_has_the_section_of_its_version(version: str, tag: str | None, notes: str) -> None:
    """The notes are the section of the changelog; a development version has the section of the version that it becomes."""
    assert read_release(project(version), CHANGELOG, tag) == (version, notes)


@pytest.mark.parametrize(
    ("version", "tag", "message"),
    [
        ("0.1.0", "v0.1.1", "the tag v0.1.1 is not v0.1.0"),
        ("0.2.0.dev0", "v0.2.0", "the tag v0.2.0 is not v0.2.0.dev0"),
        ("0.2.0.dev0", "v0.2.0.dev0", "the tag v0.2.0.dev0 is not"),
        ("0.2.0", "v0.2.0", "CHANGELOG.md: 0.2.0 is unreleased there"),
        ("0.3.0", "v0.3.0", 'CHANGELOG.md: no section "## 0.3.0 (YYYY-MM-DD)"'),
        ("1.0", None, "pyproject.toml: version 1.0 is neither"),
    ],
)
def test_what_does_not_agree_is_refused(version: str, tag: str | None, message: str) -> None:
    """A tag of another version, a version without a dated section, and a development version with a tag are refused."""
    with pytest.raises(ReleaseError, match=re.escape(message)):
        read_release(project(version), CHANGELOG, tag)


def test_this_checkout_can_be_released() -> None:
    """Version and changelog of the checkout agree, and its notes have the kinds of changes."""
    release = read_release((ROOT / "pyproject.toml").read_text(), (ROOT / "CHANGELOG.md").read_text(), None)
    assert "### Quotas" in release.notes


@pytest.mark.parametrize(("python", "lines"), [("3.11.9", ["a==1", "c==4"]), ("3.12.0", ["a==2", "c==4"])])
def test_only_packages_of_the_image_are_listed(python: str, lines: list[str]) -> None:
    """Of the pinned requirements those apply whose marker is true in the image, each with all its hashes."""
    found = list(requirements_for(PINS, python))
    assert [one.split()[0] for one in found] == lines
    assert found[0].count("--hash=") == {"a==1": 2, "a==2": 1}[lines[0]]


@pytest.mark.parametrize("name", ["image", "meter"])
def test_every_pinned_package_is_read(name: str) -> None:
    """Every package of a file of requirements is found, with the Python of the image's base."""
    text = (ROOT / f"requirements/{name}.txt").read_text()
    python = image_python((ROOT / "Dockerfile").read_text())
    pinned = set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
    assert {one.split("==")[0] for one in requirements_for(text, python)} == pinned
    assert "".join(requirements_for(text, python)).count("--hash=") <= text.count("--hash=")


def test_the_workflow_runs_the_target_and_pins_its_actions() -> None:
    """The workflow builds by `make release`, twice, and each action is named by a commit."""
    text = (ROOT / ".github/workflows/release.yml").read_text()
    assert len(re.findall(r"^ +make release TAG=", text, re.MULTILINE)) == 2
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)
    assert re.search(r"^release:", (ROOT / "Makefile").read_text(), re.MULTILINE)
