"""Passing admitted connections, and duplicates of what listens: descriptors go to a worker over a socket of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from struct import Struct
from typing import Final

import msgspec

TURN: Final = 32
"""Maximum number of connections taken in one turn of the event loop."""
HEAD_BYTES_MAX: Final = 192 * 1024
"""It may contain a ClientHello that was read for its host name: up to 128 KiB with record headers, and the bytes read after it."""
DESCRIPTOR: Final = Struct("i")


class PassedConnection(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What is known of a connection beside its descriptor.

    Attributes:
        listener: its listener's name.
        node_id: the broker of its port; None: the bootstrap port.
        peer: the client, as named by a load balancer if there is one.
        since_ms: when it was accepted, monotonic; all processes of a host have the same clock.
        ip_key: the key of its address.
        family: of the socket.
        first: bytes that were read from it already.
    """

    listener: str
    node_id: int | None
    peer: tuple[str, int]
    since_ms: int
    ip_key: tuple[int, str]
    family: int
    first: bytes


class PassedPort(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A port of the supervisor: the name of its listener, its address as it is configured, the family of its socket."""

    listener: str
    address: str
    family: int


class PassedMeeting(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The socket where supervisors meet."""


Passed = PassedConnection | PassedPort | PassedMeeting
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Passed)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a socket on which each message is one connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def pass_on(channel: socket.socket, passed: Passed, sock: socket.socket) -> None:
    """Give a connection away, or a duplicate of what listens; the caller closes its own descriptor of a connection.

    Raises:
        BlockingIOError: the worker's queue is full.
        OSError: the worker has ended.
    """
    socket.send_fds(channel, [_ENCODER.encode(passed)], [sock.fileno()])


class PassedConnections:
    """Receives connections in a worker.

    Args:
        take: called with each connection and its socket.
        lose: called with each connection for whose socket this process has no descriptor left; the kernel has closed it.
        keep: called with each duplicate of what listens.
    """

    def __init__(
        self,
        channel: socket.socket,
        take: Callable[[PassedConnection, socket.socket], None],
        lose: Callable[[PassedConnection], None],
        keep: Callable[[PassedPort | PassedMeeting, socket.socket], None],
    ) -> None:
        self._channel = channel
        self._take = take
        self._lose = lose
        self._keep = keep
        self._head = bytearray(HEAD_BYTES_MAX)
        channel.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._readable)

    def close(self) -> None:
        """Receive no more; the kernel closes those in the queue."""
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
                self.close()  # the supervisor has ended: no more connections arrive
                return
            self._received(_DECODER.decode(memoryview(self._head)[:size]), [DESCRIPTOR.unpack(data)[0] for _, _, data in passed])

    def _received(self, head: Passed, descriptors: list[int]) -> None:
        if not descriptors:
            if isinstance(head, PassedConnection):
                self._lose(head)
        elif isinstance(head, PassedConnection):
            self._take(head, socket.socket(head.family, socket.SOCK_STREAM, 0, descriptors[0]))
        elif isinstance(head, PassedPort):
            self._keep(head, socket.socket(head.family, socket.SOCK_STREAM, 0, descriptors[0]))
        else:
            self._keep(head, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptors[0]))
