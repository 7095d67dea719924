"""`python -m release [--tag TAG] [--to FOLDER]`: wheel, source distribution, packages of the images, notes and checksums of one commit.

Only what is committed is built, and times are those of the commit: two builds of one commit with the tools of requirements/release.txt are
equal byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from release.errors import ReleaseError
from release.sbom import write_sbom
from release.versions import read_release

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = {"proxy": "requirements/image.txt", "meter": "requirements/meter.txt"}
PREFIX: Final = "kafka_sluice-"
SUMS: Final = "SHA256SUMS"
BAD_INPUT: Final = 2


def build(tag: str | None, to: Path) -> list[Path]:
    """Build a release of HEAD into a folder; return its files.

    Raises:
        ReleaseError: the checkout has changes, version and changelog do not agree, the folder has other files, or a tool failed.
    """
    if _run("git", "status", "--porcelain", "--untracked-files=no"):
        raise ReleaseError("the checkout has changes that are not committed; commit or stash them")
    with tempfile.TemporaryDirectory(prefix="sluice-release-") as folder:
        source = Path(folder)
        _unpack(source)
        release = read_release((source / "pyproject.toml").read_text(), (source / "CHANGELOG.md").read_text(), tag)
        _empty(to)
        stem = f"{PREFIX}{release.version}"
        _hatch(source, to)
        for image, requirements in IMAGES.items():
            write_sbom(source, image, source / requirements, to / f"{stem}-{image}.cdx.json")
    (to / f"{stem}-notes.md").write_text(release.notes)
    built = sorted(to.iterdir())
    (to / SUMS).write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built))
    return [*built, to / SUMS]


def _empty(to: Path) -> None:
    """Make a folder, and remove an earlier release from it.

    Raises:
        ReleaseError: something else is in it.
    """
    to.mkdir(parents=True, exist_ok=True)
    others = sorted(path.name for path in to.iterdir() if path.name != SUMS and not path.name.startswith(PREFIX))
    if others:
        raise ReleaseError(f"{to}: {others[0]} is not of a release; name an empty folder with TO=")
    for path in to.iterdir():
        path.unlink()


def _unpack(source: Path) -> None:
    """Write the files of HEAD into a folder."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S607 - git is on the path
    subprocess.run(["tar", "-x"], cwd=source, check=True, input=archive)  # noqa: S607 - as above


def _hatch(source: Path, to: Path) -> None:
    """Build wheel and source distribution, with the time of the commit in them.

    Raises:
        ReleaseError: a build failed.
    """
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _run("git", "log", "-1", "--format=%ct")}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(to)]
    done = subprocess.run(command, cwd=source, env=environment, text=True, capture_output=True, check=False)  # noqa: S603 - own arguments
    if done.returncode:
        raise ReleaseError(f"hatchling failed: {' '.join(done.stderr.split())[-500:]}")


def _run(*command: str) -> str:
    """Return what a command prints in the checkout.

    Raises:
        ReleaseError: it failed.
    """
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)  # noqa: S603 - git with own arguments
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)}: {' '.join(done.stderr.split())}")
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    """Build a release and print its files; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release")
    parser.add_argument("--tag", help="tag that is released, such as v0.1.0; version and changelog must agree with it")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder to write; an earlier release in it is removed")
    options = parser.parse_args(arguments)
    try:
        built = build(options.tag or None, options.to.absolute())
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return BAD_INPUT
    for path in built:
        sys.stdout.write(f"{path.stat().st_size:>10,} {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
