"""Reading long frames in few large pieces, into memory that all connections of an event loop share.

A read and its write cost the kernel some 20 us on loopback, whatever their size, and an event loop reads at most 250 kB at once. A body is
written from that memory; only bytes that contain the head of a frame become an object of their own.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from protocol.errors import ProtocolError
from proxy.base.clock import NS_PER_MS, now_ns
from proxy.net.relay.flow import BufferedReader, Channel, ChannelOwner
from proxy.net.relay.long_frame_memory import STEP_BYTES, LongFrameMemory
from proxy.session.settle_flag import SettleFlag
from proxy.tls.transport import TlsTransport

LONG_BODY_BYTES: Final = 256 * 1024
"""Minimum of bytes that must remain of a frame; otherwise its rest is one ordinary read."""
LONG_READ_BYTES: Final = 32 * 1024
"""Minimum of bytes at the beginning of a long frame; with fewer, the channel returns to short frames."""
HEAD_READ_BYTES: Final = 64 * 1024
"""The size of a read that contains the head of a frame."""
TAIL_READ_BYTES: Final = 1024
"""Most bytes that one read contains of the same frame behind those that pass, such as the tag sections behind the records of a Fetch."""


class LongFrameSide(Protocol):
    """The session's side that follows the frames of a channel."""

    @property
    def passing_bytes(self) -> int:
        """Number of the next bytes of a frame that pass unchanged; 0 when the next bytes are followed or kept."""

    @property
    def followed_bytes(self) -> int:
        """Number of bytes of the same frame behind these."""

    def scan(self, data: bytes, now_ms: int, now_ns: int, /) -> bytes | memoryview | None:
        """Follow bytes; return those that go to the other side now."""

    def pass_body(self, size: int, now_ms: int, now_ns: int) -> None:
        """Count bytes, at most `passing_bytes`, that go to the other side unchanged."""


class LongFrameChannel(Channel):
    """A channel that can read long frames in large pieces; `side` follows its frames."""

    __slots__ = ("_long_frames", "_settle_flag", "_side")

    def __init__(self, connection: ChannelOwner, side: LongFrameSide, settle_flag: SettleFlag) -> None:
        super().__init__(connection)
        self._side = side
        self._settle_flag = settle_flag
        self._long_frames: LongFrameReader | None = None  # reads in place of this channel while frames are long

    def data_received(self, data: bytes) -> None:
        """Follow bytes that contain the head of a frame, or are few, and send on what the session releases."""
        raise NotImplementedError

    def discard(self, data: memoryview, now_ms: int) -> None:
        """Drop bytes of a body, because the connection ends."""

    def fail(self, error: ProtocolError) -> None:
        """Close the connection, because bytes of this side are invalid."""
        raise NotImplementedError

    def body_received(self, data: memoryview, passing_bytes: int) -> None:
        """Send on bytes of the body of a frame: those that pass unchanged, and what follows behind them."""
        connection = self._connection
        at_ns = now_ns()
        now = at_ns // NS_PER_MS
        if connection.closing:
            self.discard(data, now)
            return
        self.read_ms = now
        self.bytes_in += len(data)
        try:
            if len(data) <= passing_bytes:
                self._side.pass_body(len(data), now, at_ns)
                self.write_peer(data)
            else:
                self._end_received(data, passing_bytes, now, at_ns)
            if self._settle_flag.needs_settle:
                connection.settle(now)
        except ProtocolError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)

    def _end_received(self, data: memoryview, passing_bytes: int, now_ms: int, now_ns: int) -> None:
        """Send on the end of what passes unchanged, and follow the few bytes behind it; in one write, if they do not change either."""
        self._side.pass_body(passing_bytes, now_ms, now_ns)
        tail = bytes(data[passing_bytes:])
        onward = self._side.scan(tail, now_ms, now_ns)
        if onward == tail:
            self.write_peer(data)
            return
        self.write_peer(data[:passing_bytes])
        if onward is not None:
            self.write_peer(onward)

    def read_long_frames(self) -> None:
        """Read larger pieces than the event loop's own, if a long body arrives. Not for TLS, whose decrypted pieces have their own size."""
        if self._long_frames is not None or self._side.passing_bytes < LONG_BODY_BYTES:
            return
        peer = None if self.peer is None or self.peer.lost else self.peer.transport
        if peer is not None and not isinstance(self.transport, TlsTransport):
            peer.set_write_buffer_limits(0, 0)  # unsent bytes are then all that this connection holds
            self._long_frames = LongFrameReader(self, self._side, peer, self._connection.long_frame_memory)
            self.read_by(self._long_frames)

    def read_short_frames(self) -> None:
        """Return to ordinary reads after a short frame, since the next one may be short too."""
        peer = self.peer
        if self._long_frames is None or self._connection.closing or peer is None or peer.transport is None:
            return
        self._long_frames = None
        peer.transport.set_write_buffer_limits(*peer.write_limits_bytes)
        self.read_by(self)

    @property
    def released_bytes(self) -> int:
        """Bytes of given-up memory that the other side's transport holds, sent or not."""
        reader = self._long_frames
        peer = None if reader is None or self.peer is None or self.peer.lost else self.peer.transport
        return reader.released_bytes if reader is not None and peer is not None and peer.get_write_buffer_size() else 0

    def let_go(self) -> None:
        """Release references, as in `Channel`."""
        self._long_frames = None
        super().let_go()


class LongFrameReader(BufferedReader):
    """Reads in place of a channel from a long frame to the next short one; a read of a body never crosses the end of its frame.

    Attributes:
        released_bytes: the size of the memory that was given up last.
    """

    __slots__ = ("_is_taken", "_memory", "_passing_bytes", "_peer", "_read_bytes", "_side", "released_bytes")

    _channel: LongFrameChannel

    def __init__(self, channel: LongFrameChannel, side: LongFrameSide, peer: asyncio.Transport, memory: LongFrameMemory) -> None:
        super().__init__(channel)
        self._side = side
        self._peer = peer
        self._memory = memory
        self._read_bytes = STEP_BYTES  # the size of the memory of the read under way
        self._passing_bytes = 0  # at the beginning of that read
        self._is_taken = False  # whether the other side has taken a whole step at once
        self.released_bytes = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into: for the rest of a body, or for the next frame's head and the beginning of its body."""
        left = self._passing_bytes = self._side.passing_bytes
        self._read_bytes = self._memory.read_bytes(left) if self._is_taken else STEP_BYTES
        size = left + min(self._side.followed_bytes, TAIL_READ_BYTES) if left else HEAD_READ_BYTES
        return self._memory.of(self._read_bytes)[:size]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the bytes that were read to the channel."""
        data, channel, side = self._memory.of(self._read_bytes)[:nbytes], self._channel, self._side
        if not self._passing_bytes:
            head = bytes(data)
            data[:] = bytes(nbytes)  # a token of a login may be among them
            channel.data_received(head)
            if nbytes < LONG_READ_BYTES:
                channel.read_short_frames()
            return
        channel.body_received(data, self._passing_bytes)
        if self._peer.get_write_buffer_size():
            self.released_bytes = self._read_bytes
            self._memory.release(self.released_bytes)
            self._is_taken = False
        elif nbytes >= STEP_BYTES:
            self._is_taken = True
        if side.passing_bytes < LONG_BODY_BYTES and side.followed_bytes > TAIL_READ_BYTES:
            channel.read_short_frames()
