"""Finds clients that disconnect while they are not read. A paused transport does not report it; the kernel does, at once."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

from proxy.net.connection import Connection

EVENTS_MAX = 64
RESET_ONLY = select.EPOLLONESHOT  # no other events: a reset is always reported
FIN_AND_RESET = select.EPOLLRDHUP | select.EPOLLONESHOT
RESET = select.EPOLLERR | select.EPOLLHUP


class DisconnectWatcher:
    """Watches client sockets for FIN and RST beside the event loop, which watches only sockets that it reads.

    A watched socket costs nothing until its client disconnects; starting costs one system call. Only these sockets are watched: those that
    a quota pauses, those whose broker does not read, and those that `ConnectionDeadlines` finds paused.
    """

    def __init__(self, on_left: Callable[[Connection, bool], None]) -> None:
        """`on_left` is called with the connection, and whether its client reset it. A FIN followed by a RST makes two calls."""
        self._on_left = on_left
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._watched: dict[int, Connection] = {}
        self._loop.add_reader(self._epoll.fileno(), self._poll)

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, connection: Connection) -> None:
        """Report when the client of this connection disconnects; one call per connection is enough."""
        fd = connection.client_sock.fileno()
        if fd < 0 or self._watched.get(fd) is connection:
            return
        self._watched[fd] = connection
        connection.watched_fd = fd
        self._epoll.register(fd, FIN_AND_RESET)

    def forget(self, connection: Connection) -> None:
        """Stop watching a connection that has ended."""
        fd = connection.watched_fd
        if fd >= 0:
            connection.watched_fd = -1
            self._watched.pop(fd, None)
            try:
                self._epoll.unregister(fd)
            except OSError:  # closed before: the kernel has removed it
                return

    def close(self) -> None:
        """Stop watching."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _poll(self) -> None:
        for fd, events in self._epoll.poll(0, EVENTS_MAX):
            connection = self._watched.get(fd)
            if connection is None:
                continue
            if not events & RESET:
                self._epoll.modify(fd, RESET_ONLY)
            self._on_left(connection, bool(events & RESET))
