"""The broker's socket. Moves bytes; every decision is the session's."""

from __future__ import annotations

import asyncio

from protocol.errors import ProtocolError
from proxy.base.clock import NS_PER_MS, now_ns
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.relay.flow import FLUSH_S, TO_BROKER_LIMITS_BYTES, ChannelOwner
from proxy.net.relay.long_frames import LONG_READ_BYTES, LongFrameChannel
from proxy.session.responses.response_side import ResponseSide
from proxy.session.session import Session


class BrokerChannel(LongFrameChannel):
    """The broker's side: writes requests, reads responses."""

    __slots__ = ("_quotas",)

    _side: ResponseSide

    write_limits_bytes = TO_BROKER_LIMITS_BYTES

    def __init__(self, connection: ChannelOwner, session: Session, quotas: AnnouncedQuotas | None = None) -> None:
        super().__init__(connection, session.responses, session.settle_flag)
        self._quotas = quotas

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker is connected."""
        self.attach(transport)

    def pause(self, reason: int) -> None:
        """Stop reading until every reason is gone; the length of responses is not known meanwhile."""
        super().pause(reason)
        self._side.request_time.pause()

    def resume(self, reasons: int) -> None:
        """Remove reasons; reading continues when none is left."""
        was_paused = self.pauses
        super().resume(reasons)
        if was_paused and not self.pauses:
            self._side.request_time.resume(now_ns())

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
            onward = self._side.scan(data, now, at_ns)
            if size >= LONG_READ_BYTES:
                self.read_long_frames()
            if onward is not None:
                self.write_peer(onward)
            if self._settle_flag.needs_settle:
                connection.settle(now)
        except ProtocolError as error:
            connection.fail_broker(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

    def discard(self, data: memoryview, now_ms: int) -> None:
        """Record bytes of a response that has no client any more."""
        self._connection.session.scan_unanswered(bytes(data), now_ms)

    def fail(self, error: ProtocolError) -> None:
        """Close the connection, because bytes of the broker are invalid or must not be sent."""
        self._connection.fail_broker(error)

    def drop_answers(self) -> None:
        """Discard responses after recording them, because the client's socket is closed."""
        self.write_peer = _dropped
        if self._long_frames is not None:
            self._long_frames = None
            self.read_by(self)

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


def _dropped(_data: bytes | memoryview) -> None:
    """Discard, because the client is gone."""
