"""The broker's socket while its answers are long: read in few large pieces, into a buffer that all connections share.

A read and the write behind it cost the kernel some 20 us on loopback, however much they carry, and an event loop's own reads end at
250 kB. A body goes on from where it lies; only bytes with the head of an answer among them become an object of their own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from proxy.net.flow import StandIn

if TYPE_CHECKING:
    from proxy.net.broker_channel import BrokerChannel
    from proxy.session.response_side import ResponseSide

BUFFER_BYTES: Final = 512 * 1024
LONG_BODY_BYTES: Final = 256 * 1024
"""So much of an answer must still come, or its rest is one ordinary read."""
LONG_READ_BYTES: Final = 32 * 1024
"""A long answer begins with at least so much; with less, another kind has begun."""


class AnswerBuffer:
    """Where long answers are read to: one for all connections of an event loop, since bytes leave in the callback that reads them."""

    __slots__ = ("_view",)

    def __init__(self) -> None:
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """Where the next bytes go."""
        if self._view is None:
            self._view = memoryview(bytearray(BUFFER_BYTES))
        return self._view

    def give_away(self) -> None:
        """A transport keeps what it could not send in here: the next bytes go elsewhere, and this is freed when it is sent."""
        self._view = None


class LongAnswersChannel(StandIn):
    """Takes the place of the broker's channel from a long answer to the first short one; a read never goes beyond the end of a body."""

    __slots__ = ("_buffer", "_client", "_responses")

    _channel: BrokerChannel

    def __init__(self, channel: BrokerChannel, responses: ResponseSide, client: asyncio.Transport, buffer: AnswerBuffer) -> None:
        super().__init__(channel)
        self._responses = responses
        self._client = client
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: room for what is left of a body, or for the head of the next answer and much of its body."""
        return self._buffer.view[: self._responses.passing_bytes or BUFFER_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came: the channel takes them as any others."""
        is_body = self._responses.passing_bytes > 0
        data = self._buffer.view[:nbytes]
        if is_body:
            self._channel.body_received(data)
        else:
            self._channel.data_received(bytes(data))
        if self._client.get_write_buffer_size():
            self._buffer.give_away()
        if not is_body and nbytes < LONG_READ_BYTES:
            self._channel.read_short_answers()
