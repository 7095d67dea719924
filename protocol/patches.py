"""What changes in a frame of which all else stays byte for byte."""

from typing import Final

from protocol.limits import LENGTH_BYTES
from protocol.primitives import INT32
from protocol.steps import Pace, Steps, finished

COPIED_PER_STEP: Final = 256 * 1024
"""Most bytes that are copied between two pauses."""


class Patches:
    """Replacements in one frame, collected in wire order."""

    __slots__ = ("_frame", "_patches")

    def __init__(self, frame: bytes | memoryview) -> None:
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

    def result(self) -> bytes | memoryview:
        """Return the frame with all replacements and its length put right, or the frame itself when there are none."""
        return finished(self.written())

    def written(self) -> Steps[bytes | memoryview]:
        """Write the result, some bytes at a time."""
        if not self._patches:
            return self._frame
        pace, copied = Pace(), 0
        written = bytearray(LENGTH_BYTES)
        done = LENGTH_BYTES
        for at, end, new in (*self._patches, (len(self._frame), len(self._frame), b"")):
            while done < at:
                until = min(at, done + COPIED_PER_STEP)
                written += self._frame[done:until]
                copied += until - done
                done = until
                if copied >= COPIED_PER_STEP:
                    copied = 0
                    yield
            written += new
            done = end
            if pace.due():
                yield
        INT32.pack_into(written, 0, len(written) - LENGTH_BYTES)
        return bytes(written) if len(written) <= COPIED_PER_STEP else memoryview(written)
