"""Connections whose first bytes have to be read before they can be served; each has a socket, but no TLS and no broker yet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from protocol.errors import ProtocolError
from proxy.base.close_reason import CloseReason, reason_of
from proxy.telemetry.counters import Counters

WAITING_MAX = 1_024

Peer = tuple[str, int]


@dataclass(slots=True, eq=False)
class Arrival:
    """An accepted connection."""

    sock: socket.socket
    peer: Peer
    """The client; for a load balancer its own address until its header names the client."""
    listener_name: str
    since_ms: int
    """When the connection was accepted, or its header was read, in ms."""
    first: bytes = b""
    """Bytes that were read from the socket."""


GoOn = Callable[[Arrival], None]
"""Called when the first bytes are complete."""


class Owner(Protocol):
    """Receives the connections that end while they wait."""

    counters: Counters

    def arrival_ended(self, arrival: Arrival, reason: CloseReason, detail: str) -> None:
        """A connection ended early: close its socket."""

    def arrival_crashed(self, arrival: Arrival, error: Exception) -> None:
        """An unexpected exception occurred: close the socket."""


class PreambleReaders:
    """The waiting connections, each with a deadline. Above the limit the one that has waited longest is closed with reason `too_late`.

    Attributes:
        what: name of what they wait for, in log messages.
    """

    too_late: ClassVar[CloseReason]
    what: ClassVar[str]

    def __init__(self, owner: Owner, deadline_ms: Callable[[], int]) -> None:
        self.owner = owner
        self.deadline_ms = deadline_ms
        self._waiting: dict[PreambleReader, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, waiting: PreambleReader) -> None:
        """Add a waiting connection; it is read now, and whenever bytes arrive."""
        if len(self._waiting) >= WAITING_MAX:
            next(iter(self._waiting)).end(self.too_late, f"{WAITING_MAX} connections waited for their {self.what}")
        self._waiting[waiting] = None
        self.changed()
        waiting.on_readable()

    def left(self, waiting: PreambleReader) -> None:
        """Remove a waiting connection."""
        self._waiting.pop(waiting, None)
        self.changed()

    def changed(self) -> None:
        """Called when the number of waiting connections has changed."""

    def close(self, reason: CloseReason) -> None:
        """End all waiting connections."""
        for waiting in list(self._waiting):
            waiting.end(reason)


class PreambleReader:
    """One socket. A subclass reads it in `take`, and decides in `late` on a client that sends nothing."""

    __slots__ = ("_loop", "_timer", "arrival", "readers")

    def __init__(self, readers: Any, arrival: Arrival) -> None:
        self.readers = readers
        self.arrival = arrival
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(readers.deadline_ms() / 1000, self.late)
        arrival.sock.setblocking(False)
        self._loop.add_reader(arrival.sock.fileno(), self.on_readable)

    def on_readable(self) -> None:
        """Read available bytes, and handle errors."""
        try:
            self.take()
        except (BlockingIOError, InterruptedError):
            return
        except ProtocolError as error:
            self.end(reason_of(error, otherwise=CloseReason.BAD_REQUEST), str(error))
        except OSError as error:
            self.ended_by_peer(CloseReason.CLIENT_RESET, str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this client's connection only
            self.leave()
            self.readers.owner.arrival_crashed(self.arrival, error)

    def take(self) -> None:
        """Read available bytes.

        Raises:
            BlockingIOError: no (more) bytes are available.
            ProtocolError: the bytes are invalid.
            OSError: the connection broke.
        """
        raise NotImplementedError

    def late(self) -> None:
        """Handle the end of the time limit."""
        raise NotImplementedError

    def end(self, reason: CloseReason, detail: str = "") -> None:
        """Stop waiting, and close the connection."""
        self.leave()
        self.readers.owner.arrival_ended(self.arrival, reason, detail)

    def ended_by_peer(self, reason: CloseReason, detail: str) -> None:
        """The peer has closed the connection."""
        self.end(reason, detail)

    def leave(self) -> None:
        """Stop waiting; a second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.remove_reader(self.arrival.sock.fileno())
            self.readers.left(self)
