"""A listening port with its own accept loop, so that admission decides before a transport exists."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable

from proxy.net.sockets import queued_connections

ACCEPTS_PER_TURN = 32
"""Accepting many connections in one turn of the event loop costs less for each of them."""
BACKLOG_ACCEPTS_PER_TURN = 8
"""Connections accepted in a turn while the kernel's queue is long: other connections wait while these are set up."""
BACKLOG_CONNECTIONS_MIN = 128
SINGLE_ACCEPT_TURNS = 7
"""While connections arrive alone, this many turns accept one each, since looking for another costs a system call that fails."""
SINGLE_ARRIVALS_MIN = 6
"""Number of consecutive turns with a single connection before that: where several arrive at once, a turn for each costs more."""
RETRY_S = 0.1
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class _ClientSocket(socket.socket):
    """An accepted socket with a fixed type and family: the properties of `socket.socket` create an enumeration member at each access.

    The socket is blocking until a transport takes it over, which makes it non-blocking.
    """

    __slots__ = ()

    type = int(socket.SOCK_STREAM)  # type: ignore[assignment]
    family = int(socket.AF_INET)  # type: ignore[assignment]


class _ClientSocket6(_ClientSocket):
    __slots__ = ()

    family = int(socket.AF_INET6)


OnAccept = Callable[[socket.socket, tuple[str, int]], None]


class Acceptor:
    """Accepts on one socket and hands each connection to `on_accept`.

    When descriptors run out, it calls `on_exhausted` and pauses; existing connections are not affected.
    `may_accept` is called before each accept; while it returns False, it is called again every 0.1 s.
    Between `stop` and `go_on`, and between `suspend` and `resume`, clients wait in the kernel's queue.

    Attributes:
        sock: listens.
    """

    def __init__(self, sock: socket.socket, on_accept: OnAccept, may_accept: Callable[[], bool], on_exhausted: Callable[[], None]) -> None:
        self.sock = sock
        self._on_exhausted = on_exhausted
        self._on_accept = on_accept
        self._may_accept = may_accept
        self._loop = asyncio.get_running_loop()
        self._family = int(sock.family)
        self._client_socket = _ClientSocket if self._family == socket.AF_INET else _ClientSocket6
        self._reading = False
        self._stopped = self._suspended = False
        self._accepts_per_turn = ACCEPTS_PER_TURN
        self._single_turns = self._single_arrivals = 0
        self._retry: asyncio.TimerHandle | None = None
        self.port: int = sock.getsockname()[1]
        self._spare = _spare_descriptor()
        self._resume()

    def stop(self) -> None:
        """Stop accepting until `go_on`."""
        self._stopped = True
        self._pause()

    def go_on(self) -> None:
        """Accept again."""
        self._stopped = False
        if self._retry is None:
            self._resume()

    def suspend(self) -> None:
        """Stop accepting until `resume`, whatever `go_on` says: another process may have this port."""
        self._suspended = True
        self._pause()

    def resume(self) -> None:
        """Accept again, unless it was stopped."""
        self._suspended = False
        if self._retry is None:
            self._resume()

    def close(self) -> None:
        """Stop listening; the kernel refuses the connections in its queue."""
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
        self.sock.close()
        if self._spare is not None:
            os.close(self._spare)

    def _resume(self) -> None:
        self._retry = None
        if self._spare is None:
            self._spare = _spare_descriptor()
        if not self._reading and not self._stopped and not self._suspended and self.sock.fileno() >= 0:
            self._reading = True
            self._loop.add_reader(self.sock.fileno(), self._on_readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.sock.fileno())

    def _pause_for_a_moment(self) -> None:
        self._pause()
        self._retry = self._loop.call_later(RETRY_S, self._resume)

    def _on_readable(self) -> None:
        if self._single_turns:
            self._single_turns -= 1
            self._accept_some(1)
        elif self._accept_some(self._accepts_per_turn):
            has_backlog = queued_connections(self.sock) > BACKLOG_CONNECTIONS_MIN
            self._accepts_per_turn = BACKLOG_ACCEPTS_PER_TURN if has_backlog else ACCEPTS_PER_TURN

    def _accept_some(self, accepts_max: int) -> bool:
        """Accept until no connection waits, or `accepts_max` were accepted; return whether more may wait."""
        for number in range(accepts_max):
            if not self._reading:  # the last connection has to wait, and so do all behind it
                return False
            if not self._may_accept():
                self._pause_for_a_moment()
                return False
            try:
                fd, peer = self.sock._accept()  # type: ignore[attr-defined]  # as `accept`, which makes a socket of the slow kind
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._accepts_per_turn = ACCEPTS_PER_TURN
                self._single_arrivals = self._single_arrivals + 1 if number <= 1 else 0
                self._single_turns = SINGLE_ACCEPT_TURNS if self._single_arrivals >= SINGLE_ARRIVALS_MIN else 0
                return False
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._descriptors_exhausted()
                return False
            sock = self._client_socket(self._family, socket.SOCK_STREAM, 0, fd)
            self._on_accept(sock, peer)
        return True

    def _descriptors_exhausted(self) -> None:
        """Refuse one client with the spare descriptor, so that it does not wait for a timeout, then pause."""
        self._on_exhausted()
        self._pause_for_a_moment()
        if self._spare is None:
            return
        os.close(self._spare)
        with contextlib.suppress(OSError):
            sock, _ = self.sock.accept()
            sock.close()
        self._spare = _spare_descriptor()


def _spare_descriptor() -> int | None:
    """Open a spare descriptor; None when another thread took the last one."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
