"""The buffer for long responses."""

from __future__ import annotations

from typing import Final

BUFFER_BYTES: Final = 512 * 1024


class AnswerBuffer:
    """A buffer for long responses, one for all connections of an event loop, since bytes are sent in the callback that reads them."""

    __slots__ = ("_view",)

    def __init__(self) -> None:
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """The memory to read into."""
        if self._view is None:
            self._view = memoryview(bytearray(BUFFER_BYTES))
        return self._view

    def release_memory(self) -> None:
        """Give up the current memory, because a transport still has to send from it; the next read uses new memory."""
        self._view = None
