"""Replacements of parts of a frame; all other bytes stay the same."""

from typing import Final

from protocol.limits import LENGTH_BYTES
from protocol.primitives import INT32
from protocol.steps import Steps, finished

COPIED_PER_STEP: Final = 256 * 1024
"""Most bytes that are copied between two pauses."""


class Patches:
    """Replacements in one frame, collected in wire order.

    `flush` writes the replacements so far and the bytes between them into the new frame, so that thousands of them need not be kept.
    """

    __slots__ = ("_done", "_frame", "_patches", "_written")

    def __init__(self, frame: bytes | memoryview) -> None:
        self._frame = frame
        self._patches: list[tuple[int, int, bytes]] = []
        self._written: bytearray | None = None  # the new frame, as far as it is written ...
        self._done = LENGTH_BYTES  # ... which is up to this offset of the old one

    def __len__(self) -> int:
        """Return the number of replacements that are not written."""
        return len(self._patches)

    def add(self, at: int, end: int, new: bytes) -> None:
        """Replace the bytes from `at` to `end`, which are after all replacements so far."""
        self._patches.append((at, end, new))

    def insert(self, number: int, at: int, end: int, new: bytes) -> None:
        """Replace the bytes from `at` to `end`, before unwritten replacement `number`."""
        self._patches.insert(number, (at, end, new))

    def growth_since(self, number: int) -> int:
        """Return by how many bytes the unwritten replacements from `number` on lengthen the frame."""
        return sum(len(new) - (end - at) for at, end, new in self._patches[number:])

    def flush(self) -> Steps[None]:
        """Write the replacements so far, in steps; no replacement can be inserted before them any more."""
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
        """Return the frame with all replacements and its new length, or the frame itself when there are none."""
        return finished(self.written())

    def written(self) -> Steps[bytes | memoryview]:
        """Return the result, written in steps."""
        yield from self.flush()
        written = self._written
        if written is None:
            return self._frame
        yield from self._copy(len(self._frame))
        INT32.pack_into(written, 0, len(written) - LENGTH_BYTES)
        return bytes(written) if len(written) <= COPIED_PER_STEP else memoryview(written)

    def _copy(self, end: int) -> Steps[None]:
        """Copy unchanged bytes up to `end`, in steps."""
        assert self._written is not None
        while self._done < end:
            until = min(end, self._done + COPIED_PER_STEP)
            self._written += self._frame[self._done : until]
            self._done = until
            if until < end:
                yield
