"""Copies of the files of an object store, whose file sets are changed in the copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final

from metering_format.places import MANIFESTS
from proxy.metering.upload.store_files import StoreError, StoreFiles

THREADS: Final = 8
Hour = tuple[str, ...]
"""The part of a path that the manifests and files of one hour of a proxy have in common."""


def hour_of(path: str) -> Hour:
    """Return the hour of a manifest or a file."""
    return PurePosixPath(path).parts[1:-1]


def by_hour(paths: Iterable[str]) -> Mapping[Hour, list[str]]:
    """Return the paths of each hour; none for others."""
    found: dict[Hour, list[str]] = defaultdict(list)
    for path in paths:
        found[hour_of(path)].append(path)
    return found


def manifests_among(paths: Iterable[str]) -> list[str]:
    """Return the paths of manifests."""
    return [path for path in paths if path.startswith(f"{MANIFESTS}/") and path.endswith(".json")]


def all_files(store: StoreFiles) -> dict[str, int]:
    """Return the sizes of all files of a metering directory, by their paths.

    Raises:
        StoreError: it has no manifest; or the store refuses, or cannot be reached.
    """
    sizes = store.below("")
    if not manifests_among(sizes):
        raise StoreError(f"{store.name}: not a metering directory; name a directory that a proxy uploads to")
    return sizes


def copy_files(store: StoreFiles, paths: Sequence[str], to: Path) -> list[str]:
    """Copy files, several at a time; return the paths of those that do not exist.

    Raises:
        StoreError: the store refuses, or cannot be reached.
        OSError: the copy cannot be written.
    """
    missing = []
    with ThreadPoolExecutor(THREADS) as threads:
        for path, data in zip(paths, threads.map(store.get, paths), strict=True):
            if data is None:
                missing.append(path)
                continue
            place = to / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return missing
