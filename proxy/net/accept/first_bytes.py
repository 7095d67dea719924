"""Connections whose first bytes have to be read before they can be served: one socket each, no TLS and no broker yet."""

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
    """Who connected: a balancer, until its header has named the client."""
    listener_name: str
    since_ms: int
    """When it was accepted, or its header read."""
    first: bytes = b""
    """What was read from the socket already."""


GoOn = Callable[[Arrival], None]
"""Called when the wait is over."""


class Owner(Protocol):
    """Counts connections."""

    counters: Counters

    def arrival_ended(self, arrival: Arrival, reason: CloseReason, detail: str) -> None:
        """It came to nothing: its socket is to be closed."""

    def arrival_crashed(self, arrival: Arrival, error: Exception) -> None:
        """A bug of ours: its socket is to be closed."""


class PreambleReaders:
    """The connections that wait, each with a deadline. Above the limit the one that waited longest is closed as `too_late`.

    Attributes:
        what: what is waited for, as the log calls it.
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
        """One more waits; it is looked at now, and whenever something comes."""
        if len(self._waiting) >= WAITING_MAX:
            next(iter(self._waiting)).end(self.too_late, f"{WAITING_MAX} connections waited for their {self.what}")
        self._waiting[waiting] = None
        self.changed()
        waiting.look()

    def left(self, waiting: PreambleReader) -> None:
        """One waits no more."""
        self._waiting.pop(waiting, None)
        self.changed()

    def changed(self) -> None:
        """So many wait now."""

    def close(self, reason: CloseReason) -> None:
        """End all waits."""
        for waiting in list(self._waiting):
            waiting.end(reason)


class PreambleReader:
    """One socket. A subclass reads it in `take`, and decides in `late` about a client that sends nothing."""

    __slots__ = ("_loop", "_timer", "arrival", "room")

    def __init__(self, room: Any, arrival: Arrival) -> None:
        self.room = room
        self.arrival = arrival
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(room.deadline_ms() / 1000, self.late)
        arrival.sock.setblocking(False)
        self._loop.add_reader(arrival.sock.fileno(), self.look)

    def look(self) -> None:
        """See what has come."""
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
            self.room.owner.arrival_crashed(self.arrival, error)

    def take(self) -> None:
        """Read what is here.

        Raises:
            BlockingIOError: there is nothing (more) now.
            ProtocolError: what came is wrong.
            OSError: the connection broke.
        """
        raise NotImplementedError

    def late(self) -> None:
        """It took too long."""
        raise NotImplementedError

    def end(self, reason: CloseReason, detail: str = "") -> None:
        """Wait no longer, and close."""
        self.leave()
        self.room.owner.arrival_ended(self.arrival, reason, detail)

    def ended_by_peer(self, reason: CloseReason, detail: str) -> None:
        """It left by itself."""
        self.end(reason, detail)

    def leave(self) -> None:
        """Wait no longer; a second time nothing happens."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.remove_reader(self.arrival.sock.fileno())
            self.room.left(self)
