"""Reads files of an object store in the order in which they are needed, some of them ahead, since each request takes long."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Final

FILES_AHEAD: Final = 16
BYTES_AHEAD_MAX: Final = 256 * 2**20
"""Highest number of bytes that are kept for the next read, except for a file that is larger."""


class ReadAhead:
    """The files of one directory.

    Args:
        read: returns the content of a file.
        size_of: returns the length of a file in bytes.
    """

    def __init__(self, read: Callable[[str], Any], size_of: Callable[[str], int]) -> None:
        self._read, self._size_of = read, size_of
        self._threads = ThreadPoolExecutor(FILES_AHEAD, thread_name_prefix="read-ahead")
        self._lock = Lock()
        self._order: list[str] = []
        self._positions: dict[str, int] = {}
        self._held: OrderedDict[str, Future[Any]] = OrderedDict()
        self._bytes = 0

    def expect(self, paths: Iterable[str]) -> None:
        """Announce the files that are read next, in order."""
        with self._lock:
            self._order = list(paths)
            self._positions = {path: number for number, path in enumerate(self._order)}

    def get(self, path: str) -> Any:
        """Return the content of a file, and begin to read the files after it.

        Raises:
            OSError: the file cannot be read.
        """
        with self._lock:
            wanted = self._begin(path)
            self._held.move_to_end(path)
            self._make_room(path)
            begin = self._positions.get(path, len(self._order)) + 1
            for following in self._order[begin : begin + FILES_AHEAD]:
                if self._bytes + self._size_of(following) > BYTES_AHEAD_MAX:
                    break
                self._begin(following)
        try:
            return wanted.result()
        except BaseException:
            with self._lock:
                self._forget(path)
            raise

    def _begin(self, path: str) -> "Future[Any]":
        if path not in self._held:
            self._held[path] = self._threads.submit(self._read, path)
            self._bytes += self._size_of(path)
        return self._held[path]

    def _make_room(self, wanted: str) -> None:
        """Forget the files that were used longest ago, so that the next ones find space."""
        for path in list(self._held):
            if self._bytes <= BYTES_AHEAD_MAX // 2 or path == wanted:
                return
            self._forget(path)

    def _forget(self, path: str) -> None:
        if self._held.pop(path, None) is not None:
            self._bytes -= self._size_of(path)
