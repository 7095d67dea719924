"""Responses that are held until a throttle ends: bytes that were read from the broker with or behind them."""

from __future__ import annotations

from protocol.messages.throttle_time import stamp


class HeldResponses:
    """The held bytes of one connection. The rest of these responses stays in the broker's socket.

    Attributes:
        pieces: the bytes, in order; None: nothing is held.
        until_ms: above 0: they are held until this time.
    """

    __slots__ = ("_stamps", "pieces", "until_ms")

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] | None = None
        self.until_ms = 0
        self._stamps: list[tuple[int, int]] = []  # offsets of throttle times in the bytes, and their values

    @property
    def size_bytes(self) -> int:
        """Number of held bytes."""
        return sum(map(len, self.pieces)) if self.pieces else 0

    def begin(self, until_ms: int) -> list[bytes | memoryview]:
        """Hold everything from here on until `until_ms`; return the list of pieces, which is empty."""
        pieces: list[bytes | memoryview] = []
        self.pieces, self.until_ms = pieces, until_ms
        return pieces

    def note_stamp(self, place: int | None, throttle_ms: int, at: int) -> None:
        """Store where a response that begins at `at` of the held bytes announces its throttle time.

        Args:
            place: the offset of the throttle time in the response; None or below 0: it announces none.
            throttle_ms: the throttle time.
            at: the offset of the response.
        """
        if place is not None and place >= 0:
            self._stamps.append((at + place, throttle_ms))

    def release(self, now_ms: int) -> memoryview | None:
        """End the hold at its deadline or before; return the bytes, with the remaining throttle time announced."""
        pieces, stamps = self.pieces, self._stamps
        left_ms = self.until_ms - now_ms
        self.drop()
        self.until_ms = 0
        if not pieces:
            return None
        released = bytearray().join(pieces)
        if left_ms > 0:
            for at, throttle_ms in stamps:
                stamp(released, at, throttle_ms + left_ms)
        return memoryview(released)

    def drop(self) -> None:
        """Drop the bytes."""
        self.pieces = None
        self._stamps = []
