"""Passing admitted connections, and duplicates of what listens: descriptors go to a worker over a socket of their own."""

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


class PassedConnection(msgspec.Struct, frozen=True, array_like=True, tag=True):
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
    """Return both ends; each message is one connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def pass_on(channel: socket.socket, passed: Passed, sock: socket.socket) -> None:
    """Give a connection away, or a duplicate of what listens; the caller closes its own descriptor of a connection.

    Raises:
        BlockingIOError: the worker has not taken those before it.
        OSError: the worker is gone.
    """
    socket.send_fds(channel, [_ENCODER.encode(passed)], [sock.fileno()])


class PassedConnections:
    """Takes connections in a worker.

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
