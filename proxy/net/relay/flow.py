"""Pausing a transport for several independent reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from protocol.errors import ProtocolError
from proxy.base.clock import now_ms
from proxy.base.direct_writer import DirectWriter
from proxy.base.pause_reason import PEER_FULL, REASON_NAMES
from proxy.net.relay.long_frame_memory import LongFrameMemory
from proxy.net.sockets import restore_receive_buffer, shrink_receive_buffer
from proxy.session.session import Session
from proxy.tls.transport import TlsTransport

FLUSH_S = 5.0  # how long a side that is being closed may take to read the bytes written to it
TO_CLIENT_LIMITS_BYTES = 256 * 1024, 64 * 1024
# Less towards brokers: one read of up to 256 KiB is added, and a connection may hold 512 KiB.
TO_BROKER_LIMITS_BYTES = 128 * 1024, 32 * 1024


class ChannelOwner(Protocol):
    """The connection of a channel: receives the socket's events and decides what to do.

    Attributes:
        session: receives the bytes that are read.
        closing: the connection ends, and bytes that are read are discarded.
    """

    session: Session
    closing: bool

    @property
    def long_frame_memory(self) -> LongFrameMemory:
        """The memory into which long frames are read."""

    def attempt(self, act: Callable[[], None]) -> None:
        """Run `act`: an exception ends this connection and no other."""

    def settle(self, now: int) -> None:
        """Apply what the session decided."""

    def client_made(self) -> None:
        """Both sides are connected."""

    def client_eof(self) -> None:
        """The client has closed its side."""

    def client_lost(self, error: Exception | None) -> None:
        """The client's socket is closed."""

    def broker_gone(self, error: Exception | None) -> None:
        """The broker has closed the connection."""

    def broker_stalled(self) -> None:
        """The broker does not read."""

    def fail_client(self, error: ProtocolError, data: bytes) -> None:
        """The client's bytes are invalid, or a refused request."""

    def fail_broker(self, error: ProtocolError) -> None:
        """The broker's bytes are invalid, or must not be sent."""

    def crash(self, error: Exception) -> None:
        """An unexpected exception: this connection ends, the process continues."""


class Channel(asyncio.Protocol):
    """One socket of a connection. It is read while there is no reason to pause.

    Attributes:
        write_limits_bytes: above the first number of unsent bytes the other side is paused, until they are below the second one.
    """

    write_limits_bytes = TO_CLIENT_LIMITS_BYTES

    __slots__ = (
        "_connection",
        "_has_small_buffer",
        "bytes_in",
        "lost",
        "pauses",
        "peer",
        "read_ms",
        "transport",
        "write_full_since_ms",
        "write_peer",
        "writer",
    )

    def __init__(self, connection: ChannelOwner) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.pauses = 0
        self._has_small_buffer = False
        self.lost = False
        self.bytes_in = 0
        self.read_ms = 0
        self.write_full_since_ms = 0
        self.peer: Channel | None = None  # the other side's channel
        self.writer: DirectWriter | TlsTransport | None = None  # all bytes to this socket go through it
        self.write_peer: Callable[[bytes | memoryview], None] = _nowhere  # to the other side, when it is connected

    def attach(self, transport: asyncio.BaseTransport) -> None:
        """Take over a new transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from `asyncio.Transport`
        self.transport.set_write_buffer_limits(*self.write_limits_bytes)
        self.writer = transport if isinstance(transport, TlsTransport) else DirectWriter(self.transport)

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes to this side, if it is connected."""
        if self.writer is not None and not self.lost:
            self.writer.write(data)

    def begin_direct_writes(self, descriptor: int) -> None:
        """Write to the socket past the event loop; see `DirectWriter`."""
        if self.writer is not None and not self.lost:
            self.writer.begin_direct_writes(descriptor)

    def end_direct_writes(self) -> None:
        """Leave the socket to the transport, which is about to close it."""
        if self.writer is not None:
            self.writer.end_direct_writes()

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the socket when everything is sent, which takes `FLUSH_S` at most."""
        assert self.transport is not None
        self.end_direct_writes()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            loop.call_later(FLUSH_S, self.abort)

    def abort(self) -> None:
        """Close the socket now, and drop what was not sent."""
        if self.transport is not None and not self.lost:
            self.end_direct_writes()
            self.transport.abort()

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
        """Remove reasons; reading continues when none is left."""
        if not self.pauses & reasons:
            return
        self.pauses &= ~reasons
        if not self.pauses and self.transport is not None and not self.lost and not self.transport.is_closing():
            self.transport.resume_reading()

    def shrink_receive_buffer(self) -> None:
        """Make the kernel's receive buffer small: bytes that are not read stay with their sender."""
        if not self._has_small_buffer and self.transport is not None:
            self._has_small_buffer = True
            shrink_receive_buffer(self.fileno())

    def restore_receive_buffer(self) -> None:
        """Restore the usual receive buffer."""
        if self._has_small_buffer and self.transport is not None:
            self._has_small_buffer = False
            restore_receive_buffer(self.fileno())

    def read_by(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol receive the bytes; uvloop checks the protocol's kind when reading begins."""
        assert self.transport is not None
        if self.pauses:
            self.transport.set_protocol(protocol)
            return
        self.transport.pause_reading()
        self.transport.set_protocol(protocol)
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """This side does not read: pause the other side."""
        self.write_full_since_ms = now_ms()
        if self.peer is not None:
            self.peer.pause(PEER_FULL)

    def resume_writing(self) -> None:
        """This side reads again."""
        self.write_full_since_ms = 0
        if self.peer is not None:
            self.peer.resume(PEER_FULL)

    def let_go(self) -> None:
        """Both sockets are closed: break the reference cycle, so that the connection is freed without the garbage collector."""
        del self._connection
        self.transport = self.writer = self.peer = None
        self.write_peer = _nowhere

    @property
    def paused_for(self) -> tuple[str, ...]:
        """Names of the reasons in force."""
        return tuple(name for reason, name in REASON_NAMES.items() if self.pauses & reason)


class BufferedReader(asyncio.BufferedProtocol):
    """Reads into a buffer in place of a channel, which still receives all other events of the socket."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def eof_received(self) -> bool | None:
        """Delegate to the channel."""
        return self._channel.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Delegate to the channel."""
        self._channel.connection_lost(exc)

    def pause_writing(self) -> None:
        """Delegate to the channel."""
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        """Delegate to the channel."""
        self._channel.resume_writing()


def _nowhere(_data: bytes | memoryview) -> None:
    raise AssertionError("bytes before both sides are connected")
