"""Connections that wait for the TLS ClientHello, which contains the requested host name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from protocol.client_hello import ClientHelloReader
from proxy.base.close_reason import CloseReason
from proxy.net.accept.first_bytes import Arrival, PreambleReader, PreambleReaders

READ_BYTES: Final = 4_096
UNRECOGNIZED_NAME: Final = bytes((21, 3, 3, 0, 2, 2, 112))
"""The fatal TLS alert `unrecognized_name`, which appears in the client's log. Source: RFC 8446, 6.2."""

GoOn = Callable[[Arrival, str | None], None]
"""Called when a ClientHello is complete, with its host name; the bytes read are in the arrival."""


class ClientHellos(PreambleReaders):
    """Reads the ClientHello of each accepted connection."""

    too_late = CloseReason.TLS_HANDSHAKE_DEADLINE
    what = "hello"

    def read(self, arrival: Arrival, go_on: GoOn) -> None:
        """Read the ClientHello of `arrival`; afterwards the arrival is passed to `go_on`, or ends."""
        self.enter(_Hello(self, arrival, go_on))

    def refuse(self, arrival: Arrival, detail: str) -> None:
        """Send the alert for an unknown name, and end the connection."""
        with contextlib.suppress(OSError):
            arrival.sock.send(UNRECOGNIZED_NAME)
        self.owner.arrival_ended(arrival, CloseReason.SERVER_NAME_UNKNOWN, detail)


class _Hello(PreambleReader):
    """Reads bytes as they arrive: a part of the ClientHello left in the socket would wake the event loop repeatedly."""

    __slots__ = ("_go_on", "_reader")

    def __init__(self, readers: ClientHellos, arrival: Arrival, go_on: GoOn) -> None:
        super().__init__(readers, arrival)
        self._go_on = go_on
        self._reader = ClientHelloReader()

    def take(self) -> None:
        """Read available bytes, until the ClientHello is complete."""
        while True:
            data = self.arrival.sock.recv(READ_BYTES)
            if not data:
                self.ended_by_peer(CloseReason.CLIENT_CLOSED, "closed during the handshake")
                return
            if self._reader.feed(data):
                self.leave()
                self.arrival.first = bytes(self._reader.data)
                self._go_on(self.arrival, self._reader.server_name)
                return

    def late(self) -> None:
        """End the connection, because the ClientHello did not arrive in time."""
        self.end(CloseReason.TLS_HANDSHAKE_DEADLINE, "its hello began" if self._reader.data else "no byte came")
