"""The packages of an image as a CycloneDX document, from its pinned requirements."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from release.errors import ReleaseError

_BASE: Final = re.compile(r"^ARG BASE=python:(\d+\.\d+\.\d+)-", re.MULTILINE)
_PINNED: Final = re.compile(r"^(?P<requirement>[^\s#][^\\\n]*?)\s*\\?\n(?P<hashes>(?:[ \t]+--hash=.*\n?)+)", re.MULTILINE)


def image_python(dockerfile: str) -> str:
    """Return the version of Python in the base that a Dockerfile names.

    Raises:
        ReleaseError: its base is not a Python image.
    """
    found = _BASE.search(dockerfile)
    if found is None:
        raise ReleaseError("Dockerfile: ARG BASE is not python:X.Y.Z-...")
    return found[1]


def requirements_for(requirements: str, python: str) -> Iterator[str]:
    """Yield the pinned requirements, with their hashes, that apply to a CPython of this version on Linux."""
    environment = {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    for found in _PINNED.finditer(requirements):
        requirement = Requirement(found["requirement"])
        if requirement.marker is None or requirement.marker.evaluate(environment):
            requirement.marker = None
            yield f"{requirement} \\\n{found['hashes']}"


def write_sbom(source: Path, target: str, requirements: Path, to: Path) -> None:
    """Write the document of one image.

    Args:
        source: the sources of the release.
        target: the image, for the message of an error.
        requirements: its pinned requirements.
        to: the file to write.

    Raises:
        ReleaseError: the tool failed.
    """
    pinned = "\n".join(requirements_for(requirements.read_text(), image_python((source / "Dockerfile").read_text())))
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "requirements",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        "-o",
        str(to),
        "-",
    ]
    done = subprocess.run(command, cwd=source, input=pinned, text=True, capture_output=True, check=False)  # noqa: S603 - its own arguments
    if done.returncode:
        raise ReleaseError(f"the packages of {target} cannot be listed: {' '.join(done.stderr.split())[-500:]}")
