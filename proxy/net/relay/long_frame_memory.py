"""The memory into which long frames are read."""

from __future__ import annotations

import weakref
from typing import Final

STEP_BYTES: Final = 512 * 1024
"""The size of a read of a body, until the other side has taken a whole one at once."""
WHOLE_BYTES: Final = 1024 * 1024
"""The size of a read of a body after that: the usual limit of a partition and of a request."""
WHOLE_KEPT_MAX: Final = 4
"""How many transports of a process may keep memory of `WHOLE_BYTES`; with more, reads have `STEP_BYTES`, as long as that lasts."""


class LongFrameMemory:
    """Memory for long frames, for all connections of an event loop, since bytes are sent in the callback that reads them."""

    __slots__ = ("_kept", "_step", "_whole")

    def __init__(self) -> None:
        self._step: _Memory | None = None
        self._whole: _Memory | None = None
        self._kept: dict[int, weakref.ref[_Memory]] = {}

    def read_bytes(self, left_bytes: int) -> int:
        """Return the size of the memory for a read of the rest of a body: `WHOLE_BYTES`, unless too many transports keep such memory."""
        return WHOLE_BYTES if left_bytes > STEP_BYTES and len(self._kept) < WHOLE_KEPT_MAX else STEP_BYTES

    def of(self, size_bytes: int) -> memoryview:
        """Return the memory of this size: of `STEP_BYTES` or `WHOLE_BYTES`."""
        if size_bytes == STEP_BYTES:
            if self._step is None:
                self._step = _Memory(STEP_BYTES)
            return memoryview(self._step)
        if self._whole is None:
            self._whole = _Memory(WHOLE_BYTES)
        return memoryview(self._whole)

    def release(self, size_bytes: int) -> None:
        """Give up the memory of this size, because a transport still has to send from it; the next read uses new memory."""
        if size_bytes == STEP_BYTES:
            self._step = None
        elif self._whole is not None:
            kept = weakref.ref(self._whole, self._freed)
            self._kept[id(kept)] = kept
            self._whole = None

    def _freed(self, kept: weakref.ref[_Memory]) -> None:
        del self._kept[id(kept)]


class _Memory(bytearray):
    """Memory whose end is observed."""

    __slots__ = ("__weakref__",)
