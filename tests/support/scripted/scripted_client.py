"""A client that a test controls: raw bytes out, raw frames in, and every way to close."""

import asyncio
import contextlib
import socket
from types import TracebackType
from typing import Self

from tests.support.scripted.scripted_sockets import HOST, End, guarded, receive, reset


class ClosedByPeerError(ConnectionError):
    """The connection ended before the expected bytes."""

    def __init__(self, end: End, left_over: bytes) -> None:
        super().__init__(f"ended by {end.value} with {len(left_over)} bytes of an unfinished frame")
        self.end = end
        self.left_over = left_over


class ScriptedClient:
    """One connection.

    Attributes:
        received: bytes that were not read as frames yet.
        ended: how the other side ended; None until that is read.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.received = bytearray()
        self.ended: End | None = None

    @classmethod
    async def connect(cls, port: int, *, receive_bytes: int | None = None, source: str | None = None) -> Self:
        """Connect to a loopback port.

        Args:
            port: the port.
            receive_bytes: the kernel's receive buffer, None for the usual one.
            source: the loopback address of the client.
        """
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source is not None:
            sock.bind((source, 0))
        await guarded(asyncio.get_running_loop().sock_connect(sock, (HOST, port)))
        return cls(sock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether this side has closed."""
        return self.socket.fileno() < 0

    async def send(self, data: bytes) -> None:
        """Send these bytes.

        Raises:
            ConnectionError: the other side has closed.
        """
        await guarded(asyncio.get_running_loop().sock_sendall(self.socket, data))

    def send_some(self, data: bytes) -> int:
        """Send what the kernel accepts at once; return the number of bytes."""
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    async def read_some(self, count: int = 65_536) -> bytes:
        """Read at most `count` bytes, b"" at the end."""
        if self.received:
            data = bytes(self.received[:count])
            del self.received[:count]
            return data
        return b"" if not await self._more(count) else await self.read_some(count)

    async def read_exactly(self, count: int) -> bytes:
        """Read this many bytes.

        Raises:
            ClosedByPeerError: the other side ended first.
        """
        while len(self.received) < count:
            if not await self._more():
                assert self.ended is not None
                raise ClosedByPeerError(self.ended, bytes(self.received))
        data = bytes(self.received[:count])
        del self.received[:count]
        return data

    async def read_frame(self) -> bytes:
        """Read the next answer, length included.

        Raises:
            ClosedByPeerError: the other side ended first.
        """
        length = await self.read_exactly(4)
        return length + await self.read_exactly(int.from_bytes(length, "big"))

    async def read_frames(self, count: int) -> list[bytes]:
        """Read this many answers."""
        return [await self.read_frame() for _ in range(count)]

    async def ask(self, frame: bytes) -> bytes:
        """Send a request, return the answer."""
        await self.send(frame)
        return await self.read_frame()

    async def read_to_end(self) -> bytes:
        """Read until the other side ends; `ended` says how."""
        while await self._more():
            pass
        data = bytes(self.received)
        self.received.clear()
        return data

    def take_waiting(self) -> bytes:
        """Return the bytes received so far, without waiting."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while data := self.socket.recv(1 << 20):
                self.received += data
        data = bytes(self.received)
        self.received.clear()
        return data

    def half_close(self) -> None:
        """Send FIN and continue to read."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Send FIN (RST when answers are unread) and read no more."""
        self.socket.close()

    def reset(self) -> None:
        """Send RST."""
        reset(self.socket)

    async def _more(self, count: int = 1 << 18) -> bool:
        if self.ended is not None:
            return False
        data = await guarded(receive(self.socket, count))
        if isinstance(data, End):
            self.ended = data
            return False
        self.received += data
        return True
