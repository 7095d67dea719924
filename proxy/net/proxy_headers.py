"""Where connections of load balancers stay until they have said whose they are: one socket each, and no broker yet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.errors import ProxyHeaderError
from protocol.proxy_protocol import ProxyHeaderReader
from proxy.counters import Counters, bump
from proxy.session.close_reason import CloseReason

WAITING_MAX = 1_024
PEEK_BYTES = 4_096

Peer = tuple[str, int]


@dataclass(slots=True, eq=False)
class Arrival:
    """A connection that was accepted, and nothing more."""

    sock: socket.socket
    peer: Peer
    """Who connected: a balancer, or the client itself."""
    listener_name: str
    go_on: Callable[[Peer], None]
    """Called when its header was read, with who came. What follows the header is still in the socket."""
    accepted_ms: int


class Owner(Protocol):
    """Who keeps the books of connections."""

    counters: Counters

    def arrival_ended(self, arrival: Arrival, reason: CloseReason, detail: str) -> None:
        """It came to nothing: its socket is to be closed."""

    def arrival_crashed(self, arrival: Arrival, error: Exception) -> None:
        """A bug of ours: its socket is to be closed."""


class ProxyHeaders:
    """Reads the header of each arrival, within a deadline; when too many wait, who waited longest leaves."""

    def __init__(self, owner: Owner, deadline_ms: Callable[[], int]) -> None:
        self.owner = owner
        self._deadline_ms = deadline_ms
        self._waiting: dict[_Waiting, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def read(self, arrival: Arrival) -> None:
        """Read the header of `arrival` as it comes; afterwards the arrival goes on or ends."""
        if len(self._waiting) >= WAITING_MAX:
            next(iter(self._waiting)).end(CloseReason.PROXY_HEADER_DEADLINE, f"{WAITING_MAX} connections waited for their header")
        waiting = _Waiting(self, arrival, self._deadline_ms() / 1000)
        self._waiting[waiting] = None
        self.owner.counters.proxy_headers_waiting = len(self._waiting)
        waiting.look()

    def close(self, reason: CloseReason) -> None:
        """Nobody waits any longer."""
        for waiting in list(self._waiting):
            waiting.end(reason)

    def left(self, waiting: _Waiting, outcome: str | None) -> None:
        """One waits no more; `outcome` says what its header was, if it had one."""
        self._waiting.pop(waiting, None)
        self.owner.counters.proxy_headers_waiting = len(self._waiting)
        if outcome is not None:
            bump(self.owner.counters.proxy_headers, outcome)


class _Waiting:
    """One socket: bytes are looked at where the kernel keeps them, and taken only as far as they belong to the header."""

    __slots__ = ("_arrival", "_loop", "_reader", "_room", "_timer")

    def __init__(self, room: ProxyHeaders, arrival: Arrival, deadline_s: float) -> None:
        self._room = room
        self._arrival = arrival
        self._reader = ProxyHeaderReader()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(deadline_s, self._too_late)
        self._loop.add_reader(arrival.sock.fileno(), self.look)

    def look(self) -> None:
        """See what has come."""
        try:
            self._take()
        except (BlockingIOError, InterruptedError):
            return
        except ProxyHeaderError as error:
            self.end(CloseReason.PROXY_HEADER, str(error))
        except OSError as error:
            self._ended_by_peer(CloseReason.CLIENT_RESET, str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours costs this client, and nobody else
            self._leave(None)
            self._room.owner.arrival_crashed(self._arrival, error)

    def end(self, reason: CloseReason, detail: str = "") -> None:
        """Wait no longer."""
        self._leave(None)
        self._room.owner.arrival_ended(self._arrival, reason, detail)

    def _take(self) -> None:
        """Take the header, as far as it is here.

        Raises:
            BlockingIOError: there is nothing (more) now.
            ProxyHeaderError: this is no header.
            OSError: the connection broke.
        """
        while True:
            data = self._arrival.sock.recv(PEEK_BYTES, socket.MSG_PEEK)
            if not data:
                self._ended_by_peer(CloseReason.CLIENT_CLOSED, "in the middle of its PROXY header")
                return
            if self._reader.header is not None:  # the balancer asked for itself, and has something to say
                self._go_on(self._arrival.peer, "local")
                return
            self._arrival.sock.recv(self._reader.feed(data))
            header = self._reader.header
            if header is not None and not header.local:
                self._go_on(header.source or self._arrival.peer, "address" if header.source else "unknown")
                return

    def _go_on(self, peer: Peer, outcome: str) -> None:
        self._leave(outcome)
        self._arrival.go_on(peer)

    def _ended_by_peer(self, reason: CloseReason, detail: str) -> None:
        """Balancers connect and close, or connect, say LOCAL and close, only to see whether somebody is there."""
        header = self._reader.header
        if header is not None or not self._reader.begun:
            self._leave(None if header is None else "local")
            self._room.owner.arrival_ended(self._arrival, CloseReason.HEALTH_CHECK, "")
        else:
            self.end(reason, detail)

    def _too_late(self) -> None:
        if self._reader.header is not None:
            self._leave("local")
            self._room.owner.arrival_ended(self._arrival, CloseReason.FIRST_FRAME_DEADLINE, "")
        else:
            self.end(CloseReason.PROXY_HEADER_DEADLINE, "its header began" if self._reader.begun else "no byte came")

    def _leave(self, outcome: str | None) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._arrival.sock.fileno())
        self._room.left(self, outcome)
