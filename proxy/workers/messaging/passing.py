"""Passes admitted connections and duplicates of listening sockets to a worker, as descriptors over a separate socket."""

from __future__ import annotations

import socket
from collections.abc import Callable
from struct import Struct
from typing import Final

import msgspec

from proxy.workers.messaging.readable import ReadableSocket

TURN: Final = 32
"""Maximum number of connections received in one turn of the event loop."""
HEAD_BYTES_MAX: Final = 192 * 1024
"""Limit of one message. It may contain a ClientHello (up to 128 KiB with record headers) and the bytes that were read after it."""
DESCRIPTOR: Final = Struct("i")


class PassedConnection(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The properties of a passed connection.

    Attributes:
        listener: name of the listener.
        node_id: broker of the port; None: the bootstrap port.
        peer: address of the client, as reported by a load balancer if there is one.
        since_ms: time of acceptance, monotonic; all processes of a host have the same clock.
        ip_key: key under which the address is counted.
        family: address family of the socket.
        first: bytes that the supervisor has already read from the socket.
    """

    listener: str
    node_id: int | None
    peer: tuple[str, int]
    since_ms: int
    ip_key: tuple[int, str]
    family: int
    first: bytes


class PassedPort(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A listening port of the supervisor: listener name, configured address, and address family of the socket."""

    listener: str
    address: str
    family: int


class PassedHandoverSocket(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The supervisor's listening socket for handovers."""


Passed = PassedConnection | PassedPort | PassedHandoverSocket
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Passed)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a socket pair; each message carries one connection or listening socket."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def pass_on(channel: socket.socket, passed: Passed, sock: socket.socket) -> None:
    """Send a connection, or a duplicate of a listening socket; the caller closes its own descriptor of a connection.

    Raises:
        BlockingIOError: the worker's queue is full.
        OSError: the worker has ended.
    """
    socket.send_fds(channel, [_ENCODER.encode(passed)], [sock.fileno()])


class PassedConnections:
    """Receives connections and listening sockets in a worker.

    Args:
        take: called with each connection and its socket.
        lose: called with each connection that the kernel closed because this process has no free descriptor.
        keep: called with each duplicate of a listening socket.
    """

    def __init__(
        self,
        channel: socket.socket,
        take: Callable[[PassedConnection, socket.socket], None],
        lose: Callable[[PassedConnection], None],
        keep: Callable[[PassedPort | PassedHandoverSocket, socket.socket], None],
    ) -> None:
        self._channel = channel
        self._take = take
        self._lose = lose
        self._keep = keep
        self._head = bytearray(HEAD_BYTES_MAX)
        self._readable_socket = ReadableSocket(channel, self._readable)

    def close(self) -> None:
        """Stop receiving; the kernel closes the connections in the queue."""
        self._readable_socket.close()

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
