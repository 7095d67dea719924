"""Files in a directory of an object store, with errors of one line."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.object_store import ObjectStore, first_line

REMEDY = "check the URL, the credentials and the endpoint"


class StoreError(Exception):
    """The object store refuses, cannot be reached, or has no such directory; the text is one line with the remedy."""


class StoreFiles:
    """The files of one directory by their paths below it.

    Every method raises `StoreError` when the store refuses or cannot be reached.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.name = store.name

    def put(self, path: str, data: bytes) -> None:
        """Write a file, and compare its length."""
        place = self._store.path(path)
        try:
            with self._store.files.open_output_stream(place) as file:
                file.write(data)
            size = self._store.files.get_file_info(place).size
        except OSError as error:
            raise self._refused(error) from error
        if size != len(data):
            raise StoreError(f"{self.name}/{path}: has {size} bytes after {len(data)} were written; check the store")

    def get(self, path: str) -> bytes | None:
        """Return the content of a file; None: there is none."""
        try:
            with self._store.files.open_input_stream(self._store.path(path)) as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(error) from error

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files that may not exist."""
        for path in paths:
            try:
                self._store.files.delete_file(self._store.path(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._refused(error) from error

    def below(self, path: str) -> dict[str, int]:
        """Return the sizes of all files below a directory, by their paths in order."""
        from pyarrow import fs

        try:
            found = self._store.files.get_file_info(fs.FileSelector(self._store.path(path), recursive=True))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._refused(error) from error
        files = sorted((info.path, info.size) for info in found if info.is_file)
        return {path.removeprefix(self._store.root).lstrip("/"): size for path, size in files}

    def _refused(self, error: OSError) -> StoreError:
        return StoreError(f"{self.name}: {first_line(error)}; {REMEDY}")
