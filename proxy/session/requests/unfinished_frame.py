"""A request that is not here in whole: the pieces that came, joined once."""

from __future__ import annotations

from typing import Final

PIECE_BYTES: Final = 64 * 1024
"""Less is put together as it comes, so that a frame of small reads is not a long list; more stays as it was read."""


class UnfinishedFrame:
    """Bytes from the beginning of a frame on. They are not moved while they grow: a long frame is copied once, when it is whole.

    Args:
        data: what is here.
        need: so many bytes have to be here before they are looked at.
    """

    __slots__ = ("_pieces", "_short", "have_bytes", "need_bytes")

    def __init__(self, data: bytes | bytearray, need: int) -> None:
        self._pieces: list[bytes | bytearray] = []
        self._short = bytearray(data)  # the last piece, as long as it grows
        self.have_bytes = len(data)
        self.need_bytes = need

    def add(self, data: bytes) -> bool:
        """Put `data` behind what is here; return whether that is enough."""
        if len(self._short) + len(data) > PIECE_BYTES:
            self._pieces += (self._short, data)
            self._short = bytearray()
        else:
            self._short += data
        self.have_bytes += len(data)
        return self.have_bytes >= self.need_bytes

    def joined(self) -> bytes:
        """Return all that is here."""
        return b"".join((*self._pieces, self._short)) if self._pieces else bytes(self._short)
