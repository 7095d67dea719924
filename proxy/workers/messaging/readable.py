"""A socket of messages that the event loop watches."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


class ReadableSocket:
    """Calls `on_readable` whenever a socket has something to read.

    Args:
        sock: is made non-blocking, and is closed with this object.
        on_readable: called on the event loop.
    """

    def __init__(self, sock: socket.socket, on_readable: Callable[[], None]) -> None:
        self._sock = sock
        sock.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), on_readable)

    def close(self) -> None:
        """Stop watching, and close the socket; a second call does nothing."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
