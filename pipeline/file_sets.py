"""Finds all file sets of a metering directory and checks their files."""

from pathlib import Path

from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import RunKey, check_files, find_manifests


def checked_runs(directory: Path, *, every_byte: bool = False) -> dict[RunKey, list[FileSet]]:
    """Return all file sets by (proxy_id, run_id), after a check that the listed files are present.

    Args:
        directory: the metering directory.
        every_byte: also compare the SHA-256 of every file with its manifest.

    Raises:
        BadInputError: the directory or a manifest cannot be used.
        IncompleteError: a file is missing or has changed.
    """
    manifests = find_manifests(directory)
    check_files(directory, manifests, hashes=every_byte)
    return runs_of(directory, manifests)
