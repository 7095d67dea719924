"""The client's socket. Moves bytes; every decision is the session's.

While a client logs in, tokens are read into a buffer that is overwritten after the broker's response. All other bytes arrive as immutable
objects: also those that a client sends before a response, and those that are not tokens.
"""

from __future__ import annotations

import asyncio

from protocol.errors import ProtocolError
from protocol.limits import LENGTH_BYTES
from proxy.base.clock import NS_PER_MS, now_ns
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.relay.flow import BufferedReader, ChannelOwner
from proxy.net.relay.long_frames import LONG_READ_BYTES, LongFrameChannel
from proxy.session.requests.request_side import RequestSide
from proxy.session.session import Session

BUFFER_BYTES = 4 * 1024
"""Initial size of the buffer for tokens."""


class ClientChannel(LongFrameChannel):
    """The client's side: reads requests, writes responses."""

    __slots__ = ("_login", "_quotas")

    _side: RequestSide

    def __init__(self, connection: ChannelOwner, session: Session, quotas: AnnouncedQuotas | None = None) -> None:
        super().__init__(connection, session.requests, session.settle_flag)
        self._quotas = quotas
        self._login: LoginChannel | None = None  # reads in place of this channel while the client logs in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: the broker was connected before."""
        self.attach(transport)
        self._connection.attempt(self._connection.client_made)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the session, and send on what it releases."""
        quotas = self._quotas
        if quotas is not None and quotas.announced[0] > quotas.in_force:
            quotas.apply()
        connection = self._connection
        if connection.closing:
            return
        at_ns = now_ns()
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
            connection.fail_client(error, data)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

    def fail(self, error: ProtocolError) -> None:
        """Close the connection, because bytes of the client are invalid, or a refused request."""
        self._connection.fail_client(error, b"")

    @property
    def connection(self) -> ChannelOwner:
        """The connection that this channel is a side of."""
        return self._connection

    @property
    def login_bytes(self) -> int:
        """Bytes of memory for tokens."""
        return 0 if self._login is None else self._login.kept_bytes

    def follow_login(self, *, under_way: bool) -> None:
        """Read tokens into a buffer while a login is under way; called when the broker has answered the last one."""
        login = self._login
        if login is not None:
            login.answered()
        if under_way is (login is not None) or self.transport is None or self.lost:
            return
        if login is None:
            self.read_short_frames()
            self._login = LoginChannel(self, self._side)
            self.read_by(self._login)
            return
        self._login = None
        self.read_by(self)
        rest = login.take_rest()
        if rest:
            self.data_received(rest)

    def let_go(self) -> None:
        """Release references, as in `Channel`, and overwrite a token that was not answered."""
        if self._login is not None:
            self._login.let_go()
            self._login = None
        super().let_go()

    def eof_received(self) -> bool:
        """The client has closed its side; the complete frames it sent are still forwarded."""
        self._connection.attempt(self._connection.client_eof)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self.lost = True
        self.end_direct_writes()
        self._connection.client_lost(exc)


class LoginChannel(BufferedReader):
    """Reads in place of the client's channel from an accepted SaslHandshake to the result of the login."""

    __slots__ = ("_buffer", "_have", "_on_its_way", "_requests")

    _channel: ClientChannel

    def __init__(self, channel: ClientChannel, requests: RequestSide) -> None:
        super().__init__(channel)
        self._requests = requests
        self._buffer = bytearray(BUFFER_BYTES)
        self._have = 0
        self._on_its_way: list[bytearray] = []  # tokens without a response

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into, after the bytes already there."""
        if self._have == len(self._buffer):
            longer = bytearray(2 * self._have)
            longer[: self._have] = self._buffer
            _overwrite(self._buffer)
            self._buffer = longer
        return memoryview(self._buffer)[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        """Forward a complete token directly from the buffer."""
        self._have += nbytes
        channel = self._channel
        at_ns = now_ns()
        channel.read_ms = now = at_ns // NS_PER_MS
        channel.bytes_in += nbytes
        connection = channel.connection
        if connection.closing:
            return
        try:
            self._pass_on(now, at_ns)
            connection.settle(now)
        except ProtocolError as error:
            connection.fail_client(error, b"")
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

    def _pass_on(self, now_ms: int, now_ns: int) -> None:
        have, buffer = self._have, self._buffer
        size = int.from_bytes(buffer[:LENGTH_BYTES], "big", signed=True) if have >= LENGTH_BYTES else 0
        end = LENGTH_BYTES + size
        size_max = self._requests.token_bytes_max
        if have < end and size <= size_max:
            return
        if 0 <= size <= size_max:
            with memoryview(buffer) as whole, whole[:end] as frame:
                is_token = self._requests.pass_token(frame, now_ms, now_ns)
            if is_token:
                rest = bytes(buffer[end:have])
                self._on_its_way.append(buffer)
                self._buffer, self._have = bytearray(BUFFER_BYTES), 0
                self._channel.write_peer(memoryview(buffer)[:end])
                if rest:
                    self._scan(rest, now_ms, now_ns)
                return
        self._scan(self.take_rest(), now_ms, now_ns)

    def _scan(self, data: bytes, now_ms: int, now_ns: int) -> None:
        onward = self._requests.scan(data, now_ms, now_ns)
        if onward is not None:
            self._channel.write_peer(onward)

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory used."""
        return len(self._buffer) + sum(map(len, self._on_its_way))

    def take_rest(self) -> bytes:
        """Return the bytes that are not tokens, for the ordinary path."""
        rest = bytes(self._buffer[: self._have])
        _overwrite(self._buffer)
        self._have = 0
        return rest

    def answered(self) -> None:
        """Overwrite the token that the broker has answered."""
        for token in self._on_its_way:
            _overwrite(token)
        self._on_its_way.clear()

    def let_go(self) -> None:
        """Overwrite everything, because the connection has ended."""
        self.answered()
        _overwrite(self._buffer)


def _overwrite(buffer: bytearray) -> None:
    buffer[:] = bytes(len(buffer))
