"""Connections that wait for the TLS ClientHello, which names the host that the client wants."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from protocol.client_hello import ClientHelloReader
from proxy.base.close_reason import CloseReason
from proxy.net.accept.first_bytes import Arrival, PreambleReader, PreambleReaders

READ_BYTES: Final = 4_096
UNRECOGNIZED_NAME: Final = bytes((21, 3, 3, 0, 2, 2, 112))
"""A fatal alert of TLS: what the client's log then says. Source: RFC 8446, 6.2."""

GoOn = Callable[[Arrival, str | None], None]
"""Called when a hello is whole, with the host name in it; what was read is in the arrival."""


class ClientHellos(PreambleReaders):
    """Reads the ClientHello of each accepted connection."""

    too_late = CloseReason.TLS_HANDSHAKE_DEADLINE
    what = "hello"

    def read(self, arrival: Arrival, go_on: GoOn) -> None:
        """Read the hello of `arrival` as it comes; afterwards the arrival goes on or ends."""
        self.enter(_Hello(self, arrival, go_on))

    def refuse(self, arrival: Arrival, detail: str) -> None:
        """Answer a client that the name it asked for is unknown, and end."""
        with contextlib.suppress(OSError):
            arrival.sock.send(UNRECOGNIZED_NAME)
        self.owner.arrival_ended(arrival, CloseReason.SERVER_NAME_UNKNOWN, detail)


class _Hello(PreambleReader):
    """Reads what arrives at once: part of a hello that stayed in the socket would wake the loop again and again."""

    __slots__ = ("_go_on", "_reader")

    def __init__(self, room: ClientHellos, arrival: Arrival, go_on: GoOn) -> None:
        super().__init__(room, arrival)
        self._go_on = go_on
        self._reader = ClientHelloReader()

    def take(self) -> None:
        """Take what is here, until the hello is whole."""
        while True:
            data = self.arrival.sock.recv(READ_BYTES)
            if not data:
                self.ended_by_peer(CloseReason.CLIENT_CLOSED, "closed within the handshake")
                return
            if self._reader.feed(data):
                self.leave()
                self.arrival.first = bytes(self._reader.data)
                self._go_on(self.arrival, self._reader.server_name)
                return

    def late(self) -> None:
        """The hello did not come in time."""
        self.end(CloseReason.TLS_HANDSHAKE_DEADLINE, "its hello began" if self._reader.data else "no byte came")
