"""Copies files of an object store to this machine, for readers that need local files."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from metering_format.manifest import FileEntry, Manifest
from pipeline.errors import IncompleteError, missing_file
from pipeline.storage.paths import StorePath

THREADS: Final = 8
_CHUNK: Final = 2**20


def copy_files(directory: StorePath, manifests: Sequence[Manifest], to: Path) -> None:
    """Copy the files of these manifests to a local directory, and compare each with its SHA-256.

    Raises:
        IncompleteError: a file is missing or has changed.
        BadInputError: the store refuses, or cannot be reached.
        OSError: the local disk is full.
    """
    wanted = [(manifest, entry) for manifest in manifests for entry in manifest.files]
    for folder in {(to / entry.path).parent for _, entry in wanted}:
        folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(THREADS) as threads:
        for copied in [threads.submit(_copy, directory, manifest, entry, to) for manifest, entry in wanted]:
            try:
                copied.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise


def _copy(directory: StorePath, manifest: Manifest, entry: FileEntry, to: Path) -> None:
    path = directory / entry.path
    digest = hashlib.sha256()
    try:
        source = path.open()
    except FileNotFoundError as error:
        raise missing_file(path, manifest.file_set) from error
    with source, (to / entry.path).open("wb") as file:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    if digest.hexdigest() != entry.sha256:
        raise IncompleteError(f"{path}: its SHA-256 is not the one in manifest {manifest.file_set}; restore it")
