"""Changes of a frame whose other bytes stay the same."""

from typing import Final

from protocol.limits import LENGTH_BYTES
from protocol.primitives import INT32
from protocol.steps import Steps, finished

COPIED_PER_STEP: Final = 256 * 1024
"""Most bytes that are copied between two pauses."""


class Patches:
    """Replacements in one frame, collected in wire order.

    Of thousands of them not all are kept: `flush` writes those so far, and what stands between them, into the new frame.
    """

    __slots__ = ("_done", "_frame", "_patches", "_written")

    def __init__(self, frame: bytes | memoryview) -> None:
        self._frame = frame
        self._patches: list[tuple[int, int, bytes]] = []
        self._written: bytearray | None = None  # the new frame, as far as it was flushed ...
        self._done = LENGTH_BYTES  # ... which is up to here in the old one

    def __len__(self) -> int:
        """How many wait to be written."""
        return len(self._patches)

    def add(self, at: int, end: int, new: bytes) -> None:
        """Replace what stands from `at` to `end`, behind all replacements so far."""
        self._patches.append((at, end, new))

    def insert(self, number: int, at: int, end: int, new: bytes) -> None:
        """Replace what stands from `at` to `end`, before replacement `number` of those that wait."""
        self._patches.insert(number, (at, end, new))

    def growth_since(self, number: int) -> int:
        """Return by how many bytes the replacements from `number` on of those that wait lengthen the frame."""
        return sum(len(new) - (end - at) for at, end, new in self._patches[number:])

    def flush(self) -> Steps[None]:
        """Write the replacements so far; nothing is inserted before them any more."""
        if not self._patches:
            return
        if self._written is None:
            self._written = bytearray(LENGTH_BYTES)
        patches, self._patches = self._patches, []
        for at, end, new in patches:
            if at - self._done > COPIED_PER_STEP:
                yield from self._copy(at)
            self._written += self._frame[self._done : at]
            self._written += new
            self._done = end

    def result(self) -> bytes | memoryview:
        """Return the frame with all replacements and its length put right, or the frame itself when there are none."""
        return finished(self.written())

    def written(self) -> Steps[bytes | memoryview]:
        """Write the result, some bytes at a time."""
        yield from self.flush()
        written = self._written
        if written is None:
            return self._frame
        yield from self._copy(len(self._frame))
        INT32.pack_into(written, 0, len(written) - LENGTH_BYTES)
        return bytes(written) if len(written) <= COPIED_PER_STEP else memoryview(written)

    def _copy(self, end: int) -> Steps[None]:
        """Copy what stays, up to `end`, some bytes at a time."""
        assert self._written is not None
        while self._done < end:
            until = min(end, self._done + COPIED_PER_STEP)
            self._written += self._frame[self._done : until]
            self._done = until
            if until < end:
                yield
