"""The broker's socket. Moves bytes; every decision is the session's.

Long responses are read in few large pieces, into a buffer that all connections share. A read and its write cost the kernel some 20 us on
loopback, whatever their size, and an event loop reads at most 250 kB at once. A body is written from that buffer; only bytes that contain
the head of a response become an object of their own.
"""

from __future__ import annotations

import asyncio
from typing import Final

from protocol.errors import ProtocolError
from proxy.base.clock import NS_PER_MS, now_ns
from proxy.net.relay.answer_buffer import BUFFER_BYTES, AnswerBuffer
from proxy.net.relay.flow import (
    TO_BROKER_HIGH_BYTES,
    TO_BROKER_LOW_BYTES,
    WRITE_HIGH_BYTES,
    WRITE_LOW_BYTES,
    BufferedReader,
    Channel,
    ChannelOwner,
)
from proxy.session.responses.response_side import ResponseSide
from proxy.session.session import Session
from proxy.tls.transport import TlsTransport

LONG_BODY_BYTES: Final = 256 * 1024
"""So much of an answer must still come, or its rest is one ordinary read."""
LONG_READ_BYTES: Final = 32 * 1024
"""A long answer begins with at least so much; with less, another kind has begun."""


class BrokerChannel(Channel):
    """Writes requests, reads responses."""

    __slots__ = ("_attention", "_long_answers", "_responses")

    def __init__(self, connection: ChannelOwner, session: Session) -> None:
        super().__init__(connection)
        self._attention = session.attention
        self._responses = session.responses
        self._long_answers: LongAnswersChannel | None = None  # reads instead of this one while answers are long

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker answered the call."""
        self.attach(transport, TO_BROKER_HIGH_BYTES, TO_BROKER_LOW_BYTES)

    def pause(self, reason: int) -> None:
        """Stop reading until every reason is gone; how long answers take is not known meanwhile."""
        super().pause(reason)
        self._responses.verdicts.pause()

    def resume(self, reasons: int) -> None:
        """Take back reasons; reading goes on when none is left."""
        was_paused = self.pauses
        super().resume(reasons)
        if was_paused and not self.pauses:
            self._responses.verdicts.resume(now_ns())

    def data_received(self, data: bytes) -> None:
        """Let the session match the answers and send on what may leave."""
        connection = self._connection
        at_ns = now_ns()
        if connection.closing:
            connection.session.scan_unanswered(data, at_ns // NS_PER_MS)
            return
        self.read_ms = now = at_ns // NS_PER_MS
        size = len(data)
        self.bytes_in += size
        try:
            onward = self._responses.scan(data, now, at_ns)
            if size >= LONG_READ_BYTES and self._long_answers is None and self._responses.passing_bytes >= LONG_BODY_BYTES:
                self._read_long_answers()
            if onward is not None:
                self.write_peer(onward)
            if self._attention.needs_settle:
                connection.settle(now)
        except ProtocolError as error:
            connection.fail_broker(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

    def body_received(self, data: memoryview) -> None:
        """Send on what belongs to the body of an answer that passes as it comes."""
        connection = self._connection
        at_ns = now_ns()
        if connection.closing:
            connection.session.scan_unanswered(bytes(data), at_ns // NS_PER_MS)
            return
        self.read_ms = now = at_ns // NS_PER_MS
        self.bytes_in += len(data)
        try:
            self._responses.pass_body(len(data), now, at_ns)
            self.write_peer(data)
            if self._attention.needs_settle:
                connection.settle(now)
        except ProtocolError as error:
            connection.fail_broker(error)
        except Exception as error:  # noqa: BLE001 - as above
            connection.crash(error)

    def _read_long_answers(self) -> None:
        """Read larger pieces than an event loop does by itself. What was decrypted is in pieces of its own already."""
        client = None if self.peer is None or self.peer.lost else self.peer.transport
        if client is not None and not isinstance(self.transport, TlsTransport):
            client.set_write_buffer_limits(0, 0)  # what it does not take at once is all that this connection holds
            self._long_answers = LongAnswersChannel(self, self._responses, client, self._connection.answer_buffer)
            self.read_by(self._long_answers)

    def drop_answers(self) -> None:
        """The client's socket is gone: answers are recorded, and go nowhere."""
        self.write_peer = _dropped
        if self._long_answers is not None:
            self._long_answers = None
            self.read_by(self)

    def read_short_answers(self) -> None:
        """A short answer has come, so the next one may be short too."""
        if self._long_answers is None or self._connection.closing or self.peer is None or self.peer.transport is None:
            return
        self._long_answers = None
        self.peer.transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.read_by(self)

    @property
    def given_away_bytes(self) -> int:
        """What the client's transport holds of a buffer that it could not send in whole, sent or not."""
        client = None if self._long_answers is None or self.peer is None or self.peer.lost else self.peer.transport
        return BUFFER_BYTES if client is not None and client.get_write_buffer_size() else 0

    def let_go(self) -> None:
        """As any side."""
        self._long_answers = None
        super().let_go()

    def pause_writing(self) -> None:
        """The broker does not take what it is sent: the client waits, and may leave meanwhile."""
        super().pause_writing()
        self._connection.broker_stalled()

    def eof_received(self) -> bool:
        """The broker is done with this connection; so are we."""
        self._connection.broker_gone(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.lost = True
        self._connection.broker_gone(exc)


class LongAnswersChannel(BufferedReader):
    """Replaces the broker's channel from a long response to the next short one; a read never goes beyond the end of a body."""

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


def _dropped(_data: bytes | memoryview) -> None:
    """Drop it: the client is gone."""
