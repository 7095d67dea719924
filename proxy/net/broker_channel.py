"""The broker's socket. Moves bytes; every decision is the session's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocol.errors import ProtocolError
from proxy.clock import NS_PER_MS, now_ns
from proxy.net.flow import TO_BROKER_HIGH_BYTES, TO_BROKER_LOW_BYTES, Channel

if TYPE_CHECKING:
    from proxy.net.connection import Connection
    from proxy.session.session import Session


class BrokerChannel(Channel):
    """Writes requests, reads answers."""

    __slots__ = ("_attention", "_responses")

    def __init__(self, connection: Connection, session: Session) -> None:
        super().__init__(connection)
        self._attention = session.attention
        self._responses = session.responses

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker answered the call."""
        self.attach(transport, TO_BROKER_HIGH_BYTES, TO_BROKER_LOW_BYTES)

    def pause(self, reason: int) -> None:
        """Stop reading until every reason is gone; how long answers take is not known meanwhile."""
        super().pause(reason)
        self._responses.pause()

    def resume(self, reasons: int) -> None:
        """Take back reasons; reading goes on when none is left."""
        was_paused = self.pauses
        super().resume(reasons)
        if was_paused and not self.pauses:
            self._responses.resume(now_ns())

    def data_received(self, data: bytes) -> None:
        """Let the session match the answers and send on what may leave."""
        connection = self._connection
        if connection.closing:
            return
        at_ns = now_ns()
        self.read_ms = now = at_ns // NS_PER_MS
        self.bytes_in += len(data)
        try:
            onward = self._responses.scan(data, now, at_ns)
            if onward is not None:
                self.write_peer(onward)
            if self._attention.wanted:
                connection.settle(now)
        except ProtocolError as error:
            connection.fail_broker(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

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
