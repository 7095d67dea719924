"""The client's socket. Moves bytes; every decision is the session's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocol.errors import ProtocolError
from proxy.clock import NS_PER_MS, now_ns
from proxy.net.flow import Channel
from proxy.net.login_channel import LoginChannel

if TYPE_CHECKING:
    from proxy.net.connection import Connection
    from proxy.session.session import Session


class ClientChannel(Channel):
    """Reads requests, writes answers."""

    __slots__ = ("_attention", "_login", "_requests")

    def __init__(self, connection: Connection, session: Session) -> None:
        super().__init__(connection)
        self._requests = session.requests
        self._attention = session.attention
        self._login: LoginChannel | None = None  # reads instead of this one while the client logs in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Both sides are there: the broker was connected first."""
        self.attach(transport)
        self._connection.attempt(self._connection.client_made)

    def data_received(self, data: bytes) -> None:
        """Let the session follow the frames and send on what may go on."""
        connection = self._connection
        if connection.closing:
            return
        at_ns = now_ns()
        self.read_ms = now = at_ns // NS_PER_MS
        self.bytes_in += len(data)
        try:
            onward = self._requests.scan(data, now, at_ns)
            if onward is not None:
                self.write_peer(onward)
            if self._attention.wanted:
                connection.settle(now)
        except ProtocolError as error:
            connection.fail_client(error, data)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

    @property
    def connection(self) -> Connection:
        """What this is a side of."""
        return self._connection

    @property
    def login_bytes(self) -> int:
        """What is kept of tokens here."""
        return 0 if self._login is None else self._login.kept_bytes

    def follow_login(self, *, under_way: bool) -> None:
        """Read tokens into a buffer of ours while a login is under way; the broker has answered what was sent."""
        login = self._login
        if login is not None:
            login.answered()
        if under_way is (login is not None) or self.transport is None or self.lost:
            return
        if login is None:
            self._login = LoginChannel(self, self._requests)
            self.read_by(self._login)
            return
        self._login = None
        self.read_by(self)
        rest = login.take_rest()
        if rest:
            self.data_received(rest)

    def let_go(self) -> None:
        """As any side; a token that was not answered is overwritten."""
        if self._login is not None:
            self._login.let_go()
            self._login = None
        super().let_go()

    def eof_received(self) -> bool:
        """The client sends no more; what it sent completely still counts."""
        self._connection.attempt(self._connection.client_eof)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.lost = True
        self._connection.client_lost(exc)
