"""The broker's socket. Moves bytes; every decision is the session's."""

from __future__ import annotations

import asyncio

from protocol.errors import ProtocolError
from proxy.base.clock import NS_PER_MS, now_ns
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.relay.flow import FLUSH_S, TO_BROKER_LIMITS_BYTES, ChannelOwner
from proxy.net.relay.long_frames import LONG_BODY_BYTES, LONG_READ_BYTES, LongFrameChannel
from proxy.session.session import Session


class BrokerChannel(LongFrameChannel):
    """The broker's side: writes requests, reads responses."""

    __slots__ = ("_quotas", "_responses", "_settle_flag")

    write_limits_bytes = TO_BROKER_LIMITS_BYTES

    def __init__(self, connection: ChannelOwner, session: Session, quotas: AnnouncedQuotas | None = None) -> None:
        super().__init__(connection)
        self._quotas = quotas
        self._settle_flag = session.settle_flag
        self._responses = session.responses

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker is connected."""
        self.attach(transport)

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
            if size >= LONG_READ_BYTES and self._long_frames is None and self._responses.passing_bytes >= LONG_BODY_BYTES:
                self.read_long_frames(self._responses)
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
