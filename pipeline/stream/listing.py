"""Lists the manifests of a metering directory again and again. On a local disk only directories that have changed are read."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metering_format.places import MANIFESTS
from pipeline.errors import BadInputError
from pipeline.manifest import FoundManifest, read_found
from pipeline.storage.paths import AnyPath, StorePath, expect_files

SETTLED_NS: Final = 2_000_000_000
"""Age from which the time of a directory tells that it has not changed since: file systems have ticks of up to a second."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A metering directory at a time.

    Attributes:
        directory: its path.
        sizes: length of each manifest in bytes, by its path below the directory.
    """

    directory: AnyPath
    sizes: dict[str, int]

    def read(self, paths: Iterable[str]) -> list[FoundManifest]:
        """Read manifests.

        Raises:
            BadInputError: one cannot be used.
        """
        wanted = [self.directory / path for path in paths]
        expect_files(wanted)
        return [read_found(self.directory, path) for path in wanted]


class Listing:
    """Lists the manifests of one directory.

    Args:
        directory: the metering directory.
    """

    def __init__(self, directory: AnyPath) -> None:
        self._directory = directory
        self._read: dict[str, tuple[int, dict[str, int], list[str]]] = {}

    def now(self) -> Listed:
        """Return what is there.

        Raises:
            BadInputError: a directory cannot be read, or a store refuses.
        """
        place = self._directory / MANIFESTS
        found = self._in_store(place) if isinstance(place, StorePath) else self._on_disk(place)
        sizes = {f"{MANIFESTS}/{below}": size for below, size in found.items()}
        directory = self._directory
        return Listed(directory.with_sizes(sizes) if isinstance(directory, StorePath) else directory, sizes)

    @staticmethod
    def _in_store(place: StorePath) -> dict[str, int]:
        return {below: size for below, size in place.sizes().items() if _is_manifest(below.rpartition("/")[2])}

    def _on_disk(self, place: Path) -> dict[str, int]:
        found: dict[str, int] = {}
        waiting, read = [""], self._read
        self._read = {}
        while waiting:
            below = waiting.pop()
            try:
                self._read[below] = self._directory_at(place / below, read.get(below))
            except FileNotFoundError:  # retention removes empty directories
                continue
            except OSError as error:
                text = f"{error.filename}: cannot be read ({error.strerror}); run this command as its owner, or make it readable"
                raise BadInputError(text) from error
            _, files, folders = self._read[below]
            before = f"{below}/" if below else ""
            found.update((before + name, size) for name, size in files.items())
            waiting += (before + name for name in folders)
        return found

    @staticmethod
    def _directory_at(place: Path, known: tuple[int, dict[str, int], list[str]] | None) -> tuple[int, dict[str, int], list[str]]:
        """Return the time of a directory, or 0 if it may change within the same tick, with its files and its directories."""
        changed_ns = place.stat().st_mtime_ns
        if known is not None and known[0] == changed_ns:
            return known
        settled = time.time_ns() - changed_ns > SETTLED_NS
        files, folders = {}, []
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif _is_manifest(entry.name):
                    files[entry.name] = entry.stat().st_size
        return (changed_ns if settled else 0), files, folders


def _is_manifest(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")
