"""Finds missing file sets: those that exist and are in no batch, and those that a successor names and that do not exist."""

from collections.abc import Set as AbstractSet
from pathlib import Path

from metering_format.places import MANIFESTS
from pipeline.completeness import Completeness, completeness_of
from pipeline.errors import IncompleteError
from pipeline.files import check_readable
from pipeline.manifest import by_run, manifest_paths, read_manifest
from pipeline.removed import removed_runs
from pipeline.storage.paths import below
from pipeline.stream.settings import StreamSettings
from pipeline.text import counted


def check_none_left_out(directory: Path, settings: StreamSettings, landed: AbstractSet[str]) -> int:
    """Return the number of file sets of `directory` in batches; these are all that existed when the last batch was planned.

    The rows of every batch have been compared with its manifests, so no row is left out when no file set is.

    Args:
        directory: the source, or where a topic's files have landed.
        settings: the settings of the stream.
        landed: the file sets of all batches.

    Raises:
        BadInputError: a directory cannot be read.
        IncompleteError: a file set that existed is in no batch, for example a late one that the source took for an old one.
    """
    check_readable(directory / MANIFESTS)
    there = {below(directory, path) for path in manifest_paths(directory)}
    began = _began(settings.checkpoint)
    still = [path for path in sorted(there - landed) if (directory / path).stat().st_mtime < began]
    if still:
        raise IncompleteError(f"{settings.source}: {counted(len(still), 'file set')} left out, {still[0]} first; use a new --checkpoint")
    return len(there & landed)


def landed_so_far(directory: Path, landed: AbstractSet[str]) -> Completeness:
    """Return the completeness of all batches: decisions that no file set contains, and file sets that only a successor names."""
    paths = [directory / path for path in sorted(landed)]
    manifests = [read_manifest(path) for path in paths if path.is_file()]  # retention's ledger names those that it removed since
    return completeness_of(by_run(manifests), removed_runs(directory))


def _began(checkpoint: Path) -> float:
    """Return the time at which the last batch was planned. Later file sets are for the next call."""
    return max((path.stat().st_mtime for path in (checkpoint / "offsets").glob("[0-9]*")), default=0.0)
