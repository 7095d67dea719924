"""A release, built from a clone of HEAD with the tools of requirements/release.txt."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.places import BUILD, ROOT

RELEASE_PYTHON = BUILD / "release/bin/python"
"""The environment of `make release`, which also has pipx and uv."""
BUILD_SECONDS_MAX = 300


def clone_of_head(to: Path, of: Path = ROOT) -> Path:
    """Clone HEAD of a checkout into a folder that does not exist yet."""
    subprocess.run(["git", "clone", "--quiet", "--no-local", "--depth", "1", f"file://{of}", str(to)], check=True)
    return to


def make_release(checkout: Path, to: Path, *, umask: int = 0o022, environment: Mapping[str, str] | None = None) -> Path:
    """Build a release from a clone; return its folder."""
    command = [str(RELEASE_PYTHON), "-m", "release", "--to", str(to)]
    variables = os.environ | dict(environment or {})
    subprocess.run(command, cwd=checkout, env=variables, check=True, umask=umask, timeout=BUILD_SECONDS_MAX, stdout=subprocess.DEVNULL)
    return to
