"""Paths of files that tests make, all under build/ in the checkout."""

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.side_by_side import worker

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
LOGS = BUILD / "logs"
RUN = BUILD / "run"


def log_file(name: str) -> Path:
    """Return an empty file for a child's output; it stays after the run, and the next run overwrites it."""
    LOGS.mkdir(parents=True, exist_ok=True)
    number, count = worker()
    path = LOGS / (f"{name}.log" if count == 1 else f"{name}-{number}.log")
    path.write_bytes(b"")
    return path


def make_directory(name: str) -> Path:
    """Make a directory that is removed when this process ends, at the latest."""
    RUN.mkdir(parents=True, exist_ok=True)
    _sweep()
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-{os.getpid()}-", dir=RUN))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@contextlib.contextmanager
def temporary_directory(name: str) -> Iterator[Path]:
    """Make a directory for the length of a block."""
    directory = make_directory(name)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sweep() -> None:
    """Remove directories of killed runs: their process id is part of the name."""
    for directory in RUN.iterdir():
        owner = directory.name.split("-")[-2] if directory.name.count("-") >= 2 else ""
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(directory, ignore_errors=True)
