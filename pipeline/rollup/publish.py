"""Publishes tables from a staging directory. Each partition is renamed, so a reader sees either the old or the new rows."""

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pipeline.rollup.inputs import Hour

STAGING: Final = ".staging"


@contextlib.contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """Yield a staging directory on the same file system, and remove it at the end of the block."""
    place = directory / STAGING
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.rmdir()  # a directory that the failed run created


def publish_hours(directory: Path, table: str, hours: Iterable[Hour]) -> None:
    """Replace the published hours of a table by the staged ones."""
    for date, hour in hours:
        _replace(directory, Path(table, f"date={date}", f"hour={hour}"))


def publish_days(directory: Path, table: str, days: Iterable[str]) -> None:
    """Replace the published days of a table by the staged ones."""
    for date in days:
        _replace(directory, Path(table, f"date={date}"))


def publish_batch(directory: Path, table: str, dates: Iterable[str], batch: str) -> None:
    """Add a staged batch to the published ones, which do not change."""
    for date in dates:
        _replace(directory, Path(table, f"date={date}", f"batch={batch}"))


def take_back_batch(directory: Path, batch: str) -> None:
    """Remove a batch of adjustments that an interrupted run published and did not enter into the ledger."""
    for place in directory.glob(f"*_adjustment/date=*/batch={batch}"):
        shutil.rmtree(place)


def _replace(directory: Path, partition: Path) -> None:
    staged, final = directory / STAGING / partition, directory / partition
    old = directory / STAGING / "old" / partition
    if final.exists():
        old.parent.mkdir(parents=True, exist_ok=True)
        final.rename(old)
    if staged.exists():
        final.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(final)
