"""An incomplete request: the pieces that arrived, joined once."""

from __future__ import annotations

from typing import Final

PIECE_BYTES: Final = 64 * 1024
"""Smaller pieces are joined as they arrive, so that a frame of small reads is not a long list; larger ones are kept as read."""


class UnfinishedFrame:
    """The bytes from the beginning of a frame on. They are not moved while it grows: a long frame is copied once, when it is complete.

    Args:
        data: the first bytes.
        need: number of bytes to wait for.
    """

    __slots__ = ("_pieces", "_short", "have_bytes", "need_bytes")

    def __init__(self, data: bytes | bytearray, need: int) -> None:
        self._pieces: list[bytes | bytearray] = []
        self._short = bytearray(data)  # the last piece, as long as it grows
        self.have_bytes = len(data)
        self.need_bytes = need

    def add(self, data: bytes) -> bool:
        """Append `data`; return whether `need` bytes are there."""
        if len(self._short) + len(data) > PIECE_BYTES:
            self._pieces += (self._short, data)
            self._short = bytearray()
        else:
            self._short += data
        self.have_bytes += len(data)
        return self.have_bytes >= self.need_bytes

    def joined(self) -> bytes:
        """Return all bytes."""
        return b"".join((*self._pieces, self._short)) if self._pieces else bytes(self._short)
