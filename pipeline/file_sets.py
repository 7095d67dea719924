"""All file sets of a metering directory."""

from pathlib import Path

from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import RunKey, check_files, find_manifests


def checked_runs(directory: Path, *, every_byte: bool = False) -> dict[RunKey, list[FileSet]]:
    """Return all file sets by run, after a look at whether the promised files are there, or at all that is in them.

    Raises:
        IncompleteError: a file is missing or has changed.
    """
    manifests = find_manifests(directory)
    check_files(directory, manifests, hashes=every_byte)
    return runs_of(directory, manifests)
