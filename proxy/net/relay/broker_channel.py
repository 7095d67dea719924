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
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.relay.answer_buffer import BUFFER_BYTES, AnswerBuffer
from proxy.net.relay.flow import (
    FLUSH_S,
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
"""Minimum of bytes that must remain of a response; otherwise its rest is one ordinary read."""
LONG_READ_BYTES: Final = 32 * 1024
"""Minimum of bytes at the beginning of a long response; with fewer, the channel returns to short responses."""


class BrokerChannel(Channel):
    """The broker's side: writes requests, reads responses."""

    __slots__ = ("_long_answers", "_quotas", "_responses", "_settle_flag")

    def __init__(self, connection: ChannelOwner, session: Session, quotas: AnnouncedQuotas | None = None) -> None:
        super().__init__(connection)
        self._quotas = quotas
        self._settle_flag = session.settle_flag
        self._responses = session.responses
        self._long_answers: LongAnswersChannel | None = None  # reads in place of this channel while responses are long

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker is connected."""
        self.attach(transport, TO_BROKER_HIGH_BYTES, TO_BROKER_LOW_BYTES)

    def pause(self, reason: int) -> None:
        """Stop reading until every reason is gone; the length of responses is not known meanwhile."""
        super().pause(reason)
        self._responses.verdicts.pause()

    def resume(self, reasons: int) -> None:
        """Remove reasons; reading continues when none is left."""
        was_paused = self.pauses
        super().resume(reasons)
        if was_paused and not self.pauses:
            self._responses.verdicts.resume(now_ns())

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the session, which matches the responses, and send what it releases."""
        quotas = self._quotas
        if quotas is not None and quotas.announced[0] > quotas.in_force:
            quotas.apply()
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
            if self._settle_flag.needs_settle:
                connection.settle(now)
        except ProtocolError as error:
            connection.fail_broker(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

    def body_received(self, data: memoryview) -> None:
        """Send on the bytes of a response body that is passed through."""
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
            if self._settle_flag.needs_settle:
                connection.settle(now)
        except ProtocolError as error:
            connection.fail_broker(error)
        except Exception as error:  # noqa: BLE001 - as above
            connection.crash(error)

    def _read_long_answers(self) -> None:
        """Read larger pieces than the event loop's own. Not for TLS, whose decrypted pieces have their own size."""
        client = None if self.peer is None or self.peer.lost else self.peer.transport
        if client is not None and not isinstance(self.transport, TlsTransport):
            client.set_write_buffer_limits(0, 0)  # unsent bytes are then all that this connection holds
            self._long_answers = LongAnswersChannel(self, self._responses, client, self._connection.answer_buffer)
            self.read_by(self._long_answers)

    def drop_answers(self) -> None:
        """Discard responses after recording them, because the client's socket is closed."""
        self.write_peer = _dropped
        if self._long_answers is not None:
            self._long_answers = None
            self.read_by(self)

    def read_short_answers(self) -> None:
        """Return to ordinary reads after a short response, since the next one may be short too."""
        if self._long_answers is None or self._connection.closing or self.peer is None or self.peer.transport is None:
            return
        self._long_answers = None
        self.peer.transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.read_by(self)

    @property
    def released_bytes(self) -> int:
        """Bytes of a given-away buffer that the client's transport holds, sent or not."""
        client = None if self._long_answers is None or self.peer is None or self.peer.lost else self.peer.transport
        return BUFFER_BYTES if client is not None and client.get_write_buffer_size() else 0

    def half_close(self) -> None:
        """Send no more requests; responses can still arrive."""
        transport = self.transport
        if transport is not None and not self.lost and not transport.is_closing() and transport.can_write_eof():
            self.end_direct_writes()
            transport.write_eof()

    def read_to_the_end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read, whatever paused it, until the broker closes, which takes `FLUSH_S` at most."""
        assert self.transport is not None
        self.pauses = 0
        if not self.transport.is_closing():
            self.transport.resume_reading()
        loop.call_later(FLUSH_S, self.abort)

    def let_go(self) -> None:
        """Release references, as in `Channel`."""
        self._long_answers = None
        super().let_go()

    def pause_writing(self) -> None:
        """The broker does not read: pause the client, and watch for its disconnect."""
        super().pause_writing()
        self._connection.broker_stalled()

    def eof_received(self) -> bool:
        """The broker has closed its side, so the connection ends."""
        self._connection.broker_gone(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self.lost = True
        self.end_direct_writes()
        self._connection.broker_gone(exc)


class LongAnswersChannel(BufferedReader):
    """Reads in place of the broker's channel from a long response to the next short one; a read never crosses the end of a body."""

    __slots__ = ("_buffer", "_client", "_responses")

    _channel: BrokerChannel

    def __init__(self, channel: BrokerChannel, responses: ResponseSide, client: asyncio.Transport, buffer: AnswerBuffer) -> None:
        super().__init__(channel)
        self._responses = responses
        self._client = client
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into: for the rest of a body, or for the next response's head and much of its body."""
        return self._buffer.view[: self._responses.passing_bytes or BUFFER_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the bytes that were read to the channel."""
        is_body = self._responses.passing_bytes > 0
        data = self._buffer.view[:nbytes]
        if is_body:
            self._channel.body_received(data)
        else:
            self._channel.data_received(bytes(data))
        if self._client.get_write_buffer_size():
            self._buffer.release_memory()
        if not is_body and nbytes < LONG_READ_BYTES:
            self._channel.read_short_answers()


def _dropped(_data: bytes | memoryview) -> None:
    """Discard, because the client is gone."""
