"""Paths of input: on this machine, or in an object store."""

import fnmatch
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final
from weakref import WeakValueDictionary

from pipeline.errors import BadInputError
from pipeline.storage.read_ahead import ReadAhead
from sluice.object_store import SCHEMES, ObjectStore, ObjectStoreError, first_line, is_url, open_object_store, shown_url

FILE_SCHEME: Final = "file://"
_REMEDY: Final = "check the URL, the credentials and the endpoint, then run this again"


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The length of a file in bytes, in the form of `os.stat_result`."""

    st_size: int


class StoreDirectory:
    """One directory of an object store, with what its paths share: one listing, and the files that were read.

    Args:
        store: the directory.
        sizes: the listing, as `sizes`; None: the directory is listed when it is needed.
    """

    def __init__(self, store: ObjectStore, sizes: dict[str, int] | None = None) -> None:
        self.store = store
        if sizes is not None:
            self.sizes = sizes
        self.read_ahead = ReadAhead(self._read, lambda below: self.sizes.get(below, 0))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The length of each file, by its path below the directory; "" if the URL names a file.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
        """
        from pyarrow import fs

        root = self.store.root
        try:
            found = self.store.files.get_file_info(fs.FileSelector(root, recursive=True))
        except FileNotFoundError:
            found = [self.store.files.get_file_info(root)]
        except OSError as error:
            raise BadInputError(f"{self.store.name}: cannot be listed ({first_line(error)}); {_REMEDY}") from error
        return {info.path.removeprefix(root).lstrip("/"): info.size for info in found if info.is_file}

    def open(self, below: str) -> Any:
        """Open a file to read it from its begin to its end.

        Raises:
            FileNotFoundError: there is no such file.
            BadInputError: the store refuses, or cannot be reached.
        """
        try:
            return self.store.files.open_input_stream(self.store.path(below))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unreadable(below, error) from error

    def _read(self, below: str) -> Any:
        """Return the content of a file as a `pyarrow.Buffer`."""
        with self.open(below) as file:
            try:
                return file.read_buffer()
            except OSError as error:
                raise self._unreadable(below, error) from error

    def write(self, below: str, data: bytes) -> None:
        """Write a file; it appears when it is complete.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
        """
        try:
            with self.store.files.open_output_stream(self.store.path(below)) as file:
                file.write(data)
        except OSError as error:
            raise BadInputError(f"{self.store.name}/{below}: cannot be written ({first_line(error)}); {_REMEDY}") from error

    def remove(self, below: str) -> None:
        """Remove a file that may not exist.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
        """
        try:
            self.store.files.delete_file(self.store.path(below))
        except FileNotFoundError:
            return
        except OSError as error:
            raise BadInputError(f"{self.store.name}/{below}: cannot be removed ({first_line(error)}); {_REMEDY}") from error

    def _unreadable(self, below: str, error: OSError) -> BadInputError:
        return BadInputError(f"{self.store.name}/{below}: cannot be read ({first_line(error)}); {_REMEDY}")


class StorePath:
    """A path in an object store, with the methods of `pathlib.Path` that readers use."""

    __slots__ = ("_below", "_directory")

    def __init__(self, directory: StoreDirectory, below: str = "") -> None:
        self._directory, self._below = directory, below

    def __truediv__(self, below: object) -> "StorePath":
        """Return the path of a file or directory below this one."""
        return StorePath(self._directory, str(PurePosixPath(self._below, str(below))))

    def __str__(self) -> str:
        """Return the URL for messages."""
        name = self._directory.store.name
        return f"{name}/{self._below}" if self._below else name

    @property
    def url(self) -> str:
        """The URL of the directory, to open it in another process."""
        return self._directory.store.url

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(str(self)).name

    @property
    def stem(self) -> str:
        """The name without its end."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot on."""
        return PurePosixPath(self.name).suffix

    @property
    def location(self) -> str:
        """The path in the store's own file system."""
        return self._directory.store.path(self._below)

    def sizes(self) -> dict[str, int]:
        """Return the length of each file that is below this directory now, by its path below it.

        Raises:
            BadInputError: the store refuses, or cannot be reached.
        """
        return {below: size for below, size in StoreDirectory(self._here()).sizes.items() if below}

    def with_sizes(self, sizes: dict[str, int]) -> "StorePath":
        """Return the same directory with a listing of some of its files, by their path below it."""
        return StorePath(StoreDirectory(self._here(), sizes))

    def _here(self) -> ObjectStore:
        store = self._directory.store
        return ObjectStore(f"{store.url}/{self._below}".rstrip("/"), str(self), store.files, self.location)

    def relative_to(self, other: "StorePath") -> PurePosixPath:
        """Return the path below another one of the same directory."""
        return PurePosixPath(self._below).relative_to(other._below)

    def is_file(self) -> bool:
        """Whether the directory's listing has this file."""
        return self._below in self._directory.sizes

    def is_dir(self) -> bool:
        """Whether the directory's listing has a file below this path."""
        return any(True for _ in self._files())

    def stat(self) -> FileStatus:
        """Return the length of the file.

        Raises:
            FileNotFoundError: the listing does not have it.
        """
        size = self._directory.sizes.get(self._below)
        if size is None:
            raise FileNotFoundError(2, "is missing", str(self))
        return FileStatus(size)

    def rglob(self, pattern: str) -> Iterator["StorePath"]:
        """Yield all files below this path with such a name."""
        for below in self._files():
            if fnmatch.fnmatchcase(PurePosixPath(below).name, pattern):
                yield StorePath(self._directory, below)

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        """Yield the files with such a name that are directly below this path."""
        for path in self.rglob(pattern):
            if str(PurePosixPath(path._below).parent) == (self._below or "."):
                yield path

    def open(self, _mode: str = "rb") -> Any:
        """Open the file to read its bytes from begin to end, as a context manager."""
        return self._directory.open(self._below)

    def read_buffer(self) -> Any:
        """Return the content as a `pyarrow.Buffer`; the files that are expected next are read meanwhile.

        Raises:
            FileNotFoundError: there is no such file.
            BadInputError: the store refuses, or cannot be reached.
        """
        return self._directory.read_ahead.get(self._below)

    def read_bytes(self) -> bytes:
        """Return the content."""
        data: bytes = self.read_buffer().to_pybytes()
        return data

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content as text, with the line ends of this machine."""
        return io.TextIOWrapper(io.BytesIO(self.read_bytes()), encoding=encoding).read()

    def read_now(self) -> bytes | None:
        """Return the content as it is in the store now; None: there is no such file."""
        try:
            with self.open() as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None

    def write_bytes(self, data: bytes) -> None:
        """Write the file. The listing does not have it."""
        self._directory.write(self._below, data)

    def unlink(self) -> None:
        """Remove the file, which may not exist."""
        self._directory.remove(self._below)

    def expect(self, paths: Iterable["StorePath"]) -> None:
        """Announce the files that are read next, in order."""
        self._directory.read_ahead.expect(path._below for path in paths)

    def _files(self) -> Iterator[str]:
        prefix = f"{self._below}/" if self._below else ""
        return (below for below in self._directory.sizes if below.startswith(prefix) and below)


AnyPath = Path | StorePath

_OPEN: Final[WeakValueDictionary[str, StoreDirectory]] = WeakValueDictionary()
"""The directory that was opened last for each URL, for the parts of a job in the same process."""


def path_of(text: str) -> AnyPath:
    """Return the path of a file or directory: of this machine, or a URL of an object store, which is listed anew.

    Raises:
        BadInputError: the URL is invalid.
    """
    if not is_url(text):
        return Path(text.removeprefix(FILE_SCHEME))
    try:
        directory = _OPEN[text] = StoreDirectory(open_object_store(text))
    except ObjectStoreError as error:
        raise BadInputError(str(error)) from error
    return StorePath(directory)


def is_of_hadoop(text: str) -> bool:
    """Whether a text is a URL that no other file system than Hadoop's knows."""
    return is_url(text) and text.partition("://")[0] not in SCHEMES


def share_with_jobs(url: str, directory: StoreDirectory) -> None:
    """Let `path_of_job` find a directory, as long as the caller keeps it."""
    _OPEN[url] = directory


def path_of_job(text: str) -> AnyPath:
    """Return the same for a part of a job. Parts in one process share the listing, and the files that were read, with the command.

    Raises:
        BadInputError: the URL is invalid.
    """
    directory = _OPEN.get(text)
    return path_of(text) if directory is None else StorePath(directory)


def listed_below(directory: AnyPath, name: str) -> AnyPath:
    """Return a directory below another one. In an object store it is listed now, and nothing else is.

    Raises:
        BadInputError: the store refuses, or cannot be reached.
    """
    place = directory / name
    if isinstance(directory, StorePath) and isinstance(place, StorePath):
        return directory.with_sizes({f"{name}/{below}": size for below, size in place.sizes().items()}) / name
    return place


def path_of_messages(url: str) -> StorePath:
    """Return a path that only messages name: its files were read by other means."""
    return StorePath(StoreDirectory(ObjectStore(url, shown_url(url), None, url)))


def read_if_there(path: AnyPath) -> bytes | None:
    """Return the content of a file as it is now; None: there is no such file.

    Raises:
        BadInputError: an object store refuses, or cannot be reached.
    """
    if isinstance(path, StorePath):
        return path.read_now()
    return path.read_bytes() if path.is_file() else None


def text_of(path: AnyPath) -> str:
    """Return the text that names a directory in every process: an absolute path, or a URL."""
    return path.url if isinstance(path, StorePath) else str(path.resolve())


def below(directory: AnyPath, path: AnyPath) -> str:
    """Return the path of a file relative to the directory that it is in."""
    if isinstance(path, StorePath) and isinstance(directory, StorePath):
        return str(path.relative_to(directory))
    return str(Path(str(path)).relative_to(str(directory)))


def expect_files(paths: Iterable[AnyPath]) -> None:
    """Announce the files that are read next, in order. They have one directory; on this machine nothing is done."""
    remote = [path for path in paths if isinstance(path, StorePath)]
    if remote:
        remote[0].expect(remote)
