"""The version of a release and its section in the changelog."""

from __future__ import annotations

import re
import tomllib
from typing import Final, NamedTuple

from release.errors import ReleaseError

_FINAL: Final = re.compile(r"\d+\.\d+\.\d+")
_DEV: Final = re.compile(r"(?P<base>\d+\.\d+\.\d+)\.dev\d+")
_SECTION: Final = re.compile(
    r"^## (?P<version>\S+) \((?P<when>unreleased|\d{4}-\d\d-\d\d)\)\n(?P<text>.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE
)


class Release(NamedTuple):
    """A version with its notes.

    Attributes:
        version: as in pyproject.toml.
        notes: its section of the changelog, without the heading.
    """

    version: str
    notes: str


def read_release(pyproject: str, changelog: str, tag: str | None) -> Release:
    """Return the release that the texts of pyproject.toml and CHANGELOG.md describe.

    Args:
        tag: the tag that is released, such as v0.1.0; None: no tag, as in a trial.

    Raises:
        ReleaseError: version, changelog and tag do not agree.
    """
    version = str(tomllib.loads(pyproject)["project"]["version"])
    is_dev = _DEV.fullmatch(version)
    if is_dev is None and _FINAL.fullmatch(version) is None:
        raise ReleaseError(f"pyproject.toml: version {version} is neither X.Y.Z nor X.Y.Z.devN")
    if tag is not None and (is_dev or tag != f"v{version}"):
        raise ReleaseError(f"the tag {tag} is not v{version}; write the version of the tag into pyproject.toml, or tag another commit")
    base = is_dev["base"] if is_dev else version
    section = next((found for found in _SECTION.finditer(changelog) if found["version"] == base), None)
    if section is None:
        raise ReleaseError(f'CHANGELOG.md: no section "## {base} (YYYY-MM-DD)"; write what operators notice')
    if is_dev is None and section["when"] == "unreleased":
        raise ReleaseError(f"CHANGELOG.md: {base} is unreleased there; write the date of the release into the heading")
    return Release(version, section["text"].strip() + "\n")
