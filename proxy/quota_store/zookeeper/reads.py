"""The request that reads many nodes at once (ZooKeeper 3.6 and later), for which kazoo has no call. Pure.

Source: ZooKeeper 3.9 `MultiOperationRecord`, `MultiResponse`, `zookeeper.jute`.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kazoo.exceptions import EXCEPTIONS

_HEADER: Final = Struct(">i?i")  # type, whether it is the last header, error
_STAT: Final = Struct(">qqqqiiiqiiq")
_INT32: Final = Struct(">i")
_LAST: Final = _HEADER.pack(-1, True, -1)
_GET_DATA: Final = 4
_GET_CHILDREN: Final = 8
_FAILED: Final = -1
PATHS_MAX: Final = 250
"""Maximum number of nodes in one request."""
PATH_BYTES_MAX: Final = 256 * 1024
"""Maximum size of the paths in one request; ZooKeeper's limit of a request is 1 MiB."""


class Node(NamedTuple):
    """Data, version and number of children of a node at the time of the read."""

    data: bytes
    version: int
    children: int


Answer = Node | list[str] | Exception
"""A node, the names of its children, or the error of the read."""


class MultiRead(NamedTuple):
    """A request for the data of nodes or for the names of their children; each path has a separate result."""

    kind: int
    paths: Sequence[str]
    type: int = 22

    def serialize(self) -> bytes:
        """Return the encoded request; called by kazoo."""
        head = _HEADER.pack(self.kind, False, -1)
        written = (path.encode() for path in self.paths)
        return b"".join(head + _INT32.pack(len(path)) + path + b"\x00" for path in written) + _LAST  # 0: no watch

    @staticmethod
    def deserialize(answer: bytes, offset: int) -> list[Answer]:
        """Return the answer for each path; called by kazoo.

        Raises:
            ValueError: the response is invalid.
        """
        answers: list[Answer] = []
        while True:
            kind, is_last, _ = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if is_last:
                return answers
            if kind == _GET_DATA:
                data, offset = _bytes(answer, offset)
                stat = _STAT.unpack_from(answer, offset)
                offset += _STAT.size
                answers.append(Node(data, stat[4], stat[9]))
            elif kind == _GET_CHILDREN:
                names, offset = _names(answer, offset)
                answers.append(names)
            elif kind == _FAILED:
                answers.append(EXCEPTIONS[_INT32.unpack_from(answer, offset)[0]]())
                offset += _INT32.size
            else:
                raise ValueError(f"an answer of kind {kind}")


def read_nodes(paths: Sequence[str]) -> MultiRead:
    """Return a request for the data of nodes."""
    return MultiRead(_GET_DATA, paths)


def read_children(paths: Sequence[str]) -> MultiRead:
    """Return a request for the names of the children of nodes."""
    return MultiRead(_GET_CHILDREN, paths)


def portions(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield paths in portions that fit one request."""
    portion: list[str] = []
    size = 0
    for path in paths:
        if len(portion) >= PATHS_MAX or (portion and size + 4 * len(path) > PATH_BYTES_MAX):
            yield portion
            portion, size = [], 0
        portion.append(path)
        size += 4 * len(path)
    if portion:
        yield portion


def _bytes(answer: bytes, offset: int) -> tuple[bytes, int]:
    (size,) = _INT32.unpack_from(answer, offset)
    offset += _INT32.size
    return (b"", offset) if size < 0 else (answer[offset : offset + size], offset + size)


def _names(answer: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT32.unpack_from(answer, offset)
    offset += _INT32.size
    names = []
    for _ in range(count):
        name, offset = _bytes(answer, offset)
        names.append(name.decode())
    return names, offset
