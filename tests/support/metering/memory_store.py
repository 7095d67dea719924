"""An object store in memory, for tests that end a call before each of its requests: a server would take most of their time."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs

from pipeline.storage.paths import StoreDirectory, StorePath
from sluice.object_store import ObjectStore


class MemoryStore:
    """A file system with those methods of `pyarrow.fs.FileSystem` that `StoreDirectory` and `StoreFiles` use.

    Attributes:
        contents: the content of each file by its path. A file appears when it is complete.
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def opened(self, root: str) -> ObjectStore:
        """Return a directory as `open_object_store` does."""
        return ObjectStore(f"s3://{root}", f"s3://{root}", self, root)

    def at(self, root: str) -> StorePath:
        """Return a directory."""
        return StorePath(StoreDirectory(self.opened(root)))

    def get_file_info(self, what: Any) -> Any:
        """Return the file of a path, or all files below the directory of a selector."""
        if isinstance(what, fs.FileSelector):
            names = (name for name in self.contents if name.startswith(f"{what.base_dir}/"))
            return [fs.FileInfo(name, fs.FileType.File, size=len(self.contents[name])) for name in names]
        if what not in self.contents:
            return fs.FileInfo(what, fs.FileType.NotFound)
        return fs.FileInfo(what, fs.FileType.File, size=len(self.contents[what]))

    def open_input_stream(self, path: str) -> Any:
        """Return the content of a file."""
        if path not in self.contents:
            raise FileNotFoundError(2, "is missing", path)
        return pa.BufferReader(self.contents[path])

    @contextlib.contextmanager
    def open_output_stream(self, path: str) -> Iterator[io.BytesIO]:
        """Yield a sink, whose content the file has when the block ends."""
        sink = io.BytesIO()
        yield sink
        self.contents[path] = sink.getvalue()

    def delete_file(self, path: str) -> None:
        """Remove a file."""
        if self.contents.pop(path, None) is None:
            raise FileNotFoundError(2, "is missing", path)
