"""What changes in a frame of which all else stays byte for byte."""

from protocol.limits import LENGTH_BYTES
from protocol.primitives import with_length


class Patches:
    """Replacements in one frame, collected in wire order."""

    __slots__ = ("_frame", "_patches")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._patches: list[tuple[int, int, bytes]] = []

    def __len__(self) -> int:
        return len(self._patches)

    def add(self, at: int, end: int, new: bytes) -> None:
        """Replace what stands from `at` to `end`, behind all replacements so far."""
        self._patches.append((at, end, new))

    def insert(self, number: int, at: int, end: int, new: bytes) -> None:
        """Replace what stands from `at` to `end`, before replacement `number`."""
        self._patches.insert(number, (at, end, new))

    def growth_since(self, number: int) -> int:
        """Return by how many bytes the replacements from `number` on lengthen the frame."""
        return sum(len(new) - (end - at) for at, end, new in self._patches[number:])

    def result(self) -> bytes:
        """Return the frame with all replacements and its length put right, or the frame itself when there are none."""
        if not self._patches:
            return self._frame
        pieces: list[bytes] = []
        done = LENGTH_BYTES
        for at, end, new in self._patches:
            pieces += (self._frame[done:at], new)
            done = end
        pieces.append(self._frame[done:])
        return with_length(b"".join(pieces))
