"""Finds missing file sets: those that exist and are in no batch, and predecessors that are named and do not exist."""

from pathlib import Path

from metering_format.places import MANIFESTS
from pipeline.completeness import Completeness, completeness_of
from pipeline.errors import IncompleteError
from pipeline.files import check_readable
from pipeline.manifest import by_run, manifest_paths, read_manifest
from pipeline.removed import removed_runs
from pipeline.stream.ledger import file_sets_before
from pipeline.stream.settings import StreamSettings
from pipeline.text import counted


def check_none_left_out(directory: Path, settings: StreamSettings) -> int:
    """Return how many file sets of `directory` are landed: all that were there when the last batch was planned.

    Every batch has been compared with the manifests of its file sets, row by row added up, so no row is left out if no file set is.

    Raises:
        BadInputError: a directory cannot be read.
        IncompleteError: one that was there is in no batch, such as a late one that the source took for old.
    """
    check_readable(directory / MANIFESTS)
    there = {str(path.relative_to(directory)) for path in manifest_paths(directory)}
    landed = file_sets_before(settings.out, 2**62)
    began = _began(settings.checkpoint)
    still = [path for path in sorted(there - landed) if (directory / path).stat().st_mtime < began]
    if still:
        raise IncompleteError(f"{settings.source}: {counted(len(still), 'file set')} left out, {still[0]} first; use a new --checkpoint")
    return len(there & landed)


def landed_so_far(directory: Path, out: Path) -> Completeness:
    """Return what is missing among the file sets of all batches: numbers that none has, and those that a later one names."""
    paths = [directory / path for path in sorted(file_sets_before(out, 2**62))]
    manifests = [read_manifest(path) for path in paths if path.is_file()]  # what retention removed since, its ledger names
    return completeness_of(by_run(manifests), removed_runs(directory))


def _began(checkpoint: Path) -> float:
    """When the last batch was planned: what came after it is for the next call."""
    return max((path.stat().st_mtime for path in (checkpoint / "offsets").glob("[0-9]*")), default=0.0)
