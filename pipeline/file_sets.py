"""Finds all file sets of a metering directory and checks their files."""

from collections.abc import Iterable

from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import FoundManifest, RunKey, check_files, found_manifests, in_order
from pipeline.storage.paths import AnyPath, expect_files


def checked_runs(directory: AnyPath, *, every_byte: bool = False) -> dict[RunKey, list[FileSet]]:
    """Return all file sets by (proxy_id, run_id), after a check that the listed files are present.

    Args:
        directory: the metering directory.
        every_byte: also compare the SHA-256 of every file with its manifest.

    Raises:
        BadInputError: the directory or a manifest cannot be used.
        IncompleteError: a file is missing or has changed.
    """
    return runs_checked(directory, found_manifests(directory), every_byte=every_byte)


def runs_checked(directory: AnyPath, found: Iterable[FoundManifest], *, every_byte: bool = False) -> dict[RunKey, list[FileSet]]:
    """Return the same of manifests that were read.

    Raises:
        BadInputError: two different manifests have the same name.
        IncompleteError: a file is missing or has changed.
    """
    manifests = in_order(one.manifest for one in found)
    check_files(directory, manifests, hashes=every_byte)
    expect_files(directory / entry.path for manifest in manifests for entry in manifest.files)
    return runs_of(directory, manifests)
