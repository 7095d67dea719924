"""A directory whose files are in memory, for a part of a job whose files came with it."""

from collections.abc import Mapping

import pyarrow as pa

from pipeline.storage.paths import StoreDirectory
from sluice.object_store import ObjectStore, shown_url


class _HeldFiles:
    """The one method of `pyarrow.fs.FileSystem` that reading needs."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def open_input_stream(self, path: str) -> pa.BufferReader:
        content = self._files.get(path)
        if content is None:
            raise FileNotFoundError(2, "is missing", path)
        return pa.BufferReader(content)


def held_directory(url: str, files: Mapping[str, bytes]) -> StoreDirectory:
    """Return a directory.

    Args:
        url: its URL.
        files: content of each file by its path below the directory.
    """
    held = _HeldFiles({f"{url}/{below}": content for below, content in files.items()})
    return StoreDirectory(ObjectStore(url, shown_url(url), held, url), {below: len(content) for below, content in files.items()})
