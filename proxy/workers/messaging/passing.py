"""Passing admitted connections: their descriptors go from the supervisor to a worker over a socket of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from struct import Struct
from typing import Final

import msgspec

TURN: Final = 32
"""So many are taken in one turn of the event loop."""
HEAD_BYTES_MAX: Final = 192 * 1024
"""A hello of TLS that was read to find a host name is in it: up to 128 KiB with the heads of its records, and what was read behind it."""
DESCRIPTOR: Final = Struct("i")


class PassedConnection(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a connection beside its descriptor.

    Attributes:
        listener: its name.
        node_id: the broker whose port it came to; None: the bootstrap port.
        peer: the client, as far as a load balancer named it.
        since_ms: when it was accepted, monotonic; the clock is the same for all processes of a machine.
        ip_key: what it counts as among the connections of its address.
        family: of the socket.
        first: what was read from it already.
    """

    listener: str
    node_id: int | None
    peer: tuple[str, int]
    since_ms: int
    ip_key: tuple[int, str]
    family: int
    first: bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(PassedConnection)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends; each message is one connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def pass_on(channel: socket.socket, connection: PassedConnection, sock: socket.socket) -> None:
    """Give a connection away; the caller closes its own descriptor.

    Raises:
        BlockingIOError: the worker has not taken those before it.
        OSError: the worker is gone.
    """
    socket.send_fds(channel, [_ENCODER.encode(connection)], [sock.fileno()])


class PassedConnections:
    """Takes connections in a worker.

    Args:
        take: called with each connection and its socket.
        lose: called with each connection for whose socket this process has no descriptor left; the kernel has closed it.
    """

    def __init__(
        self,
        channel: socket.socket,
        take: Callable[[PassedConnection, socket.socket], None],
        lose: Callable[[PassedConnection], None],
    ) -> None:
        self._channel = channel
        self._take = take
        self._lose = lose
        self._head = bytearray(HEAD_BYTES_MAX)
        channel.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._readable)

    def close(self) -> None:
        """Take no more; those that are on their way are closed by the kernel."""
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()

    def _readable(self) -> None:
        for _ in range(TURN):
            try:
                size, passed, _, _ = self._channel.recvmsg_into([self._head], socket.CMSG_LEN(DESCRIPTOR.size))
            except (BlockingIOError, InterruptedError):
                return
            if not size:
                self.close()  # the supervisor is gone: no more connections come
                return
            connection = _DECODER.decode(memoryview(self._head)[:size])
            if passed:
                (descriptor,) = DESCRIPTOR.unpack(passed[0][2])
                self._take(connection, socket.socket(connection.family, socket.SOCK_STREAM, 0, descriptor))
            else:
                self._lose(connection)
