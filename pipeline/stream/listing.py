"""Lists the manifests of a metering directory again and again. On a local disk only folders that have changed are read."""

import contextlib
import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from metering_format.places import MANIFESTS
from pipeline.errors import BadInputError
from pipeline.manifest import FoundManifest, read_found
from pipeline.storage.paths import AnyPath, StorePath, expect_files

SETTLED_NS: Final = 2_000_000_000
"""Age from which the time of a folder tells that it has not changed since: file systems have ticks of up to a second."""
_ABSENT_NS: Final = -1
_UNKNOWN_NS: Final = 0
"""Time of a folder that is read in any case: it has not been read, or may have changed within the same tick."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A metering directory as it was when `Listing.now` was called last.

    Attributes:
        directory: its path.
        sizes: length of each manifest in bytes, by its path below the directory. The next call changes it.
        new: paths of the manifests that were not there at the call before.
    """

    directory: AnyPath
    sizes: dict[str, int]
    new: Collection[str]

    def read(self, paths: Iterable[str]) -> list[FoundManifest]:
        """Read manifests.

        Raises:
            BadInputError: one cannot be used.
        """
        wanted = [self.directory / path for path in paths]
        expect_files(wanted)
        return [read_found(self.directory, path) for path in wanted]


class _Folder(NamedTuple):
    """A folder when it was read: its time, and the length of each of its manifests by name."""

    changed_ns: int
    files: dict[str, int]


_NO_FOLDER: Final = _Folder(_UNKNOWN_NS, {})


class Listing:
    """Lists the manifests of one directory. What is there already costs a look at the time of each folder, and in a store its listing.

    Args:
        directory: the metering directory.
    """

    def __init__(self, directory: AnyPath) -> None:
        self._directory = directory
        self._sizes: dict[str, int] = {}
        self._folders = {MANIFESTS: _NO_FOLDER}

    def now(self) -> Listed:
        """Return what is there.

        Raises:
            BadInputError: a folder cannot be read, or a store refuses.
        """
        if isinstance(self._directory, StorePath):
            return self._in_store(self._directory)
        try:
            return Listed(self._directory, self._sizes, self._on_disk())
        except OSError as error:
            text = f"{error.filename}: cannot be read ({error.strerror}); run this command as its owner, or make it readable"
            raise BadInputError(text) from error

    def _in_store(self, directory: StorePath) -> Listed:
        found = (directory / MANIFESTS).sizes()
        sizes = {f"{MANIFESTS}/{below}": size for below, size in found.items() if _is_manifest(below.rpartition("/")[2])}
        new, self._sizes = sizes.keys() - self._sizes.keys(), sizes
        return Listed(directory.with_sizes(sizes), sizes, new)

    def _on_disk(self) -> list[str]:
        """Bring the sizes up to date; return the new paths."""
        new: list[str] = []
        before = f"{self._directory}/"
        waiting = [below for below, folder in self._folders.items() if _changed_ns(before + below) != folder.changed_ns]
        while waiting:
            below = waiting.pop()
            was = self._folders.get(below, _NO_FOLDER)
            now, folders = _read(before + below)
            if now is _NO_FOLDER and below != MANIFESTS:
                self._folders.pop(below, None)
            else:
                self._folders[below] = now
            waiting += (path for name in folders if (path := f"{below}/{name}") not in self._folders)
            for name in was.files.keys() - now.files.keys():
                del self._sizes[f"{below}/{name}"]
            self._sizes.update((f"{below}/{name}", size) for name, size in now.files.items())
            new += (f"{below}/{name}" for name in now.files.keys() - was.files.keys())
        return new


def _changed_ns(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT_NS


def _read(place: str) -> tuple[_Folder, list[str]]:
    """Return a folder, and the names of the folders in it."""
    files, folders = {}, []
    try:
        changed_ns = os.stat(place).st_mtime_ns
        settled = time.time_ns() - changed_ns > SETTLED_NS
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif _is_manifest(entry.name):
                    with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                        files[entry.name] = entry.stat().st_size
    except (FileNotFoundError, NotADirectoryError):  # retention removes empty folders
        return _NO_FOLDER, []
    return _Folder(changed_ns if settled else _UNKNOWN_NS, files), folders


def _is_manifest(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")
