"""Pausing a transport for reasons that come and go independently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from protocol.errors import ProtocolError
from proxy.base.clock import now_ms
from proxy.base.pause_reason import PEER_FULL, REASON_NAMES
from proxy.net.relay.answer_buffer import AnswerBuffer
from proxy.session.session import Session

WRITE_HIGH_BYTES = 256 * 1024
WRITE_LOW_BYTES = 64 * 1024
# Less towards brokers: on top comes one read of up to 256 KiB, and a connection may hold 512 KiB.
TO_BROKER_HIGH_BYTES = 128 * 1024
TO_BROKER_LOW_BYTES = 32 * 1024


class ChannelOwner(Protocol):
    """The connection that a channel is a side of: it receives the events of the socket, and decides what follows.

    Attributes:
        session: gets what was read first.
        closing: the connection ends, and nothing that is read goes on.
    """

    session: Session
    closing: bool

    @property
    def answer_buffer(self) -> AnswerBuffer:
        """Where long answers are read to."""

    def attempt(self, act: Callable[[], None]) -> None:
        """Do something: what goes wrong in it ends this connection, and nothing else."""

    def settle(self, now: int) -> None:
        """Carry out what the session decided."""

    def client_made(self) -> None:
        """Both sides are there."""

    def client_eof(self) -> None:
        """The client sends no more."""

    def client_lost(self, error: Exception | None) -> None:
        """The client's socket is gone."""

    def broker_gone(self, error: Exception | None) -> None:
        """The broker ended the connection."""

    def broker_stalled(self) -> None:
        """The broker does not take what it is sent."""

    def fail_client(self, error: ProtocolError, data: bytes) -> None:
        """The client's bytes cannot be understood, or ask for what is refused."""

    def fail_broker(self, error: ProtocolError) -> None:
        """The broker's bytes cannot be understood, or must not leave."""

    def crash(self, error: Exception) -> None:
        """A bug of ours: this connection ends, the process goes on."""


class Channel(asyncio.Protocol):
    """One socket of a connection. It is read while there is no reason to pause."""

    __slots__ = ("_connection", "bytes_in", "lost", "pauses", "peer", "read_ms", "transport", "write_full_since_ms", "write_peer")

    def __init__(self, connection: ChannelOwner) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.pauses = 0
        self.lost = False
        self.bytes_in = 0
        self.read_ms = 0
        self.write_full_since_ms = 0
        self.peer: Channel | None = None  # the other side of the connection
        self.write_peer: Callable[[bytes | memoryview], None] = _nowhere  # the other side's transport, once it is there

    def attach(self, transport: asyncio.BaseTransport, high: int = WRITE_HIGH_BYTES, low: int = WRITE_LOW_BYTES) -> None:
        """Take over a transport that was just made; above `high` unsent bytes the other side waits, until they are below `low`."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one without inheriting from it
        self.transport.set_write_buffer_limits(high, low)

    def fileno(self) -> int:
        """The descriptor of the socket; -1 when there is none."""
        if self.transport is None or self.lost:
            return -1
        sock = self.transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    def pause(self, reason: int) -> None:
        """Stop reading until every reason is gone."""
        if not self.pauses and self.transport is not None and not self.lost:
            self.transport.pause_reading()
        self.pauses |= reason

    def resume(self, reasons: int) -> None:
        """Take back reasons; reading goes on when none is left."""
        if not self.pauses & reasons:
            return
        self.pauses &= ~reasons
        if not self.pauses and self.transport is not None and not self.lost and not self.transport.is_closing():
            self.transport.resume_reading()

    def read_by(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another one take what the socket reads; uvloop looks at what kind it is when reading begins."""
        assert self.transport is not None
        if self.pauses:
            self.transport.set_protocol(protocol)
            return
        self.transport.pause_reading()
        self.transport.set_protocol(protocol)
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """This side does not take what it is sent: the other side waits."""
        self.write_full_since_ms = now_ms()
        if self.peer is not None:
            self.peer.pause(PEER_FULL)

    def resume_writing(self) -> None:
        """This side reads again."""
        self.write_full_since_ms = 0
        if self.peer is not None:
            self.peer.resume(PEER_FULL)

    def let_go(self) -> None:
        """Both sockets are gone: cut the circle of references, so that a connection is freed here and not by a garbage collection."""
        del self._connection
        self.transport = self.peer = None
        self.write_peer = _nowhere

    @property
    def paused_for(self) -> tuple[str, ...]:
        """Names of the reasons in force."""
        return tuple(name for reason, name in REASON_NAMES.items() if self.pauses & reason)


class BufferedReader(asyncio.BufferedProtocol):
    """Reads into a buffer in place of a channel, which still gets all other events of the socket."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def eof_received(self) -> bool | None:
        """As its channel."""
        return self._channel.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """As its channel."""
        self._channel.connection_lost(exc)

    def pause_writing(self) -> None:
        """As its channel."""
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        """As its channel."""
        self._channel.resume_writing()


def _nowhere(_data: bytes | memoryview) -> None:
    raise AssertionError("bytes before both sides are connected")
